package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The pictures in docs/ are those of the present code, and docs/limits.md shows each.
func TestThePicturesAreTrue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := run(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	drawn, kept := names(t, dir), names(t, "..")
	if len(drawn) != 6 || !slices.Equal(drawn, kept) {
		t.Errorf("drawn are %q, kept in docs/ %q", drawn, kept)
	}
	page := read(t, "../limits.md")
	for _, name := range drawn {
		picture := read(t, filepath.Join(dir, name))
		if !bytes.Equal(picture, read(t, filepath.Join("..", name))) {
			t.Errorf("docs/%s isn't what the limits do now: run `go run ./docs/plots` at the root "+
				"of the repository", name)
		}
		if !bytes.Contains(page, []byte("]("+name+")")) {
			t.Errorf("docs/limits.md doesn't show %s", name)
		}
		for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "limits-*.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	return names
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

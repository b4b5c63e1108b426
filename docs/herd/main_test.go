package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"
)

// The picture in docs/ is that of the present code, and docs/clients.md shows it with its figures.
func TestThePictureIsTrue(t *testing.T) {
	t.Parallel()
	ways := run()
	drawn := draw(ways)
	kept, err := os.ReadFile("../../" + picture)
	if err != nil || !bytes.Equal(drawn, kept) {
		t.Errorf("%s isn't what the client does now (%v): run `go run ./docs/herd` at the root "+
			"of the repository", picture, err)
	}
	for d := xml.NewDecoder(bytes.NewReader(drawn)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile("../clients.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(page, []byte("](clients-herd.svg)")) {
		t.Error("docs/clients.md doesn't show the picture")
	}
	for _, w := range ways {
		row := fmt.Sprintf("| %s | %d | %d | %s |",
			w.name, w.total, w.most, w.served.Round(time.Second))
		if !bytes.Contains(page, []byte(row)) {
			t.Errorf("docs/clients.md doesn't have the row\n%s", row)
		}
	}
}

// The point of the picture: without jitter the herd stays together, and with jitter it spreads.
func TestJitterScattersTheHerd(t *testing.T) {
	t.Parallel()
	ways := run()
	none, equal, full := ways[0], ways[1], ways[2]
	for _, w := range ways {
		sum := 0
		for _, n := range w.admitted {
			sum += n
		}
		if sum != clients || w.calls[0] != clients || w.admitted[0] != 0 {
			t.Errorf("%s: %d admitted, %d of them at first", w.name, sum, w.admitted[0])
		}
		for i, n := range w.calls[1 : asked/bin] {
			if n != 0 {
				t.Errorf("%s: %d calls in bin %d, earlier than allowed", w.name, n, i+1)
			}
		}
	}
	if none.most != clients || equal.most > clients/2 || full.most > clients/4 {
		t.Errorf("at most %d, %d and %d at once", none.most, equal.most, full.most)
	}
	if full.total > equal.total || 5*equal.total > none.total {
		t.Errorf("%d, %d and %d calls", none.total, equal.total, full.total)
	}
	// All of them can't be served before 20 s.
	if full.served > time.Minute || none.served < 10*full.served {
		t.Errorf("served after %v, %v and %v", none.served, equal.served, full.served)
	}
}

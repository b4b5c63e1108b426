package forebay_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// modulePath is what go.mod says; make module-path changes it.
func modulePath(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	path, ok := strings.CutPrefix(first, "module ")
	if !ok {
		t.Fatalf("go.mod begins with %q", first)
	}
	return path
}

// The client is for programs of other modules.
func TestAnotherModuleBuildsWithTheClient(t *testing.T) {
	t.Parallel()
	path := modulePath(t)
	if domain, _, _ := strings.Cut(path, "/"); !strings.Contains(domain, ".") {
		t.Errorf("go get refuses %s: it begins with no domain's name", path)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/caller\n\ngo 1.26.0\n\nrequire " + path + " v0.0.0\n\nreplace " + path + " => " + here + "\n",
		"go.sum": string(sums),
		"main.go": `package main

import (
	"context"
	"fmt"

	"` + path + `/api"
	"` + path + `/client"
)

func main() {
	c, err := client.New("http://localhost:8080", client.Config{Key: "key"})
	if err != nil {
		panic(err)
	}
	var job *api.Job
	job, err = c.Wait(context.Background(), "reports-1")
	fmt.Println(job, err)
}
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", os.DevNull, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("go build: %v\n%s", err, out)
	}
}

// Where a fork is published elsewhere, make module-path changes the path everywhere.
func TestTheModulesPathCanBeChanged(t *testing.T) {
	t.Parallel()
	dir, old := t.TempDir(), modulePath(t)
	sources := map[string]bool{"Makefile": true}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !(strings.HasSuffix(path, ".go") || d.Name() == "go.mod" || path == "Makefile") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if path != "Makefile" {
			sources[path] = strings.Contains(string(text), old)
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o700); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, path), text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	change := func(to string) ([]byte, error) {
		make := exec.Command("make", "module-path", "PATH="+to)
		make.Dir = dir
		return make.CombinedOutput()
	}
	if out, err := change("forebay"); err == nil {
		t.Errorf("a path without a domain is taken: %s", out)
	}
	if out, err := change("example.org/jobs/forebay"); err != nil {
		t.Fatalf("make module-path: %v\n%s", err, out)
	}
	for path, named := range sources {
		text, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if path == "Makefile" || !named {
			continue
		}
		if strings.Contains(string(text), `"`+old+`/`) || !strings.Contains(string(text), "example.org/jobs/forebay") {
			t.Errorf("%s still has the old path", path)
		}
	}
	for _, path := range []string{"go.mod", "bench/go.mod"} {
		text, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), old) {
			t.Errorf("%s still has the old path", path)
		}
	}
}

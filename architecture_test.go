package forebay_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowed reads the package table of ARCHITECTURE.md: package → what it may import within the
// module; nil stands for everything.
func allowed(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Packages\n")
	section, _, _ = strings.Cut(section, "\n## ")
	name := regexp.MustCompile("`([a-z0-9/]+)`")
	rows := map[string][]string{}
	for _, line := range strings.Split(section, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(cells[1], "`") {
			continue
		}
		imports := []string{}
		for _, m := range name.FindAllStringSubmatch(cells[3], -1) {
			imports = append(imports, m[1])
		}
		if strings.TrimSpace(cells[3]) == "everything" {
			imports = nil
		}
		rows[name.FindStringSubmatch(cells[1])[1]] = imports
	}
	if len(rows) < 10 {
		t.Fatalf("found only %d packages in the table of ARCHITECTURE.md", len(rows))
	}
	return rows
}

// imports lists what each package of the module imports in its code, tests left out: package →
// import paths.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(path))
		found[pkg] = append(found[pkg], "") // a package without imports is one, too
		for _, imp := range file.Imports {
			name, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			found[pkg] = append(found[pkg], name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestImportsAreThoseOfTheArchitecture(t *testing.T) {
	t.Parallel()
	table, code, module := allowed(t), imports(t), modulePath(t)+"/"
	for _, pkg := range slices.Sorted(maps.Keys(code)) {
		may, listed := table[pkg]
		if !listed {
			// A program's parts belong to it: bench/load to bench.
			parent, _, _ := strings.Cut(pkg, "/")
			if may, listed = table[parent]; !listed {
				t.Errorf("%s isn't in ARCHITECTURE.md", pkg)
				continue
			}
		}
		for _, imp := range code[pkg] {
			inner, ours := strings.CutPrefix(imp, module)
			inside := strings.HasPrefix(inner, pkg+"/")
			if ours && may != nil && !slices.Contains(may, inner) && !inside {
				t.Errorf("%s imports %s, which ARCHITECTURE.md doesn't allow", pkg, inner)
			}
		}
	}
	for pkg := range table {
		if _, exists := code[pkg]; !exists && pkg != "e2e" {
			t.Errorf("ARCHITECTURE.md lists %s, which has no code", pkg)
		}
	}
}

// Some libraries have one door into the module, so that they could be replaced behind it.
func TestLibrariesHaveOneDoor(t *testing.T) {
	t.Parallel()
	doors := map[string][]string{
		"github.com/hibiken/asynq":                {"internal/jobs", "bench"}, // a baseline
		"github.com/gorilla/mux":                  {"internal/web"},
		"go.yaml.in/yaml/v3":                      {"internal/strictyaml", "internal/testforebay"},
		"github.com/alicebob/miniredis/v2":        {"internal/store", "internal/redistest"},
		"github.com/oschwald/maxminddb-golang/v2": {"internal/identity"},
		"github.com/maypok86/otter/v2":            {"internal/cache"},

		"github.com/forebay/forebay/internal/config": {"cmd/worker",
			"cmd/internal/front", "cmd/internal/wire"},
		"github.com/spf13/cobra":  {"cmd/forebay"},
		"charm.land/bubbletea/v2": {"cmd/forebay"},

		// These are for tests alone.
		"github.com/forebay/forebay/internal/redistest":   {"internal/testforebay"},
		"github.com/forebay/forebay/internal/testforebay": {},
	}
	for pkg, list := range imports(t) {
		for library, may := range doors {
			inside := slices.ContainsFunc(may, func(door string) bool {
				return pkg == door || strings.HasPrefix(pkg, door+"/")
			})
			if slices.Contains(list, library) && !inside {
				t.Errorf("%s imports %s; only %v may", pkg, library, may)
			}
		}
	}
}

package config

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readBack is the config that Describe's text stands for, with other secrets.
func readBack(t *testing.T, text string) *Config {
	t.Helper()
	text = strings.ReplaceAll(text, `"***"`, "0123456789abcdef")
	text = strings.ReplaceAll(text, "***@", "")
	for _, digest := range []string{"9f86d081", "60303ae2"} {
		text = strings.ReplaceAll(text, `"`+digest+`…"`, digest+strings.Repeat("0", 56))
	}
	c, _, err := read("described", []byte(text), env, nil)
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, text)
	}
	return c
}

// C120, C123: what is in effect is shown whole and with units, so well that it can be read back.
func TestDescribeShowsWhatIsInEffect(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"testdata/working_full.yaml", "testdata/working_minimal.yaml", "testdata/working_warnings.yaml"} {
		c, _, err := Load(file, env)
		if err != nil {
			t.Fatal(err)
		}
		again := readBack(t, c.Describe())
		again.Admin.Token, again.Redis.URL, again.Identity.Clients = c.Admin.Token, c.Redis.URL, c.Identity.Clients
		for name, b := range again.Backends {
			b.Headers = c.Backends[name].Headers
			again.Backends[name] = b
		}
		if diff := cmp.Diff(c, again, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%s: what Describe prints is another config (-first +again):\n%s", file, diff)
		}
	}
	c := mustLoad(t, minimal)
	for _, line := range []string{"  max_body: 1MiB", "shutdown: 30s", "      max_wait: 5m", "    max_age: 24h", "      rate: 5/s",
		"  # no url: embedded, in memory: nothing is kept", "      # no stale_for: no stale answer is served", "    # no tiers: every tier may use it"} {
		if !strings.Contains(c.Describe(), line+"\n") {
			t.Errorf("%q is missing in\n%s", line, c.Describe())
		}
	}
}

// Whatever a file holds, Load says yes with a config that checks again, or no with places.
func FuzzLoad(f *testing.F) {
	for _, file := range []string{"testdata/working_full.yaml", "testdata/busted_shapes.yaml", "testdata/busted_secrets.yaml", sample} {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{minimal, "", "---", "- a", "&a [*a]", "tiers: &a {x: *a}", "limits: &a [*a]", "? {a: b}\n: c", "\xff", "shutdown: ${", "a: !!binary x", "<<: {}", "http: &x\nadmin: *x"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, _, err := read("f", text, env, nil)
		if err != nil {
			all, ok := err.(Errors)
			if !ok || len(all) == 0 || err.Error() == "" || c != nil {
				t.Fatalf("got %v, %#v", c, err)
			}
			return
		}
		if _, err := c.Check(); err != nil {
			t.Fatalf("was accepted, and is no more:\n%v", err)
		}
		c.Describe()
	})
}

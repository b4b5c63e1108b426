package config

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/limits"
)

// withClients is a config with a clients file beside it.
const withClients = `
identity:
  anonymous: free
  clients:
    - {name: acme, tier: pro, key_sha256: [9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08]}
  clients_file: clients.yaml
tiers:
  free: {limits: [{name: per-minute, algorithm: token-bucket, limit: 60, window: 1m}]}
  pro:
    grace: {period: 7d, factor: 2}
    limits:
      - {name: per-minute, algorithm: token-bucket, limit: 600, window: 1m}
limits:
  - {name: per-address, per: ip, algorithm: token-bucket, limit: 100, window: 1m}
backends: {reports: {url: "http://127.0.0.1:9000", drain: {rate: 5/s}}}
operations: {report: {backend: reports, path: /render, cost: 5}}
`

func TestAClientsFileGivesClientsWithTheirOwnLimits(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, withClients)
	if c.Identity.ClientsFile != "clients.yaml" {
		t.Fatalf("the clients file is %q", c.Identity.ClientsFile)
	}
	file, err := LoadClients("testdata/clients_working.yaml", env, c)
	if err != nil {
		t.Fatal(err)
	}
	clients := file.Clients
	if len(clients) != 2 || clients[0].Name != "globex" || clients[0].Tier != "pro" ||
		len(clients[0].KeySHA256) != 1 || clients[0].Weight != 2.5 {
		t.Fatalf("%+v", clients)
	}
	want := []Limit{
		{Name: "per-minute", Per: "client", Algorithm: limits.TokenBucket, Limit: 1200,
			Window: Window(time.Minute), Burst: 1200, Enforce: true},
		{Name: "trial", Per: "client", Algorithm: limits.FixedWindow, Limit: 5, Window: Day},
	}
	if len(clients[0].Limits) != 2 ||
		!slices.EqualFunc(clients[0].Limits, want, func(a, b Limit) bool {
			a.When, b.When = limits.When{}, limits.When{}
			return a.Name == b.Name && a.Per == b.Per && a.Algorithm == b.Algorithm &&
				a.Limit == b.Limit && a.Window == b.Window && a.Burst == b.Burst &&
				a.Enforce == b.Enforce
		}) {
		t.Errorf("limits %+v", clients[0].Limits)
	}
	text := file.Describe()
	for _, line := range []string{"clients:\n  - name: globex\n", "    weight: 2.5\n",
		"          burst: 1200\n", "          enforce: false\n",
		"    # no limits: those of its tier\n", "…\""} {
		if !strings.Contains(text, strings.ReplaceAll(line, "          ", "        ")) {
			t.Errorf("%q is missing in\n%s", line, text)
		}
	}
	if strings.Contains(text, "60303ae22b998861bce3") {
		t.Errorf("a whole digest is shown in\n%s", text)
	}
}

// C121: an error of a clients file has the place in that file, and what it clashes with.
func TestABustedClientsFileIsRefusedWithPlacesAndMends(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, withClients)
	const file = "testdata/clients_busted.yaml"
	clients, err := LoadClients(file, env, c)
	if clients != nil || err == nil {
		t.Fatalf("got %v, %v", clients, err)
	}
	if got, want := lines(err.(Errors)), expected(t, file); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if strings.Contains(lines(err.(Errors)), "hunter2") {
		t.Error("the errors show a secret")
	}
}

// A file that was cut short, or is being written, must not take everybody's key away.
func TestAClientsFileWithoutClientsIsAnErrorUnlessItSaysSo(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, withClients)
	for text, want := range map[string]string{
		"":           "f: clients: is required; write clients: [] where there are none",
		"# nobody\n": "f: clients: is required; write clients: [] where there are none",
		"{}":         "f: clients: is required; write clients: [] where there are none",
		"clients:": "f:1: clients: wants a list, such as [a, b], or lines that begin with a " +
			"dash",
		"clients: [":   "f:2: isn't YAML: did not find expected node content",
		"tiers: {}":    "f:1: tiers: unknown key; known here: clients",
		"client: []":   "f:1: client: unknown key; did you mean clients?",
		"- name: acme": "f: wants keys of its own: clients",
	} {
		if _, err := ParseClients("f", []byte(text), env, c); err == nil || err.Error() != want {
			t.Errorf("%q: got\n%v\nwant\n%s", text, err, want)
		}
	}
	if clients, err := ParseClients("f", []byte("clients: []"), env, c); err != nil ||
		len(clients.Clients) != 0 {
		t.Errorf("nobody: %v, %v", clients, err)
	}
}

func TestAClientsFileThatCanNotBeReadIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	c, dir := mustLoad(t, withClients), t.TempDir()
	missing, long := filepath.Join(dir, "missing.yaml"), filepath.Join(dir, "long.yaml")
	if _, err := LoadClients(missing, env, c); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), missing) {
		t.Errorf("a missing file: %v", err)
	}
	text := bytes.Repeat([]byte("#\n"), MaxClientsFile/2+1)
	if err := os.WriteFile(long, text, 0o600); err != nil {
		t.Fatal(err)
	}
	want := long + ": is longer than 8MiB; a config is not"
	if _, err := LoadClients(long, env, c); err == nil || err.Error() != want {
		t.Errorf("a long file: %v", err)
	}
	if _, err := ParseClients(long, text, env, c); err == nil || err.Error() != want {
		t.Errorf("a long text: %v", err)
	}
}

// Paths in a config begin where it lies, wherever the process was started.
func TestPathsBeginWhereTheConfigLies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "forebay.yaml")
	text := strings.Replace(withClients, "clients_file: clients.yaml",
		"clients_file: clients.yaml\n  country_database: /var/lib/countries.mmdb", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := Load(file, env, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // and stay there, however often the config is checked
		if c.Identity.ClientsFile != filepath.Join(dir, "clients.yaml") ||
			c.Identity.CountryDatabase != "/var/lib/countries.mmdb" {
			t.Errorf("paths are %q and %q", c.Identity.ClientsFile, c.Identity.CountryDatabase)
		}
		if _, err := c.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAClientsFileIsEnoughToSayWhoMayAsk(t *testing.T) {
	t.Parallel()
	text := strings.Replace(minimal, "identity: {anonymous: free}",
		"identity: {clients_file: clients.yaml}", 1)
	_, warnings, err := load(text)
	if err != nil {
		t.Fatal(err)
	}
	// Any tier may be somebody's.
	want := "forebay.yaml:3: tiers.free: no limit applies to all its callers on report: one of " +
		"them alone can fill the line; add tiers.free.limits or limits"
	if lines(warnings) != want {
		t.Errorf("warnings are\n%s\nwant\n%s", lines(warnings), want)
	}
}

package wire_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/config"
)

// roster is a config whose clients are those of a file, but for one.
const roster = `
identity:
  clients_file: clients.yaml
  clients: [{name: fixed, tier: pro, key_sha256: [%s]}]
tiers:
  pro: {limits: [{name: per-minute, algorithm: token-bucket, limit: 60, window: 1m}]}
  free: {}
limits: [{name: all, algorithm: token-bucket, limit: 600, window: 1m}]
backends: {b: {url: "http://127.0.0.1:9", drain: {rate: 5/s}}}
operations: {o: {backend: b, path: /}}
`

// client is an entry of a clients file; its key is "key-<name>".
func client(name, rest string) string {
	return fmt.Sprintf("  - {name: %s, key_sha256: [%s], %s}\n", name, digest(name), rest)
}

func digest(name string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte("key-"+name))) }

// watched are clients whose file a test edits. The file is read when the test asks for it, and not
// by a clock.
type watched struct {
	*wire.Clients
	t       *testing.T
	log     *logBuffer
	metrics *prometheus.Registry
	tick    chan time.Time
	hup     chan os.Signal
	end     func() // see begin
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// take returns what was written since it was last called.
func (b *logBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// loadRoster writes a config and its clients file, and reads the config.
func loadRoster(t *testing.T, clients string) (*config.Config, string) {
	t.Helper()
	dir := t.TempDir()
	path, file := filepath.Join(dir, "forebay.yaml"), filepath.Join(dir, "clients.yaml")
	write(t, path, fmt.Sprintf(roster, digest("fixed")))
	write(t, file, clients)
	c, _, err := wire.Load(path, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	return c, file
}

func noEnv(string) (string, bool) { return "", false }

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// watch reads clients and watches their file until the test ends.
func watch(t *testing.T, c *config.Config) *watched {
	t.Helper()
	w := &watched{t: t, log: &logBuffer{}, metrics: prometheus.NewRegistry(),
		tick: make(chan time.Time), hup: make(chan os.Signal)}
	var err error
	log := slog.New(slog.NewJSONHandler(w.log, nil))
	w.Clients, err = wire.NewClients(c, noEnv, w.metrics, log)
	if err != nil {
		t.Fatal(err)
	}
	w.begin()
	t.Cleanup(func() { w.end() })
	return w
}

// begin watches the file until end is called. end returns when the watching has stopped.
func (w *watched) begin() {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Watch(ctx, w.tick, w.hup)
	}()
	w.end = func() { stop(); <-done }
}

// look has the file read if it changed, and returns when that is done.
func (w *watched) look() {
	w.tick <- time.Time{}
	w.end()
	w.begin()
}

// tier returns the tier of a client's key; "": the key is unknown.
func (w *watched) tier(name string) string {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-API-Key", "key-"+name)
	c, err := w.Identify(r)
	if err != nil {
		return ""
	}
	if c.Name != name {
		w.t.Errorf("the key of %s is %s's", name, c.Name)
	}
	return c.Tier
}

// A clients file is read at the start, and then edited, broken and mended.
func TestClientsComeAndGoWithTheirFile(t *testing.T) {
	t.Parallel()
	text := "clients:\n" + client("acme", "tier: pro") + client("globex", "tier: free")
	c, file := loadRoster(t, text)
	w := watch(t, c)
	known := func(about string, want map[string]string) {
		t.Helper()
		for name, tier := range want {
			if got := w.tier(name); got != tier {
				t.Errorf("%s: %s is of tier %q, want %q", about, name, got, tier)
			}
		}
	}
	known("the file at the start",
		map[string]string{"acme": "pro", "globex": "free", "fixed": "pro", "initech": ""})
	w.look()
	if said := w.log.take(); said != "" {
		t.Errorf("without a change it said %s", said)
	}

	write(t, file, "clients:\n"+client("acme", "tier: free")+client("initech", "tier: pro"))
	w.look()
	known("the edited file",
		map[string]string{"acme": "free", "globex": "", "fixed": "pro", "initech": "pro"})
	if said := w.log.take(); strings.Count(said, "\n") != 1 || !strings.Contains(said, file) ||
		!strings.Contains(said, `"clients":3,"added":1,"removed":1,"changed":1`) {
		t.Errorf("of the edit it said %s", said)
	}

	write(t, file, "clients:\n"+client("acme", "tier: pro")+client("hooli", "teir: pro"))
	w.look()
	w.look()
	known("the broken file", map[string]string{"acme": "free", "initech": "pro", "hooli": ""})
	wrong := file + ":3: clients[1].teir: unknown key; did you mean tier?"
	if said := w.log.take(); strings.Count(said, "\n") != 1 || !strings.Contains(said, wrong) ||
		!strings.Contains(said, `"ERROR"`) {
		t.Errorf("of the broken file it said %s", said)
	}

	write(t, file, "clients:\n"+client("acme", "tier: pro")+client("hooli", "tier: pro"))
	w.look()
	known("the mended file", map[string]string{"acme": "pro", "initech": "", "hooli": "pro"})
	if families, err := w.metrics.Gather(); err != nil || len(families) != 2 {
		t.Errorf("%d metrics of the file, %v", len(families), err)
	}
}

func TestOverridesComeWithTheirClientsAndKeepTheirPlace(t *testing.T) {
	t.Parallel()
	own := func(limit int) string {
		return fmt.Sprintf("tier: pro, weight: 3, limits: "+
			"[{name: per-minute, algorithm: token-bucket, limit: %d, window: 1m}]", limit)
	}
	c, file := loadRoster(t, "clients:\n"+client("acme", own(600))+client("globex", own(600))+
		client("initech", "tier: pro"))
	w := watch(t, c)
	acme, globex := w.Override("acme"), w.Override("globex")
	if acme == nil || acme.Weight != 3 || len(acme.Limits) != 1 {
		t.Fatalf("override %+v", acme)
	}
	if l := acme.Limits[0].Rule.Limit(); l.Amount != 600 || l.Owner != "client:acme" {
		t.Fatalf("its limit is %+v", l)
	}
	for _, none := range []string{"initech", "fixed", "ip:192.0.2.1"} {
		if w.Override(none) != nil {
			t.Errorf("%s has limits of its own", none)
		}
	}
	write(t, file, "clients:\n"+client("acme", own(601))+client("globex", own(600))+
		client("initech", own(7)))
	w.look()
	if now := w.Override("acme"); now == acme || now.Limits[0].Rule.Limit().Amount != 601 {
		t.Errorf("the changed override is %+v", now)
	}
	if w.Override("globex") != globex {
		t.Error("an unchanged override has another pointer: values computed from it are lost")
	}
	if w.Override("initech") == nil {
		t.Error("a new override isn't in force")
	}
	write(t, file, "clients: []")
	w.look()
	if w.Override("acme") != nil || w.Override("globex") != nil {
		t.Error("overrides stay without their clients")
	}
}

func TestABrokenClientsFileIsAnErrorOfTheStart(t *testing.T) {
	t.Parallel()
	start := func(c *config.Config) error {
		_, err := wire.NewClients(c, noEnv, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		return err
	}
	const odd = "tier: pro, limits: " +
		"[{name: odd, algorithm: token-bucket, limit: 1, window: 366d, burst: 1000000000}]"
	for text, want := range map[string]string{
		"clients:\n" + client("fixed", "tier: pro"): "clients.yaml:2: clients[0].key_sha256[0]: " +
			"is also identity.clients[0].key_sha256[0] of the config",
		"clients:\n" + client("acme", odd): "clients.yaml:2: clients[0].limits[0]: " +
			"limit odd: burst",
		"": "clients.yaml: clients: is required",
	} {
		c, _ := loadRoster(t, text)
		err := start(c)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	c, file := loadRoster(t, "")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := start(c); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a missing file: %v", err)
	}
	c.Identity.CountryDatabase = filepath.Join(t.TempDir(), "countries.mmdb")
	err := start(c)
	if err == nil || !strings.Contains(err.Error(), "identity.country_database: ") {
		t.Errorf("a missing database: %v", err)
	}
}

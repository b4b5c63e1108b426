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
	"syscall"
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

// watched are clients whose file a test edits. Nothing here waits for a clock: a look happens when the test says so.
type watched struct {
	*wire.Clients
	t       *testing.T
	file    string
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
func watch(t *testing.T, c *config.Config, file string) *watched {
	t.Helper()
	w := &watched{t: t, file: file, log: &logBuffer{}, metrics: prometheus.NewRegistry(), tick: make(chan time.Time), hup: make(chan os.Signal)}
	var err error
	w.Clients, err = wire.NewClients(c, noEnv, w.metrics, slog.New(slog.NewJSONHandler(w.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	w.begin()
	t.Cleanup(func() { w.end() })
	return w
}

// begin watches the file until end is called, which returns when nothing looks at the file any more.
func (w *watched) begin() {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Watch(ctx, w.tick, w.hup)
	}()
	w.end = func() { stop(); <-done }
}

// look has the file looked at, and returns when that is over.
func (w *watched) look() {
	w.tick <- time.Time{}
	w.end()
	w.begin()
}

// hangUp is a SIGHUP, and returns when it was obeyed.
func (w *watched) hangUp() {
	w.hup <- syscall.SIGHUP
	w.end()
	w.begin()
}

// tier is what the key of a client gets it; "": nothing.
func (w *watched) tier(name string) string {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-API-Key", "key-"+name)
	who, err := w.Identity().Identify(r)
	if err != nil {
		return ""
	}
	if who.Name != name {
		w.t.Errorf("the key of %s is %s's", name, who.Name)
	}
	return who.Tier
}

// metric is the value of a metric, or of the one of its family with a label value.
func (w *watched) metric(name, label string) float64 {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	w.t.Fatalf("no metric %s %s", name, label)
	return 0
}

// counted checks what the metrics tell of the file.
func (w *watched) counted(ok, failed, good float64) {
	w.t.Helper()
	if a, b, c := w.metric("forebay_clients_reloads_total", "ok"), w.metric("forebay_clients_reloads_total", "failed"), w.metric("forebay_clients_file_ok", ""); a != ok || b != failed || c != good {
		w.t.Errorf("metrics say ok %v, failed %v, file ok %v; want %v, %v, %v", a, b, c, ok, failed, good)
	}
}

// The whole story of a clients file: read at the start, edited, broken, mended.
func TestClientsComeAndGoWithTheirFile(t *testing.T) {
	t.Parallel()
	c, file := loadRoster(t, "clients:\n"+client("acme", "tier: pro")+client("globex", "tier: free"))
	w := watch(t, c, file)
	if w.tier("acme") != "pro" || w.tier("globex") != "free" || w.tier("fixed") != "pro" || w.tier("initech") != "" {
		t.Fatal("the file's clients aren't known at the start")
	}
	w.look()
	if said := w.log.take(); said != "" {
		t.Errorf("without a change it said %s", said)
	}
	w.counted(0, 0, 1)

	write(t, file, "clients:\n"+client("acme", "tier: free")+client("initech", "tier: pro"))
	w.look()
	if w.tier("acme") != "free" || w.tier("globex") != "" || w.tier("fixed") != "pro" || w.tier("initech") != "pro" {
		t.Error("the edited file isn't in force")
	}
	if said := w.log.take(); strings.Count(said, "\n") != 1 || !strings.Contains(said, `"clients":3,"added":1,"removed":1,"changed":1`) || !strings.Contains(said, file) {
		t.Errorf("of the edit it said %s", said)
	}
	w.counted(1, 0, 1)

	write(t, file, "clients:\n"+client("acme", "tier: pro")+client("hooli", "teir: pro"))
	w.look()
	w.look()
	if w.tier("acme") != "free" || w.tier("initech") != "pro" || w.tier("hooli") != "" {
		t.Error("a broken file changed the clients")
	}
	if said := w.log.take(); strings.Count(said, "\n") != 1 || !strings.Contains(said, file+":3: clients[1].teir: unknown key; did you mean tier?") || !strings.Contains(said, `"ERROR"`) {
		t.Errorf("of the broken file it said %s", said)
	}
	w.counted(1, 1, 0)

	write(t, file, "clients:\n"+client("acme", "tier: pro")+client("hooli", "tier: pro"))
	w.look()
	if w.tier("acme") != "pro" || w.tier("initech") != "" || w.tier("hooli") != "pro" {
		t.Error("the mended file isn't in force")
	}
	w.counted(2, 1, 1)
}

func TestAClientsFileThatVanishesLeavesTheClientsAsTheyAre(t *testing.T) {
	t.Parallel()
	text := "clients:\n" + client("acme", "tier: pro")
	c, file := loadRoster(t, text)
	w := watch(t, c, file)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	w.look()
	w.look()
	if said := w.log.take(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "no such file") {
		t.Errorf("of the missing file it said %s", said)
	}
	w.counted(0, 1, 0)
	write(t, file, "") // as an editor leaves it for a moment
	w.look()
	if said := w.log.take(); w.tier("acme") != "pro" || !strings.Contains(said, "clients: is required") {
		t.Errorf("an empty file took the clients away, or was not told of: %s", said)
	}
	w.counted(0, 2, 0)
	write(t, file, text)
	w.look()
	if said := w.log.take(); !strings.Contains(said, `"added":0,"removed":0,"changed":0`) {
		t.Errorf("of the file that came back it said %s", said)
	}
	w.counted(1, 2, 1)
}

func TestSIGHUPReadsTheClientsFileWhateverItsTimeSays(t *testing.T) {
	t.Parallel()
	old := time.Now().Add(-time.Hour)
	c, file := loadRoster(t, "clients:\n"+client("acme", "tier: pro "))
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	w := watch(t, c, file)
	write(t, file, "clients:\n"+client("acme", "tier: free"))
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	w.look()
	if w.tier("acme") != "pro" {
		t.Fatal("the file was read although nothing of it seemed to have changed: then the rest proves nothing")
	}
	w.hangUp()
	if w.tier("acme") != "free" {
		t.Error("SIGHUP didn't have the file read")
	}
	w.counted(1, 0, 1)

	// Who asks is answered, though nothing changed, and for as often as the file is broken.
	w.log.take()
	w.hangUp()
	if said := w.log.take(); !strings.Contains(said, `"changed":0`) {
		t.Errorf("of a SIGHUP without a change it said %s", said)
	}
	write(t, file, "clients: none")
	w.hangUp()
	w.hangUp()
	if said := w.log.take(); strings.Count(said, "wants a list") != 2 {
		t.Errorf("of two SIGHUPs with a broken file it said %s", said)
	}
	w.counted(2, 2, 0)
}

// Kubernetes mounts a file as a link to a link to a directory, and swaps the middle one.
func TestASwappedLinkIsSeen(t *testing.T) {
	t.Parallel()
	c, file := loadRoster(t, "clients: []")
	dir, old := filepath.Dir(file), time.Now().Add(-time.Hour)
	for version, tier := range map[string]string{"v1": "pro ", "v2": "free"} { // of one length and one time
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, version, "clients.yaml")
		write(t, at, "clients:\n"+client("acme", "tier: "+tier))
		if err := os.Chtimes(at, old, old); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, at string) {
		if err := os.Symlink(to, at+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(at+".new", at); err != nil {
			t.Fatal(err)
		}
	}
	link("v1", filepath.Join(dir, "data"))
	link(filepath.Join("data", "clients.yaml"), file)
	w := watch(t, c, file)
	if w.tier("acme") != "pro" {
		t.Fatal("the file isn't read through its links")
	}
	link("v2", filepath.Join(dir, "data"))
	w.look()
	if w.tier("acme") != "free" {
		t.Error("the swapped link wasn't seen")
	}
}

// Times of files are coarse: one that is written twice within one tells nothing by its time.
func TestAFileThatWasJustWrittenIsReadAgain(t *testing.T) {
	t.Parallel()
	c, file := loadRoster(t, "clients:\n"+client("acme", "tier: pro "))
	w := watch(t, c, file)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, "clients:\n"+client("acme", "tier: free"))
	if err := os.Chtimes(file, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	w.look()
	if w.tier("acme") != "free" {
		t.Error("a second edit within the file system's tick wasn't seen")
	}
}

func TestOverridesComeWithTheirClientsAndKeepTheirPlace(t *testing.T) {
	t.Parallel()
	own := func(limit int) string {
		return fmt.Sprintf("tier: pro, weight: 3, limits: [{name: per-minute, algorithm: token-bucket, limit: %d, window: 1m}]", limit)
	}
	c, file := loadRoster(t, "clients:\n"+client("acme", own(600))+client("globex", own(600))+client("initech", "tier: pro"))
	w := watch(t, c, file)
	acme, globex := w.Override("acme"), w.Override("globex")
	if acme == nil || acme.Weight != 3 || len(acme.Limits) != 1 || acme.Limits[0].Rule.Limit().Amount != 600 || acme.Limits[0].Rule.Limit().Owner != "client:acme" {
		t.Fatalf("override %+v", acme)
	}
	if w.Override("initech") != nil || w.Override("fixed") != nil || w.Override("ip:192.0.2.1") != nil {
		t.Error("clients without limits of their own have some")
	}
	write(t, file, "clients:\n"+client("acme", own(601))+client("globex", own(600))+client("initech", own(7)))
	w.look()
	if now := w.Override("acme"); now == acme || now.Limits[0].Rule.Limit().Amount != 601 {
		t.Errorf("the changed override is %+v", now)
	}
	if w.Override("globex") != globex {
		t.Error("an override that nobody changed is another: what was computed from it is lost")
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

// Readings and requests share what they see.
func TestRequestsDuringAReadingSeeOneFileWhole(t *testing.T) {
	t.Parallel()
	files := []string{"clients:\n" + client("acme", "tier: pro"), "clients:\n" + client("acme", "tier: free")}
	c, file := loadRoster(t, files[0])
	w := watch(t, c, file)
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if tier := w.tier("acme"); tier != "pro" && tier != "free" {
					t.Errorf("in between the tier is %q", tier)
					return
				}
				w.Override("acme")
			}
		})
	}
	for n := range 50 {
		write(t, file, files[n%2])
		w.hangUp()
	}
	close(stop)
	asking.Wait()
}

func TestABrokenClientsFileIsAnErrorOfTheStart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"clients:\n" + client("fixed", "tier: pro"): "clients.yaml:2: clients[0].key_sha256[0]: is also identity.clients[0].key_sha256[0] of the config",
		"clients:\n" + client("acme", "tier: pro, limits: [{name: odd, algorithm: token-bucket, limit: 1, window: 366d, burst: 1000000000}]"): "clients.yaml:2: clients[0].limits[0]: limit odd: burst",
		"": "clients.yaml: clients: is required",
	} {
		c, _ := loadRoster(t, text)
		_, err := wire.NewClients(c, noEnv, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	c, file := loadRoster(t, "")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.NewClients(c, noEnv, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a missing file: %v", err)
	}
	c.Identity.CountryDatabase = filepath.Join(t.TempDir(), "countries.mmdb")
	if _, err := wire.NewClients(c, noEnv, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "identity.country_database: ") {
		t.Errorf("a missing database: %v", err)
	}
}

func TestWithoutAClientsFileThereAreNoMetricsOfIt(t *testing.T) {
	t.Parallel()
	c := config.Demo()
	metrics := prometheus.NewRegistry()
	if _, err := wire.NewClients(c, noEnv, metrics, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if families, _ := metrics.Gather(); len(families) > 0 {
		t.Errorf("metrics of a file that isn't there: %v", families)
	}
}

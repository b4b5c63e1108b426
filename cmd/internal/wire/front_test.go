package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/store"
)

// every has each algorithm, subject, condition and cost that a config can have.
const every = `
http: {trusted_proxies: [192.0.2.1]}
identity:
  anonymous: free
  country_header: CF-IPCountry
  clients_file: clients.yaml
%s
tiers:
  free:
    limits:
      - {name: jobs, algorithm: concurrency, limit: 2}
      - {name: per-minute, algorithm: sliding-window-counter, limit: 60, window: 1m}
  pro:
    grace: {period: 7d, factor: 2}
    limits:
      - {name: per-minute, algorithm: sliding-window-counter, limit: 600, window: 1m}
limits:
  - {name: daily, per: tier, algorithm: fixed-window, limit: 1000, window: day}
  - {name: monthly, per: country, algorithm: fixed-window, limit: 5000, window: month}
  - {name: steady, per: ip, algorithm: leaky-bucket, limit: 10, window: 1s, burst: 100}
  - {name: german, when: {country: [DE]}, algorithm: sliding-window-log, limit: 30, window: 1m}
  - {name: trial, per: global, algorithm: token-bucket, limit: 10, window: 1m, enforce: false}
backends: {b: {url: "http://127.0.0.1:9", drain: {rate: 5/s}}}
operations:
  o:
    backend: b
    path: /
    cost: 3
    limits: [{name: own, per: operation, algorithm: token-bucket, limit: 20, window: 1m}]
  sized: {backend: b, path: /, cost: {from: /pages, default: 2, max: 7}}
`

// front returns the server of a config, on a Redis of its own, with the clients acme, which has a
// limit of its own, and globex.
func front(t *testing.T, text string) http.Handler {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "forebay.yaml")
	write(t, path, text)
	const own = "limits: [{name: per-minute, algorithm: token-bucket, limit: 50, window: 1m}]"
	write(t, filepath.Join(dir, "clients.yaml"),
		"clients:\n"+client("acme", "tier: pro, "+own)+client("globex", "tier: pro"))
	c, _, err := wire.Load(path, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	log, metrics := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	clients, err := wire.NewClients(c, noEnv, metrics, log)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Config{URL: redistest.Start(t).URL()}, log)
	if err != nil {
		t.Fatal(err)
	}
	lines := wire.Lines(c, s.Client())
	listener := wire.Listen(c, s.Client())
	past := wire.NewHistory("api", c, s, lines, log)
	f, err := wire.NewFront(c, clients, s, lines, listener, past, metrics, log, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done // background work has ended
		listener.Close()
		s.Close()
	})
	return f.Public()
}

// ask sends a request from the trusted proxy.
func ask(t *testing.T, h http.Handler, method, path, body string,
	headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = "192.0.2.1:4711"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Forwarded-For", "203.0.113.7")
	for n := 0; n < len(headers); n += 2 {
		r.Header.Set(headers[n], headers[n+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// standing lists the limits of /v1/rate-limits: name limit/burst remaining window enforced.
func standing(t *testing.T, h http.Handler, headers ...string) string {
	t.Helper()
	w := ask(t, h, http.MethodGet, "/v1/rate-limits", "", headers...)
	var body api.RateLimits
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	var all []string
	for _, l := range body.Limits {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s per %s: %s %d/%d left %d %s %v",
			l.Operation, l.Scope, l.Name, l.Limit, l.Burst, l.Remaining, l.Window, l.Enforced)))
	}
	return strings.Join(all, "\n")
}

func TestEveryLimitOfTheConfigIsInForce(t *testing.T) {
	t.Parallel()
	h := front(t, fmt.Sprintf(every, ""))
	if got, want := standing(t, h, "CF-IPCountry", "DE"), strings.TrimSpace(`
per client: jobs 2/0 left 2  true
per client: per-minute 60/0 left 60 1m true
per tier: daily 1000/0 left 1000 24h true
per country: monthly 5000/0 left 5000 month true
per ip: steady 10/100 left 100 1s true
per client: german 30/0 left 30 1m true
per global: trial 10/10 left 10 1m false
o per operation: own 20/20 left 20 1m true`); got != want {
		t.Errorf("an anonymous caller's limits are\n%s\nwant\n%s", got, want)
	}
	if got := standing(t, h, "CF-IPCountry", "FR"); strings.Contains(got, "german") {
		t.Errorf("a French caller's limits are\n%s", got)
	}
	acme := "per client: per-minute 100/100 left 100 1m true"
	if got := standing(t, h, "X-API-Key", "key-acme"); !strings.Contains(got, acme) ||
		strings.Contains(got, "600") {
		t.Errorf("acme's own limit, doubled as long as it is new, isn't in force:\n%s", got)
	}
	globex := "per client: per-minute 1200/0 left 1200 1m true"
	if got := standing(t, h, "X-API-Key", "key-globex"); !strings.Contains(got, globex) {
		t.Errorf("the tier's limit, doubled for a new client, isn't in force:\n%s", got)
	}

	// A request takes its operation's cost, or the cost that its payload gives.
	for body, cost := range map[string]int64{
		`{"operation":"o","payload":{}}`:              3,
		`{"operation":"sized","payload":{"pages":7}}`: 7,
		`{"operation":"sized","payload":{}}`:          2,
	} {
		w := ask(t, h, http.MethodPost, "/v1/jobs", body,
			"X-Forwarded-For", fmt.Sprintf("203.0.113.%d", 100+cost))
		got := fmt.Sprint(map[string][]string(w.Header())["RateLimit"]) // as the draft spells it
		want := fmt.Sprintf(`"per-minute";r=%d`, 60-cost)
		if w.Code != http.StatusAccepted || !strings.Contains(got, want) {
			t.Errorf("%s: %d, %s; want %s", body, w.Code, got, want)
		}
	}
	large := `{"operation":"sized","payload":{"pages":8}}`
	w := ask(t, h, http.MethodPost, "/v1/jobs", large)
	if w.Code != http.StatusUnprocessableEntity {
		t.Errorf("a cost over the maximum: %d %s", w.Code, w.Body)
	}
}

func TestARegionsShareScalesEveryLimit(t *testing.T) {
	t.Parallel()
	h := front(t, fmt.Sprintf(every, "region: {name: eu, share: 0.3}"))
	if got, want := standing(t, h, "CF-IPCountry", "DE"), strings.TrimSpace(`
per client: jobs 1/0 left 1  true
per client: per-minute 18/0 left 18 1m true
per tier: daily 300/0 left 300 24h true
per country: monthly 1500/0 left 1500 month true
per ip: steady 3/30 left 30 1s true
per client: german 9/0 left 9 1m true
per global: trial 3/3 left 3 1m false
o per operation: own 6/6 left 6 1m true`); got != want {
		t.Errorf("the limits are\n%s\nwant\n%s", got, want)
	}
	got := standing(t, h, "X-API-Key", "key-acme")
	if !strings.Contains(got, "per client: per-minute 30/30") {
		t.Errorf("a client's own limits are\n%s", got)
	}
}

// C123: the listing of the settings in effect has every limit, including those of one client and
// those that aren't enforced.
func TestCheckPrintsTheClientsFileToo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, file := filepath.Join(dir, "forebay.yaml"), filepath.Join(dir, "clients.yaml")
	write(t, path, fmt.Sprintf(every, ""))
	const own = "limits: [{name: mine, algorithm: concurrency, limit: 5, enforce: false}]"
	write(t, file, "clients:\n"+client("acme", "tier: pro, "+own))
	var stdout, stderr bytes.Buffer
	if code := wire.Check(path, noEnv, &stdout, &stderr); code != wire.ExitOK || stderr.Len() > 0 {
		t.Fatalf("code %d: %s", code, &stderr)
	}
	for _, text := range []string{
		path + " is valid", "name: trial", "enforce: false",
		"---\n# " + file + " is valid", "  - name: acme\n", "      - name: mine\n",
	} {
		if !strings.Contains(stdout.String(), text) {
			t.Errorf("%q is missing in\n%s", text, &stdout)
		}
	}

	write(t, file, "clients:\n"+client("acme", "tier: por"))
	stdout.Reset()
	code := wire.Check(path, noEnv, &stdout, &stderr)
	if code != wire.ExitUsage || stdout.Len() > 0 ||
		!strings.Contains(stderr.String(), file+":2: clients[0].tier: ") {
		t.Errorf("a broken clients file: code %d, %s\n%s", code, &stderr, &stdout)
	}
	write(t, file, "clients: []")
	write(t, path, strings.Replace(fmt.Sprintf(every, ""),
		"country_header: CF-IPCountry", "country_database: missing.mmdb", 1))
	stderr.Reset()
	code = wire.Check(path, noEnv, &stdout, &stderr)
	if code != wire.ExitUsage || !strings.Contains(stderr.String(), "missing.mmdb") {
		t.Errorf("a missing database: code %d, %s", code, &stderr)
	}
}

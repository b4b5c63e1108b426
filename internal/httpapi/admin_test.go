package httpapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"forebay/api"
)

func (w *world) backendNow(fields ...[2]string) api.Backend {
	w.Helper()
	return w.backendOf(w.want(w.call("GET", w.admin+"/admin/v1/backends/"+w.backend, "", fields...), 200))
}

func (w *world) backendOf(a answer) api.Backend {
	w.Helper()
	var b api.Backend
	if err := json.Unmarshal(a.body, &b); err != nil {
		w.Fatal(err)
	}
	return b
}

func (w *world) tune(body string, fields ...[2]string) answer {
	w.Helper()
	return w.call("PATCH", w.admin+"/admin/v1/backends/"+w.backend, body, fields...)
}

func TestTuningShowsAtOnceAndStaysOnRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	before := w.backendNow()
	if before.Rate != (api.Setting[string]{Configured: "10/s", Effective: "10/s"}) || before.TunedBy != "" || before.TunedAt != nil || before.WaitingOn != "idle" {
		t.Errorf("before = %+v", before)
	}
	b := w.backendOf(w.want(w.tune(`{"rate":"6/m","burst":2,"concurrency":3,"capacity":4,"paused":true}`, field("Forebay-Operator", "maria")), 200))
	if b.Rate.Configured != "10/s" || b.Rate.Override == nil || *b.Rate.Override != "6/m" || b.Rate.Effective != "6/m" ||
		b.Burst.Effective != 2 || b.Concurrency.Effective != 3 || b.Capacity.Effective != 4 || *b.Capacity.Override != 4 || b.Capacity.Configured != 1000 || !b.Paused {
		t.Errorf("tuned = %+v", b)
	}
	if b.TunedBy != "maria" || b.TunedAt == nil || time.Since(b.TunedAt.Time).Abs() > time.Minute {
		t.Errorf("tuned by %s at %v", b.TunedBy, b.TunedAt)
	}
	// One field alone leaves the others; a process that starts later sees it all.
	w.want(w.tune(`{"paused":false}`), 200)
	_, _, second := w.serve()
	b = w.backendOf(w.want(w.call("GET", second+"/admin/v1/backends/"+w.backend, ""), 200))
	if b.Paused || b.Rate.Effective != "6/m" || b.TunedBy != "127.0.0.1" {
		t.Errorf("later = %+v", b)
	}
	log := w.log.String()
	if !strings.Contains(log, "backend tuned") || !strings.Contains(log, "by=maria") ||
		!strings.Contains(log, `from="rate=10/s burst=1 concurrency=10 capacity=1000 paused=false" to="rate=6/m burst=2 concurrency=3 capacity=4 paused=true"`) {
		t.Errorf("log:\n%s", log)
	}
	b = w.backendOf(w.want(w.call("DELETE", w.admin+"/admin/v1/backends/"+w.backend+"/override", "", field("Forebay-Operator", "jo")), 200))
	if b.Rate.Override != nil || b.Rate.Effective != "10/s" || b.Burst.Override != nil || b.Concurrency.Effective != 10 || b.TunedBy != "jo" {
		t.Errorf("reset = %+v", b)
	}
}

// Case C16, and C120 for the API's own fields.
func TestTuningThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for body, pointers := range map[string]string{
		`{"rate":"0/s"}`: "#/rate", `{"rate":"-1/s"}`: "#/rate", `{"rate":"5"}`: "#/rate", `{"rate":5}`: "#/rate", `{"rate":""}`: "#/rate",
		`{"rate":"NaN/s"}`: "#/rate", `{"rate":"1e400/s"}`: "#/rate", `{"rate":null}`: "#/rate", `{"rate":"` + strings.Repeat("1", 40) + `/s"}`: "#/rate",
		`{"burst":0}`: "#/burst", `{"burst":-1}`: "#/burst", `{"burst":1.5}`: "#/burst", `{"burst":"2"}`: "#/burst", `{"burst":null}`: "#/burst",
		`{"concurrency":0}`: "#/concurrency", `{"concurrency":1e18}`: "#/concurrency", `{"concurrency":10001}`: "#/concurrency", `{"burst":10001}`: "#/burst", `{"capacity":0}`: "#/capacity", `{"capacity":10000001}`: "#/capacity",
		`{"paused":"true"}`: "#/paused", `{"paused":1}`: "#/paused", `{"pause":true}`: "#/pause",
		`{"rate":"0/s","burst":0,"x":1}`: "#/rate #/burst #/x",
	} {
		p := w.problem(w.tune(body), http.StatusUnprocessableEntity, api.CodeInvalidFields)
		var got []string
		for _, e := range p.Errors {
			got = append(got, e.Pointer)
		}
		if strings.Join(got, " ") != pointers {
			t.Errorf("%s: %v, want %s", body, p.Errors, pointers)
		}
	}
	for _, body := range []string{`{}`, `[]`, `{"burst":1`, `{"burst":1,"burst":2}`, " "} {
		w.problem(w.tune(body), http.StatusBadRequest, api.CodeInvalidRequest)
	}
	w.problem(w.tune(`{"burst":1}`, field("Content-Type", "text/plain")), http.StatusUnsupportedMediaType, api.CodeMediaType)
	w.problem(w.tune(`{"rate":"`+strings.Repeat("1", 5000)+`"}`), http.StatusRequestEntityTooLarge, api.CodeTooLarge)
	w.problem(w.call("PATCH", w.admin+"/admin/v1/backends/nope", `{"burst":1}`), http.StatusNotFound, api.CodeUnknownBackend)
	w.problem(w.call("GET", w.admin+"/admin/v1/backends/nope", ""), http.StatusNotFound, api.CodeUnknownBackend)
	if b := w.backendNow(); b.TunedBy != "" {
		t.Errorf("something was tuned: %+v", b)
	}
	w.want(w.tune(`{"rate":"unlimited"}`), 200)
}

func TestBackendsAreListedWithTheirLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.pause()
	for range 3 {
		w.submit(w.plain, `1`, key(keyA))
	}
	var list api.Backends
	strictly(t, "backends", w.want(w.call("GET", w.admin+"/admin/v1/backends", ""), 200).body, &list)
	if len(list.Backends) != 1 {
		t.Fatalf("%d backends", len(list.Backends))
	}
	b := list.Backends[0]
	if b.Name != w.backend || b.Waiting != 3 || b.Outcomes.Accepted != 3 || b.InFlight != 0 || !b.Paused || b.WaitingOn != "paused" || b.OldestWaitSeconds <= 0 {
		t.Errorf("backend = %+v", b)
	}
}

func TestTheAdminTokenIsRequiredWhereThereIsOne(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	w := newWorld(t, func(s *setup) { s.token = token })
	calls := []string{"GET /admin/v1/backends", "GET /admin/v1/backends/" + w.backend, "DELETE /admin/v1/backends/" + w.backend + "/override", "GET /metrics"}
	for _, call := range calls {
		method, path, _ := strings.Cut(call, " ")
		for _, wrong := range []string{"", "Bearer", "Bearer 0123456789abcdeF", "Bearer " + token + "0", "Basic " + token, token} {
			a := w.call(method, w.admin+path, "", field("Authorization", wrong))
			w.problem(a, http.StatusUnauthorized, api.CodeInvalidCredentials)
			if a.Header.Get("WWW-Authenticate") != `Bearer realm="forebay-admin"` {
				t.Errorf("%v", a.Header)
			}
		}
		w.want(w.call(method, w.admin+path, "", field("Authorization", "bearer "+token), field("Host", "forebay.internal")), 200)
	}
	w.problem(w.tune(`{"burst":2}`), http.StatusUnauthorized, api.CodeInvalidCredentials)
	w.want(w.call("GET", w.admin+"/livez", ""), 200)
	w.want(w.call("GET", w.admin+"/readyz", ""), 200)
}

func TestNoPageOfAnotherSiteReachesTheAdminAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	host := strings.TrimPrefix(w.admin, "http://")
	for name, fields := range map[string][][2]string{
		"cross-site":          {field("Sec-Fetch-Site", "cross-site")},
		"same site":           {field("Sec-Fetch-Site", "same-site")},
		"another origin":      {field("Origin", "https://evil.example")},
		"null origin":         {field("Origin", "null")},
		"a name that rebinds": {field("Host", "evil.example:8081")},
	} {
		t.Run(name, func(t *testing.T) {
			w.problem(w.tune(`{"burst":2}`, fields...), http.StatusForbidden, api.CodeCrossSite)
		})
	}
	w.problem(w.call("GET", w.admin+"/admin/v1/backends", "", field("Host", "evil.example")), http.StatusForbidden, api.CodeCrossSite)
	for _, good := range [][2]string{field("Origin", "http://"+host), field("Sec-Fetch-Site", "same-origin"), field("Host", "localhost:8081"), field("Host", "[::1]:8081"), field("Host", "[::1]")} {
		w.want(w.tune(`{"burst":2}`, good), 200)
	}
}

func TestWhoTunesIsAName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for given, want := range map[string]string{"maria": "maria", "ops team": "ops team", strings.Repeat("x", 65): "127.0.0.1", "ü": "127.0.0.1"} {
		if b := w.backendOf(w.want(w.tune(`{"burst":2}`, field("Forebay-Operator", given)), 200)); b.TunedBy != want {
			t.Errorf("%q: tuned by %q, want %q", given, b.TunedBy, want)
		}
	}
}

package httpapi_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/testforebay"
)

// says checks fields of an answer.
func (w *world) says(a answer, fields map[string]string) {
	w.Helper()
	for name, want := range fields {
		if got := a.Header.Get(name); got != want {
			w.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestAFreshAnswerNeedsNoNewWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = append(s.Pro, perClient("ten", 10, time.Hour))
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operation(w.Shared).Overload.FreshFor = time.Minute
		}
	})
	w.Remember(w.Shared, "", `{"a":1,"b":2}`,
		cache.Answer{Status: 201, ContentType: "image/png", Body: []byte("\x89PNG\xff"),
			Age: 10 * time.Second})
	for range 3 {
		a := w.Want(w.Submit(w.Shared, `{ "b":2, "a":1 }`, key(keyA)), http.StatusOK)
		if string(a.Text) != "\x89PNG\xff" {
			t.Errorf("body %q", a.Text)
		}
		w.says(a, map[string]string{"Content-Type": "image/png", "Cache-Control": "no-store",
			"Forebay-Decision":       "accepted",
			"X-Content-Type-Options": "nosniff", "Location": "", "Retry-After": "",
			"X-RateLimit-Remaining": "10"})
		age, cached := a.Header.Get("Age"), a.Header.Get("Cache-Status")
		if age+cached != "10forebay; hit; ttl=50" && age+cached != "11forebay; hit; ttl=49" {
			t.Errorf("Age: %s, Cache-Status: %s", age, cached)
		}
	}
	if n := w.Accepted(); n != 0 {
		t.Errorf("%d jobs", n)
	}
	// It isn't served to a client that wants a new one, or if it is too old.
	for _, wish := range []string{"no-cache", "no-store"} {
		w.Want(w.Submit(w.Shared, `{"a":1,"b":2}`, key(keyA), field("Cache-Control", wish)),
			http.StatusAccepted)
	}
	w.Remember(w.Shared, "", `"old"`,
		cache.Answer{Status: 200, Body: []byte("old"), Age: 61 * time.Second})
	w.Want(w.Submit(w.Shared, `"old"`, key(keyA)), http.StatusAccepted)

	for name, want := range map[string]string{
		`forebay_admission_decisions_total{decision="accepted",operation="` + w.Shared +
			`",reason="fresh"}`: "3",
		`forebay_cache_requests_total{operation="` + w.Shared +
			`",result="hit"}`: "3",
		`forebay_cache_requests_total{operation="` + w.Shared +
			`",result="miss"}`: "1",
		`forebay_cache_requests_total{operation="` + w.Shared +
			`",result="stale"}`: "0",
		`forebay_cache_served_bytes_total{operation="` + w.Shared +
			`"}`: "15",
		`forebay_cache_requests_total{operation="` + w.Report +
			`",result="hit"}`: "0",
	} {
		if got := w.Metric(name); got != want {
			t.Errorf("%s: %q, want %s", name, got, want)
		}
	}
}

// A duplicate request gets its job, even if there is a fresh answer.
func TestAKeysJobGoesBeforeAFreshAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operation(w.Shared).Overload.FreshFor = time.Hour
		}
	})
	id := w.Job(w.Want(w.Submit(w.Shared, `1`, key(keyA), idempotent("k")), http.StatusAccepted)).ID
	w.Remember(w.Shared, "", `1`, cache.Answer{Status: 200, Body: []byte("fresh")})
	if again := w.Job(w.Want(w.Submit(w.Shared, `1`, key(keyA), idempotent("k")),
		http.StatusAccepted)); again.ID != id {
		t.Errorf("job %s, want %s", again.ID, id)
	}
	// A fresh answer leaves no trace of its key.
	w.Want(w.Submit(w.Shared, `1`, key(keyA), idempotent("other")), http.StatusOK)
	w.Want(w.Submit(w.Shared, `2`, key(keyA), idempotent("other")), http.StatusAccepted)
}

// Case C110, of fresh answers.
func TestAFreshAnswerIsNobodyElses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operation(w.Report).Overload.FreshFor = time.Hour
		}
	})
	w.Remember(w.Report, degrade.Policy{}.Scope(w.ClientA(), "pro"), `1`,
		cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("A's")})
	w.Want(w.Submit(w.Report, `1`, key(keyA)), http.StatusOK)
	w.Want(w.Submit(w.Report, `1`, key(keyB)), http.StatusAccepted)
	w.Want(w.Submit(w.Report, `1`, from("192.0.2.9")), http.StatusAccepted)
}

func TestOnlyIfCachedMakesNoWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = append(s.Pro, perClient("ten", 10, time.Hour))
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operation(w.Shared).Overload.FreshFor = time.Minute
			// it has stored answers, and serves none stale
			c.Operation(w.Report).Overload.Steps = []degrade.Step{{Kind: degrade.Reject}}
		}
	})
	w.Remember(w.Shared, "", `"fresh"`, cache.Answer{Status: 200, Body: []byte("fresh")})
	w.Remember(w.Shared, "", `"stale"`,
		cache.Answer{Status: 200, Body: []byte("stale"), Age: 10 * time.Minute})
	w.Remember(w.Report, degrade.Policy{}.Scope(w.ClientA(), "pro"), `1`,
		cache.Answer{Status: 200, Body: []byte("stale")})
	only := field("Cache-Control", "only-if-cached")

	w.says(w.Want(w.Submit(w.Shared, `"fresh"`, key(keyA), only), 200),
		map[string]string{"Forebay-Decision": "accepted"})
	a := w.Want(w.Submit(w.Shared, `"stale"`, key(keyA), only), 200)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="only_if_cached"`,
		"Age": "600", "Cache-Status": "forebay; hit; ttl=-540; detail=degraded"})
	for _, refused := range []answer{
		w.Submit(w.Shared, `"none"`, key(keyA), only),
		w.Submit(w.Shared, `"stale"`, key(keyA),
			field("Cache-Control", "only-if-cached, max-stale=60")),
		w.Submit(w.Shared, `"fresh"`, key(keyA),
			field("Cache-Control", "only-if-cached, no-cache")),
		w.Submit(w.Report, `1`, key(keyA), only),
		w.Submit(w.Plain, `1`, key(keyA), only),
	} {
		w.Problem(refused, http.StatusGatewayTimeout, api.CodeNotCached)
		w.says(refused,
			map[string]string{"Forebay-Decision": `rejected;reason="not_cached"`, "Retry-After": "",
				"X-RateLimit-Remaining": "10"})
	}
	if n := w.Accepted(); n != 0 {
		t.Errorf("%d jobs", n)
	}
}

// sicken has the backend answer a call with 429: its gate closes for ten minutes.
func (w *world) sicken() {
	w.Helper()
	id := w.Job(w.Want(w.Submit(w.Inner, `"sicken"`, key(keyB)), http.StatusAccepted)).ID
	w.Settle(leaky.Settlement{Ticket: w.Start(id), To: jobs.Waiting, Sign: leaky.Throttled,
		Gate: 10 * time.Minute, Took: time.Millisecond})
}

// health has the config know of its backend's health.
func health(w *testforebay.World, c *testforebay.Config) {
	healths := leaky.NewHealths(map[string]*leaky.Line{w.Backend: w.Line})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); healths.Run(ctx) }()
	w.Cleanup(func() { stop(); <-ended })
	c.Enter.Health = healths
}

// While the backend is sick, the line is for requests without a stale answer.
func TestASickBackendIsSpared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = append(s.Pro, perClient("ten", 10, time.Hour))
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			health(w, c)
			o := c.Operation(w.Shared)
			o.Overload.Sick, o.Overload.FreshFor,
				o.Overload.Refresh = degrade.Sick{On: true, Below: 0.5}, time.Minute, true
		}
	})
	w.Remember(w.Shared, "", `"stale"`,
		cache.Answer{Status: 200, Body: []byte("stale"), Age: 10 * time.Minute})
	w.Remember(w.Report, degrade.Policy{}.Scope(w.ClientA(), "pro"), `"stale"`,
		cache.Answer{Status: 200, Body: []byte("stale")})
	w.Want(w.Submit(w.Shared, `"stale"`, key(keyA)), http.StatusAccepted) // it is well
	w.sicken()
	before := w.Accepted()
	w.Eventually("the closed gate is noticed",
		func() bool { return w.Config.Enter.Health.Sick(w.Backend, 0.5) })

	a := w.Want(w.Submit(w.Shared, `"stale"`, key(keyA)), 200)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="backend_sick"`, "Age": "600",
		"Cache-Status":          "forebay; hit; ttl=-540; detail=degraded",
		"X-RateLimit-Remaining": "9"})
	if string(a.Text) != "stale" {
		t.Errorf("body %q", a.Text)
	}
	if n := w.Accepted(); n != before {
		t.Errorf("%d jobs were made", n-before)
	}
	w.Want(w.Submit(w.Shared, `"stale"`, key(keyA), field("Cache-Control", "no-cache")),
		http.StatusAccepted)
	w.Want(w.Submit(w.Shared, `"unknown"`, key(keyA)), http.StatusAccepted)
	// it doesn't degrade for that
	w.Want(w.Submit(w.Report, `"stale"`, key(keyA)), http.StatusAccepted)
	if got := w.Metric(`forebay_degraded_oldest_age_seconds{operation="` + w.Shared +
		`"}`); got < "600" || got > "660" {
		t.Errorf("oldest age %q", got)
	}
	if got := w.Metric(`forebay_admission_decisions_total{decision="degraded",operation="` +
		w.Shared + `",reason="backend_sick"}`); got != "1" {
		t.Errorf("masked: %q", got)
	}
}

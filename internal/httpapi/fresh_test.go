package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// operation is one of the config's, to be changed.
func (c *worldConfig) operation(name string) *admission.Operation {
	i := slices.IndexFunc(c.enter.Operations, func(o admission.Operation) bool { return o.Name == name })
	return &c.enter.Operations[i]
}

// metric reads one series off the metrics page; "": it isn't there.
func (w *world) metric(name string) string {
	w.Helper()
	for line := range strings.Lines(string(w.metrics())) {
		if value, is := strings.CutPrefix(line, name+" "); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

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
		s.pro = append(s.pro, perClient("ten", 10, time.Hour))
		s.adjust = func(w *world, c *worldConfig) { c.operation(w.shared).Overload.FreshFor = time.Minute }
	})
	w.remember(w.shared, "", `{"a":1,"b":2}`, cache.Answer{Status: 201, ContentType: "image/png", Body: []byte("\x89PNG\xff"), Age: 10 * time.Second})
	for range 3 {
		a := w.want(w.submit(w.shared, `{ "b":2, "a":1 }`, key(keyA)), http.StatusOK)
		if string(a.body) != "\x89PNG\xff" {
			t.Errorf("body %q", a.body)
		}
		w.says(a, map[string]string{"Content-Type": "image/png", "Cache-Control": "no-store", "Forebay-Decision": "accepted",
			"X-Content-Type-Options": "nosniff", "Location": "", "Retry-After": "", "X-RateLimit-Remaining": "10"})
		age, cached := a.Header.Get("Age"), a.Header.Get("Cache-Status")
		if age+cached != "10forebay; hit; ttl=50" && age+cached != "11forebay; hit; ttl=49" {
			t.Errorf("Age: %s, Cache-Status: %s", age, cached)
		}
	}
	if n := w.count(); n != 0 {
		t.Errorf("%d jobs", n)
	}
	// Not to who wants a new one, nor where it is too old.
	for _, wish := range []string{"no-cache", "no-store"} {
		w.want(w.submit(w.shared, `{"a":1,"b":2}`, key(keyA), field("Cache-Control", wish)), http.StatusAccepted)
	}
	w.remember(w.shared, "", `"old"`, cache.Answer{Status: 200, Body: []byte("old"), Age: 61 * time.Second})
	w.want(w.submit(w.shared, `"old"`, key(keyA)), http.StatusAccepted)

	for name, want := range map[string]string{
		`forebay_admission_decisions_total{decision="accepted",operation="` + w.shared + `",reason="fresh"}`: "3",
		`forebay_cache_requests_total{operation="` + w.shared + `",result="hit"}`:                            "3",
		`forebay_cache_requests_total{operation="` + w.shared + `",result="miss"}`:                           "1",
		`forebay_cache_requests_total{operation="` + w.shared + `",result="stale"}`:                          "0",
		`forebay_cache_served_bytes_total{operation="` + w.shared + `"}`:                                     "15",
		`forebay_cache_requests_total{operation="` + w.report + `",result="hit"}`:                            "0",
	} {
		if got := w.metric(name); got != want {
			t.Errorf("%s: %q, want %s", name, got, want)
		}
	}
}

// Who sends an Idempotency-Key again asks for its job, whatever else there is.
func TestAKeysJobGoesBeforeAFreshAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.adjust = func(w *world, c *worldConfig) { c.operation(w.shared).Overload.FreshFor = time.Hour }
	})
	id := w.job(w.want(w.submit(w.shared, `1`, key(keyA), idempotent("k")), http.StatusAccepted)).ID
	w.remember(w.shared, "", `1`, cache.Answer{Status: 200, Body: []byte("fresh")})
	if again := w.job(w.want(w.submit(w.shared, `1`, key(keyA), idempotent("k")), http.StatusAccepted)); again.ID != id {
		t.Errorf("job %s, want %s", again.ID, id)
	}
	// A fresh answer leaves no trace of its key.
	w.want(w.submit(w.shared, `1`, key(keyA), idempotent("other")), http.StatusOK)
	w.want(w.submit(w.shared, `2`, key(keyA), idempotent("other")), http.StatusAccepted)
}

// Case C110, of fresh answers.
func TestAFreshAnswerIsNobodyElses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.adjust = func(w *world, c *worldConfig) { c.operation(w.report).Overload.FreshFor = time.Hour }
	})
	w.remember(w.report, degrade.Policy{}.Scope(w.clientA(), "pro"), `1`, cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("A's")})
	w.want(w.submit(w.report, `1`, key(keyA)), http.StatusOK)
	w.want(w.submit(w.report, `1`, key(keyB)), http.StatusAccepted)
	w.want(w.submit(w.report, `1`, from("192.0.2.9")), http.StatusAccepted)
}

func TestOnlyIfCachedMakesNoWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.pro = append(s.pro, perClient("ten", 10, time.Hour))
		s.adjust = func(w *world, c *worldConfig) {
			c.operation(w.shared).Overload.FreshFor = time.Minute
			c.operation(w.report).Overload.Steps = []degrade.Step{{Kind: degrade.Reject}} // it has stored answers, and serves none stale
		}
	})
	w.remember(w.shared, "", `"fresh"`, cache.Answer{Status: 200, Body: []byte("fresh")})
	w.remember(w.shared, "", `"stale"`, cache.Answer{Status: 200, Body: []byte("stale"), Age: 10 * time.Minute})
	w.remember(w.report, degrade.Policy{}.Scope(w.clientA(), "pro"), `1`, cache.Answer{Status: 200, Body: []byte("stale")})
	only := field("Cache-Control", "only-if-cached")

	w.says(w.want(w.submit(w.shared, `"fresh"`, key(keyA), only), 200), map[string]string{"Forebay-Decision": "accepted"})
	a := w.want(w.submit(w.shared, `"stale"`, key(keyA), only), 200)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="only_if_cached"`, "Age": "600", "Cache-Status": "forebay; hit; ttl=-540; detail=degraded"})
	for _, refused := range []answer{
		w.submit(w.shared, `"none"`, key(keyA), only),
		w.submit(w.shared, `"stale"`, key(keyA), field("Cache-Control", "only-if-cached, max-stale=60")),
		w.submit(w.shared, `"fresh"`, key(keyA), field("Cache-Control", "only-if-cached, no-cache")),
		w.submit(w.report, `1`, key(keyA), only),
		w.submit(w.plain, `1`, key(keyA), only),
	} {
		w.problem(refused, http.StatusGatewayTimeout, api.CodeNotCached)
		w.says(refused, map[string]string{"Forebay-Decision": `rejected;reason="not_cached"`, "Retry-After": "", "X-RateLimit-Remaining": "10"})
	}
	if n := w.count(); n != 0 {
		t.Errorf("%d jobs", n)
	}
}

// sicken has the backend answer a call with 429: its gate closes for ten minutes.
func (w *world) sicken() {
	w.Helper()
	id := w.job(w.want(w.submit(w.inner, `"sicken"`, key(keyB)), http.StatusAccepted)).ID
	w.settle(leaky.Settlement{Ticket: w.start(id), To: jobs.Waiting, Sign: leaky.Throttled, Gate: 10 * time.Minute, Took: time.Millisecond})
}

// health has the config know of its backend's health.
func (w *world) health(c *worldConfig) {
	healths := leaky.NewHealths(map[string]*leaky.Line{w.backend: w.line})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); healths.Run(ctx) }()
	w.Cleanup(func() { stop(); <-ended })
	c.enter.Health = healths
}

// While the backend is sick, the line is for what has no stale answer.
func TestASickBackendIsSpared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.pro = append(s.pro, perClient("ten", 10, time.Hour))
		s.adjust = func(w *world, c *worldConfig) {
			w.health(c)
			o := c.operation(w.shared)
			o.Overload.Sick, o.Overload.FreshFor, o.Overload.Refresh = degrade.Sick{On: true, Below: 0.5}, time.Minute, true
		}
	})
	w.remember(w.shared, "", `"stale"`, cache.Answer{Status: 200, Body: []byte("stale"), Age: 10 * time.Minute})
	w.remember(w.report, degrade.Policy{}.Scope(w.clientA(), "pro"), `"stale"`, cache.Answer{Status: 200, Body: []byte("stale")})
	w.want(w.submit(w.shared, `"stale"`, key(keyA)), http.StatusAccepted) // it is well
	w.sicken()
	before := w.count()
	w.eventually("the closed gate is noticed", func() bool { return w.config.enter.Health.Sick(w.backend, 0.5) })

	a := w.want(w.submit(w.shared, `"stale"`, key(keyA)), 200)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="backend_sick"`, "Age": "600", "Cache-Status": "forebay; hit; ttl=-540; detail=degraded",
		"X-RateLimit-Remaining": "9"})
	if string(a.body) != "stale" {
		t.Errorf("body %q", a.body)
	}
	if n := w.count(); n != before {
		t.Errorf("%d jobs were made", n-before)
	}
	w.want(w.submit(w.shared, `"stale"`, key(keyA), field("Cache-Control", "no-cache")), http.StatusAccepted)
	w.want(w.submit(w.shared, `"unknown"`, key(keyA)), http.StatusAccepted)
	w.want(w.submit(w.report, `"stale"`, key(keyA)), http.StatusAccepted) // it doesn't degrade for that
	if got := w.metric(`forebay_degraded_oldest_age_seconds{operation="` + w.shared + `"}`); got < "600" || got > "660" {
		t.Errorf("oldest age %q", got)
	}
	if got := w.metric(`forebay_admission_decisions_total{decision="degraded",operation="` + w.shared + `",reason="backend_sick"}`); got != "1" {
		t.Errorf("masked: %q", got)
	}
}

func TestTheOldestAgeIsForgottenAfterFiveMinutes(t *testing.T) {
	t.Parallel()
	var o oldest
	now := time.Now()
	if o.age(now) != 0 {
		t.Error("older than nothing")
	}
	o.note(time.Hour, now)
	o.note(time.Minute, now)
	now = now.Add(2 * time.Minute)
	o.note(2*time.Hour, now)
	o.note(3*time.Minute, now.Add(2*time.Minute))
	for after, want := range map[time.Duration]time.Duration{
		0: 2 * time.Hour, 4*time.Minute + 40*time.Second: 2 * time.Hour, 5*time.Minute + 10*time.Second: 3 * time.Minute, 8 * time.Minute: 0,
	} {
		if got := o.age(now.Add(after)); got != want {
			t.Errorf("%s later: %s, want %s", after, got, want)
		}
	}
}

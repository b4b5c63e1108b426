package httpapi_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/limits"
)

// Case C49: for all algorithms, on 200, 202 and 429, in both dialects. (Limits on jobs at one time
// have no window: see algorithms_test.go.)
func TestRateLimitFieldsAreInTheirUnits(t *testing.T) {
	t.Parallel()
	kinds := map[string]limits.Limit{
		"bucket": {Name: "l", Algorithm: limits.TokenBucket, Per: limits.PerClient, Amount: 4,
			Window: time.Minute, Burst: 2},
		"bucket-one": {Name: "l", Algorithm: limits.TokenBucket, Per: limits.PerClient, Amount: 1,
			Window: time.Minute},
		"counter": perClient("l", 2, time.Minute),
		"leaky": {Name: "l", Algorithm: limits.LeakyBucket, Per: limits.PerClient, Amount: 4,
			Window: time.Minute, Burst: 2},
		"log": {Name: "l", Algorithm: limits.SlidingWindowLog, Per: limits.PerClient,
			Amount: 2, Window: time.Minute},
		"fixed": {Name: "l", Algorithm: limits.FixedWindow, Per: limits.PerClient, Amount: 2,
			Window: 24 * time.Hour},
	}
	for name, limit := range kinds {
		for _, legacy := range []httpapi.LegacyHeaders{"", httpapi.Epoch, httpapi.Delta,
			httpapi.Off} {
			t.Run(name+" "+string(legacy), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, func(s *setup) { s.Pro, s.Legacy = []limits.Limit{limit}, legacy })
				seen := map[int]bool{}
				for range 3 {
					a := w.Submit(w.Plain, `1`, key(keyA))
					seen[a.StatusCode] = true
					checkFields(t, a, limit, legacy)
				}
				a := w.Want(w.Get("/v1/rate-limits", key(keyA)), 200)
				checkFields(t, a, limit, legacy)
				if !seen[202] || !seen[429] {
					t.Errorf("statuses %v, want both 202 and 429", seen)
				}
			})
		}
	}
}

var rateLimitItem = regexp.MustCompile(`^"l";r=([0-9]+);t=([0-9]+)$`)

func checkFields(t *testing.T, a answer, limit limits.Limit, legacy httpapi.LegacyHeaders) {
	t.Helper()
	number := func(name string) int64 {
		t.Helper()
		n, err := strconv.ParseInt(a.Header.Get(name), 10, 64)
		if err != nil || n < 0 {
			t.Errorf("%s: %q, want a whole number", name, a.Header.Get(name))
		}
		return n
	}
	window := int64(limit.Window / time.Second)
	if got, want := a.Header.Get("RateLimit-Policy"),
		fmt.Sprintf(`"l";q=%d;w=%d`, limit.Amount, window); got != want {
		t.Errorf("RateLimit-Policy: %s, want %s", got, want)
	}
	item := rateLimitItem.FindStringSubmatch(a.Header.Get("RateLimit"))
	if item == nil {
		t.Fatalf("RateLimit: %q", a.Header.Get("RateLimit"))
	}
	r, _ := strconv.ParseInt(item[1], 10, 64)
	within, _ := strconv.ParseInt(item[2], 10, 64)
	// The draft, section 6: what is advertised is never a burst over the policy.
	longest := window
	if limit.Algorithm == limits.SlidingWindowCounter && r == 0 {
		// it takes as long until a full window counts little enough beside the next
		longest = 2 * window
	}
	bucket := limit.Algorithm == limits.TokenBucket || limit.Algorithm == limits.LeakyBucket
	if within > longest || r > 0 && bucket && r*window > within*limit.Amount {
		t.Errorf("RateLimit %s over the policy of %d in %d s", a.Header.Get("RateLimit"),
			limit.Amount, window)
	}
	if legacy == httpapi.Off {
		for name := range a.Header {
			if strings.HasPrefix(name, "X-Ratelimit") {
				t.Errorf("%s is there", name)
			}
		}
		return
	}
	if got := number("X-RateLimit-Remaining"); got != r {
		t.Errorf("X-RateLimit-Remaining: %d beside r=%d", got, r)
	}
	if got := number("X-RateLimit-Limit"); got != limit.Capacity() {
		t.Errorf("X-RateLimit-Limit: %d, want %d", got, limit.Capacity())
	}
	reset := number("X-RateLimit-Reset")
	if legacy != httpapi.Delta {
		reset -= time.Now().Unix()
	}
	if reset < -1 || reset > longest+1 {
		t.Errorf("reset in %d s, with a window of %d", reset, window)
	}
	if a.StatusCode == http.StatusTooManyRequests {
		if wait := number("Retry-After"); wait < 1 || reset-wait > 1 || wait-reset > 1 {
			t.Errorf("Retry-After %d and reset in %d s", wait, reset)
		}
	}
}

func TestRateLimitFieldsStandOnEveryAnswerToAnIdentifiedCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{perClient("per-minute", 60, time.Minute)}
	})
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	for _, a := range []answer{
		w.Submit(w.Plain, `1`, key(keyA), idempotent("k")),
		w.Submit(w.Plain, `1`, key(keyA), idempotent("k")),
		w.Call("POST", w.URL+"/v1/jobs", `{`, key(keyA)),
		w.Call("POST", w.URL+"/v1/jobs", `{}`, key(keyA)),
		w.Call("POST", w.URL+"/v1/jobs", `{}`, key(keyA), field("Content-Type", "text/plain")),
		w.Submit("none", `1`, key(keyA)),
		w.Submit(w.Plain, `1`, key(keyA), idempotent("a b")),
		w.Get("/v1/jobs/"+id, key(keyA)),
		w.Get("/v1/jobs/"+id, key(keyA), field("If-None-Match", "*")),
		w.Get("/v1/jobs/x", key(keyA)),
		w.Get("/v1/jobs/"+id+"/result", key(keyA)),
		w.Get("/v1/rate-limits", key(keyA)),
		w.Call("HEAD", w.URL+"/v1/jobs/"+id, "", key(keyA)),
		w.Get("/v1/operations", key(keyA)),
		w.Get("/docs", key(keyA)),
		w.Get("/v1/check", key(keyA)),
		w.Get("/v1/check?operation=none", key(keyA)),
		w.Call("PUT", w.URL+"/v1/jobs", "", key(keyA)),
		w.Call("POST", w.URL+"/v1/rate-limits", `{}`, key(keyA)),
		w.Call("OPTIONS", w.URL+"/v1/jobs/"+id, "", key(keyA)),
		w.Call("DELETE", w.URL+"/v1/jobs/"+id, "", key(keyA)),
	} {
		if got := a.Header.Get("RateLimit"); !strings.HasPrefix(got, `"per-minute";r=5`) {
			t.Errorf("%s %s → %d: RateLimit: %q", a.Request.Method, a.Request.URL.Path,
				a.StatusCode, got)
		}
	}
	for _, a := range []answer{w.Get("/livez"), w.Get("/readyz"), w.Get("/openapi.yaml"),
		w.Get("/nowhere", key(keyA)), w.Get("/v1/rate-limits", key("nope")),
		w.Call("PUT", w.URL+"/v1/jobs", "", key("nope")),
		w.Call("PUT", w.URL+"/livez", "", key(keyA))} {
		if a.Header.Get("RateLimit") != "" || a.Header.Get("RateLimit-Policy") != "" {
			t.Errorf("%s → %d has RateLimit fields: nobody asked whose", a.Request.URL.Path,
				a.StatusCode)
		}
	}
}

func TestRateLimitsListsWhatHoldsForTheCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{perClient("per-minute", 60, time.Minute)}
		s.Report = []limits.Limit{{Name: "report-rate", Algorithm: limits.TokenBucket,
			Per: limits.PerClient, Amount: 10, Window: 90 * time.Minute, Burst: 3}}
		s.Global = []limits.Limit{{Name: "each", Algorithm: limits.TokenBucket,
			Per: limits.PerClientOperation, Amount: 5, Window: time.Hour}}
	})
	w.Want(w.Submit(w.Report, `1`, key(keyA)), http.StatusAccepted)
	for range 2 { // asking spends nothing
		var got api.RateLimits
		strictly(t, "rate-limits", w.Want(w.Get("/v1/rate-limits", key(keyA)), 200).Text, &got)
		held := map[string]api.Limit{}
		for _, l := range got.Limits {
			if l.Reset < time.Now().Unix()-1 || !l.Enforced {
				t.Errorf("limit = %+v", l)
			}
			held[l.Name+" "+l.Operation] = l
		}
		if len(held) != 6 {
			t.Errorf("%d limits, want per-minute, report-rate and each of four operations: %v",
				len(held), held)
		}
		if l := held["per-minute "]; l.Remaining != 59 || l.Limit != 60 || l.Scope != "client" ||
			l.Window != "1m" || l.Algorithm != "sliding-window-counter" {
			t.Errorf("limit = %+v", l)
		}
		if l := held["report-rate "+w.Report]; l.Remaining != 2 || l.Limit != 10 || l.Burst != 3 ||
			l.Window != "1h30m" {
			t.Errorf("limit = %+v", l)
		}
		if l := held["each "+w.Report]; l.Remaining != 4 || l.Scope != "client+operation" {
			t.Errorf("limit = %+v", l)
		}
		if l := held["each "+w.Plain]; l.Remaining != 5 {
			t.Errorf("limit = %+v", l)
		}
	}
}

func TestARequestIDIsTakenOverOrMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, good := range []string{"a", "req_1.2-Z", strings.Repeat("x", 64)} {
		if got := w.Get("/livez",
			field("X-Request-Id", good)).Header.Get("X-Request-Id"); got != good {
			t.Errorf("%q became %q", good, got)
		}
	}
	seen := map[string]bool{}
	for _, bad := range []string{"", "a b", `"><script>`, "ü", strings.Repeat("x", 65)} {
		got := w.Get("/livez", field("X-Request-Id", bad)).Header.Get("X-Request-Id")
		if got == bad || len(got) < 20 || seen[got] {
			t.Errorf("%q became %q", bad, got)
		}
		seen[got] = true
	}
}

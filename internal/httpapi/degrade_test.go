package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/testforebay"
)

// warmCounter counts the answers that were taken into memory.
type warmCounter struct {
	testforebay.Answers
	done *atomic.Int64
}

func (c warmCounter) Warm(ctx context.Context, key string) {
	c.Answers.Warm(ctx, key)
	c.done.Add(1)
}

// A process remembers the answers that it served: while the store is unavailable, the next client
// with the same request gets one.
func TestAResultThatWasServedOutlivesTheStore(t *testing.T) {
	t.Parallel()
	var warmed atomic.Int64
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			memory := cache.NewMemory(w.Cache, 0, w.Store.Healthy)
			w.Cleanup(memory.Close)
			c.Answers = warmCounter{degrade.New(memory), &warmed}
		}
	})
	for _, operation := range []string{w.Shared, w.Plain} {
		id := w.Job(w.Want(w.Submit(operation, `{"a":1}`, key(keyA), idempotent("k")),
			http.StatusAccepted)).ID
		w.Remember(operation, "", `{"a":1}`,
			cache.Answer{Status: 201, ContentType: "text/plain", Body: []byte("result")})
		w.Succeed(id, 201, "text/plain", []byte("result"))
		w.Want(w.Submit(operation, `{"a":1}`, key(keyA), idempotent("k"),
			field("Prefer", "wait=20")), 200)
	}
	fetched := w.Job(w.Want(w.Submit(w.Shared, `{"fetched":1}`, key(keyA)), http.StatusAccepted)).ID
	w.Remember(w.Shared, "", `{"fetched":1}`,
		cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("fetched")})
	w.Succeed(fetched, 200, "text/plain", []byte("fetched"))
	w.Want(w.Get("/v1/jobs/"+fetched+"/result", key(keyA)), 200)
	// They are taken into memory behind the client's back, which ends with the store's word.
	w.Eventually("both results are in memory", func() bool { return warmed.Load() == 2 })
	w.Store.Down.Store(true)
	if a := w.Want(w.Submit(w.Shared, `{"fetched":1}`, key(keyB)),
		200); string(a.Text) != "fetched" {
		t.Errorf("%q", a.Text)
	}
	a := w.Want(w.Submit(w.Shared, `{"a":1}`, key(keyB)), 200)
	if string(a.Text) != "result" || a.Header.Get("Content-Type") != "text/plain" ||
		a.Header.Get("Forebay-Decision") != `degraded;reason="store_unavailable"` {
		t.Errorf("%q %v", a.Text, a.Header)
	}
	w.Problem(w.Submit(w.Shared, `{"a":2}`, key(keyB)), http.StatusServiceUnavailable,
		api.CodeStore)
	// its config permits no stale answers
	w.Problem(w.Submit(w.Plain, `{"a":1}`, key(keyA)), http.StatusServiceUnavailable, api.CodeStore)
}

func TestAnOverloadedOperationAnswersWithItsLastGoodResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Line.Capacity = 1 })
	w.Want(w.Submit(w.Plain, `0`, key(keyB)), http.StatusAccepted)
	w.Remember(w.Shared, "", `{"a":1,"b":2}`,
		cache.Answer{Status: 201, ContentType: "image/png", Body: []byte("\x89PNG\xff"),
			Age: 1012 * time.Second})

	a := w.Want(w.Submit(w.Shared, `{ "b":2, "a":1 }`, key(keyA)), 200)
	if string(a.Text) != "\x89PNG\xff" {
		t.Errorf("body %q", a.Text)
	}
	for name, want := range map[string]string{
		"Content-Type": "image/png", "Age": "1012",
		"Cache-Status": "forebay; hit; ttl=-1012; detail=degraded", "Cache-Control": "no-store",
		"Forebay-Decision": `degraded;reason="line_full"`, "X-Content-Type-Options": "nosniff",
		"Retry-After": "", "Location": "",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	// The request's own wish goes before.
	for _, wish := range []string{"no-cache", "no-store", "max-stale=1000"} {
		w.Problem(w.Submit(w.Shared, `{"a":1,"b":2}`, key(keyA), field("Cache-Control", wish)),
			http.StatusTooManyRequests, api.CodeLineFull)
	}
	w.Want(w.Submit(w.Shared, `{"a":1,"b":2}`, key(keyA), field("Cache-Control", "max-stale=2000")),
		200)
	// Another payload, and an operation without stale answers.
	w.Problem(w.Submit(w.Shared, `{"a":1,"b":2.0}`, key(keyA)), http.StatusTooManyRequests,
		api.CodeLineFull)
	w.Problem(w.Submit(w.Plain, `{"a":1,"b":2}`, key(keyA)), http.StatusTooManyRequests,
		api.CodeLineFull)
}

func TestALimitLeadsToTheStaleAnswerToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Report = append(s.Report, perClient("one", 1, time.Hour)) })
	w.Want(w.Submit(w.Report, `1`, key(keyA)), http.StatusAccepted)
	w.Remember(w.Report, degrade.Policy{}.Scope(w.ClientA(), "pro"), `1`,
		cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("A's")})
	a := w.Want(w.Submit(w.Report, `1`, key(keyA)), 200)
	if string(a.Text) != "A's" || a.Header.Get("Forebay-Decision") != `degraded;reason="one"` ||
		a.Header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("%q %v", a.Text, a.Header)
	}
}

// Case C110.
func TestAStaleAnswerIsNobodyElses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Line.Capacity = 1 })
	w.Want(w.Submit(w.Plain, `0`, key(keyB)), http.StatusAccepted)
	w.Remember(w.Report, degrade.Policy{}.Scope(w.ClientA(), "pro"), `1`,
		cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("A's")})

	w.Want(w.Submit(w.Report, `1`, key(keyA)), 200)
	w.Problem(w.Submit(w.Report, `1`, key(keyB)), http.StatusTooManyRequests, api.CodeLineFull)
	w.Problem(w.Submit(w.Report, `1`, from("192.0.2.9")), http.StatusTooManyRequests,
		api.CodeLineFull)
	w.Problem(w.Submit(w.Report, `1`, key("unknown")), http.StatusUnauthorized,
		api.CodeInvalidCredentials)
	w.Problem(w.Submit(w.Shared, `1`, key("unknown")), http.StatusUnauthorized,
		api.CodeInvalidCredentials)
}

func TestWithTheStoreLostAJobGoesTheWayOfTheConfig(t *testing.T) {
	t.Parallel()
	for reject, want := range map[bool]int{false: 200, true: 503} {
		t.Run(fmt.Sprint(reject), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *setup) {
				s.Adjust = func(_ *testforebay.World, c *testforebay.Config) {
					c.Enter.RejectOnFailure = reject
				}
			})
			w.Remember(w.Shared, "", `1`,
				cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("known")})
			w.Store.Down.Store(true)
			a := w.Want(w.Submit(w.Shared, `1`, key(keyA)), want)
			if want == 503 &&
				(w.Problem(a, 503, api.CodeStore).RetryAfter < 1 ||
					a.Header.Get("Forebay-Decision") != `rejected;reason="store_unavailable"`) {
				t.Errorf("%v", a.Header)
			}
		})
	}
}

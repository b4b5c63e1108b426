package httpapi

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
)

// remember stores a last good answer, as the worker does.
func (w *world) remember(operation, scope, payload string, a cache.Answer) {
	w.Helper()
	if err := w.cache.Put(context.Background(), cache.Key(operation, scope, []byte(payload)), a, time.Hour, cache.Owner{}); err != nil {
		w.Fatal(err)
	}
}

// warmCounter counts the answers that were taken into memory.
type warmCounter struct {
	wholeAnswers
	done *atomic.Int64
}

func (c warmCounter) Warm(ctx context.Context, key string) {
	c.wholeAnswers.Warm(ctx, key)
	c.done.Add(1)
}

// What this process has served it remembers: with the store lost, the next one with the same request gets it.
func TestAResultThatWasServedOutlivesTheStore(t *testing.T) {
	t.Parallel()
	var warmed atomic.Int64
	w := newWorld(t, func(s *setup) {
		s.adjust = func(w *world, c *worldConfig) {
			memory := cache.NewMemory(w.cache, 0, w.store.Healthy)
			w.Cleanup(memory.Close)
			c.Answers = warmCounter{degrade.New(memory), &warmed}
		}
	})
	for _, operation := range []string{w.shared, w.plain} {
		id := w.job(w.want(w.submit(operation, `{"a":1}`, key(keyA), idempotent("k")), http.StatusAccepted)).ID
		w.remember(operation, "", `{"a":1}`, cache.Answer{Status: 201, ContentType: "text/plain", Body: []byte("result")})
		w.succeed(id, 201, "text/plain", []byte("result"))
		w.want(w.submit(operation, `{"a":1}`, key(keyA), idempotent("k"), field("Prefer", "wait=20")), 200)
	}
	fetched := w.job(w.want(w.submit(w.shared, `{"fetched":1}`, key(keyA)), http.StatusAccepted)).ID
	w.remember(w.shared, "", `{"fetched":1}`, cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("fetched")})
	w.succeed(fetched, 200, "text/plain", []byte("fetched"))
	w.want(w.get("/v1/jobs/"+fetched+"/result", key(keyA)), 200)
	// They are taken into memory behind the client's back, which ends with the store's word.
	w.eventually("both results are in memory", func() bool { return warmed.Load() == 2 })
	w.store.down.Store(true)
	if a := w.want(w.submit(w.shared, `{"fetched":1}`, key(keyB)), 200); string(a.body) != "fetched" {
		t.Errorf("%q", a.body)
	}
	a := w.want(w.submit(w.shared, `{"a":1}`, key(keyB)), 200)
	if string(a.body) != "result" || a.Header.Get("Content-Type") != "text/plain" || a.Header.Get("Forebay-Decision") != `degraded;reason="store_unavailable"` {
		t.Errorf("%q %v", a.body, a.Header)
	}
	w.problem(w.submit(w.shared, `{"a":2}`, key(keyB)), http.StatusServiceUnavailable, api.CodeStore)
	w.problem(w.submit(w.plain, `{"a":1}`, key(keyA)), http.StatusServiceUnavailable, api.CodeStore) // its config permits no stale answers
}

func TestAnOverloadedOperationAnswersWithItsLastGoodResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.line.Capacity = 1 })
	w.want(w.submit(w.plain, `0`, key(keyB)), http.StatusAccepted)
	w.remember(w.shared, "", `{"a":1,"b":2}`, cache.Answer{Status: 201, ContentType: "image/png", Body: []byte("\x89PNG\xff"), Age: 1012 * time.Second})

	a := w.want(w.submit(w.shared, `{ "b":2, "a":1 }`, key(keyA)), 200)
	if string(a.body) != "\x89PNG\xff" {
		t.Errorf("body %q", a.body)
	}
	for name, want := range map[string]string{
		"Content-Type": "image/png", "Age": "1012", "Cache-Status": "forebay; hit; ttl=-1012; detail=degraded", "Cache-Control": "no-store",
		"Forebay-Decision": `degraded;reason="line_full"`, "X-Content-Type-Options": "nosniff", "Retry-After": "", "Location": "",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	// The request's own wish goes before.
	for _, wish := range []string{"no-cache", "no-store", "max-stale=1000"} {
		w.problem(w.submit(w.shared, `{"a":1,"b":2}`, key(keyA), field("Cache-Control", wish)), http.StatusTooManyRequests, api.CodeLineFull)
	}
	w.want(w.submit(w.shared, `{"a":1,"b":2}`, key(keyA), field("Cache-Control", "max-stale=2000")), 200)
	// Another payload, and an operation without stale answers.
	w.problem(w.submit(w.shared, `{"a":1,"b":2.0}`, key(keyA)), http.StatusTooManyRequests, api.CodeLineFull)
	w.problem(w.submit(w.plain, `{"a":1,"b":2}`, key(keyA)), http.StatusTooManyRequests, api.CodeLineFull)
}

func TestALimitLeadsToTheStaleAnswerToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.report = append(s.report, perClient("one", 1, time.Hour)) })
	w.want(w.submit(w.report, `1`, key(keyA)), http.StatusAccepted)
	w.remember(w.report, degrade.Policy{}.Scope(w.clientA(), "pro"), `1`, cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("A's")})
	a := w.want(w.submit(w.report, `1`, key(keyA)), 200)
	if string(a.body) != "A's" || a.Header.Get("Forebay-Decision") != `degraded;reason="one"` || a.Header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("%q %v", a.body, a.Header)
	}
}

// Case C110.
func TestAStaleAnswerIsNobodyElses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.line.Capacity = 1 })
	w.want(w.submit(w.plain, `0`, key(keyB)), http.StatusAccepted)
	w.remember(w.report, degrade.Policy{}.Scope(w.clientA(), "pro"), `1`, cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("A's")})

	w.want(w.submit(w.report, `1`, key(keyA)), 200)
	w.problem(w.submit(w.report, `1`, key(keyB)), http.StatusTooManyRequests, api.CodeLineFull)
	w.problem(w.submit(w.report, `1`, from("192.0.2.9")), http.StatusTooManyRequests, api.CodeLineFull)
	w.problem(w.submit(w.report, `1`, key("unknown")), http.StatusUnauthorized, api.CodeInvalidCredentials)
	w.problem(w.submit(w.shared, `1`, key("unknown")), http.StatusUnauthorized, api.CodeInvalidCredentials)
}

// clientA is the name of keyA's client.
func (w *world) clientA() string {
	w.Helper()
	r, err := http.NewRequest("GET", w.url, nil)
	if err != nil {
		w.Fatal(err)
	}
	r.RemoteAddr = "127.0.0.1:1"
	r.Header.Set("X-API-Key", keyA)
	c, err := w.config.Identity.Identify(r)
	if err != nil {
		w.Fatal(err)
	}
	return c.ID
}

func TestWithTheStoreLostAJobGoesTheWayOfTheConfig(t *testing.T) {
	t.Parallel()
	for reject, want := range map[bool]int{false: 200, true: 503} {
		t.Run(fmt.Sprint(reject), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *setup) { s.adjust = func(_ *world, c *worldConfig) { c.enter.RejectOnFailure = reject } })
			w.remember(w.shared, "", `1`, cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("known")})
			w.store.down.Store(true)
			a := w.want(w.submit(w.shared, `1`, key(keyA)), want)
			if want == 503 && (w.problem(a, 503, api.CodeStore).RetryAfter < 1 || a.Header.Get("Forebay-Decision") != `rejected;reason="store_unavailable"`) {
				t.Errorf("%v", a.Header)
			}
		})
	}
}

package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/testforebay"
)

// remembering has a process serve stored answers from its memory, as they do.
func remembering(w *testforebay.World, c *testforebay.Config) {
	memory := cache.NewMemory(w.Cache, 0, w.Store.Healthy)
	w.Cleanup(memory.Close)
	c.Answers, c.Operators.Stored = degrade.New(memory), memory
}

// A purge takes the answer along that is stored to the same request, wherever it is, and no other.
func TestAPurgeTakesTheStoredAnswerAlong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Adjust = remembering })
	remembering(w.World, &w.Config)
	_, other, _ := w.Serve() // a process with a memory of its own
	cached := func(url, payload string) answer {
		return w.Call("POST", url+"/v1/jobs", `{"operation":"`+w.Report+`","payload":`+payload+`}`,
			key(keyA), field("Cache-Control", "only-if-cached"))
	}
	id := w.Job(w.Want(w.Submit(w.Report, `{"a":1}`, key(keyA)), http.StatusAccepted)).ID
	for _, payload := range []string{`{"a":1}`, `{"a":2}`} {
		w.Keep(w.Report, w.ClientA(), payload)
		for _, url := range []string{w.URL, other} {
			w.Want(cached(url, payload), 200)
		}
	}
	w.Problem(w.Call("DELETE", w.URL+"/v1/jobs/"+id+"?purge=1", "", key(keyA)), http.StatusConflict,
		api.CodeNotFinished)
	w.Want(cached(w.URL, `{"a":1}`), 200) // nothing has changed
	w.Succeed(id, 201, "text/plain", []byte("secret\n"))
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+id+"?purge=1", "", key(keyA)), http.StatusNoContent)

	w.Problem(cached(w.URL, `{"a":1}`), http.StatusGatewayTimeout, api.CodeNotCached)
	w.Eventually("the other process looks again",
		func() bool { return cached(other, `{"a":1}`).StatusCode == http.StatusGatewayTimeout })
	w.Store.Down.Store(true)
	for _, url := range []string{w.URL, other} {
		w.Problem(cached(url, `{"a":1}`), http.StatusServiceUnavailable, api.CodeStore)
		w.Want(cached(url, `{"a":2}`), 200)
	}
}

// Of a job that callers share, the answer is the one that all of them may get.
func TestAPurgedShareTakesTheStoredAnswerAlong(t *testing.T) {
	t.Parallel()
	w := coalescing(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operation(w.Shared).Coalesce = true
			remembering(w, c)
		}
	})
	a := w.Job(w.Want(w.Submit(w.Shared, `1`, key(keyA)), http.StatusAccepted)).ID
	b := w.Job(w.Want(w.Submit(w.Shared, `1`, key(keyB)), http.StatusAccepted)).ID
	w.Keep(w.Shared, w.ClientA(), `1`)
	w.Succeed(w.waiting()[0].Job.ID, 200, "text/plain", []byte("secret\n"))
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+b+"?purge=1", "", key(keyB)), http.StatusNoContent)
	w.Problem(w.Submit(w.Shared, `1`, key(keyB), field("Cache-Control", "only-if-cached")),
		http.StatusGatewayTimeout, api.CodeNotCached)
	w.Want(w.Get("/v1/jobs/"+a+"/result", key(keyA)), 200) // its own share is there
	// Issue 10, point 12: the other client, which shares the answer, still gets it; and a younger
	// one is served to all again.
	cached := field("Cache-Control", "only-if-cached")
	w.Want(w.Submit(w.Shared, `1`, key(keyA), cached), 200)
	w.Keep(w.Shared, w.ClientA(), `1`)
	w.Eventually("a younger answer is there", func() bool {
		return w.Submit(w.Shared, `1`, key(keyB), cached).StatusCode == 200
	})
}

// clinging is a Degrader that removes nothing while it is set so.
type clinging struct {
	testforebay.Answers
	clings *atomic.Bool
}

func (d clinging) Purge(ctx context.Context, p degrade.Policy, key, client string) error {
	if d.clings.Load() {
		return errors.New("the connection broke")
	}
	return d.Answers.Purge(ctx, p, key, client)
}

// Where the stored answer can't be removed, the job stays: the same call again does all.
func TestAPurgeThatCantRemoveTheAnswerIsRepeated(t *testing.T) {
	t.Parallel()
	var clings atomic.Bool
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(_ *testforebay.World, c *testforebay.Config) {
			c.Answers = clinging{c.Answers, &clings}
		}
	})
	id := w.Job(w.Want(w.Submit(w.Report, `1`, key(keyA)), http.StatusAccepted)).ID
	w.Keep(w.Report, w.ClientA(), `1`)
	w.Succeed(id, 201, "text/plain", []byte("secret\n"))
	clings.Store(true)
	purge := func() answer {
		return w.Call("DELETE", w.URL+"/v1/jobs/"+id+"?purge=1", "", key(keyA))
	}
	if p := w.Problem(purge(), http.StatusServiceUnavailable, api.CodeStore); p.RetryAfter < 1 {
		t.Errorf("%+v", p)
	}
	w.Want(w.Get("/v1/jobs/"+id+"/result", key(keyA)), 201)
	clings.Store(false)
	w.Want(purge(), http.StatusNoContent)
	w.Problem(w.Submit(w.Report, `1`, key(keyA), field("Cache-Control", "only-if-cached")),
		http.StatusGatewayTimeout, api.CodeNotCached)
}

// purging is a Line whose job is purged by another request just before one of its calls.
type purging struct {
	testforebay.Line
	before string        // "cancel", "payload", or "look": that is after so many
	looks  int64         // that go well
	looked *atomic.Int64 // how many did
}

func (l purging) at(ctx context.Context, call, id string) {
	if call == l.before {
		_, _ = l.Line.Purge(ctx, id)
	}
}

func (l purging) Look(ctx context.Context, id string) (leaky.Look, error) {
	if l.looked.Load() >= l.looks {
		l.at(ctx, "look", id)
	}
	defer l.looked.Add(1)
	return l.Line.Look(ctx, id)
}

func (l purging) Cancel(ctx context.Context, id string) (leaky.CancelOutcome, error) {
	l.at(ctx, "cancel", id)
	return l.Line.Cancel(ctx, id)
}

func (l purging) Payload(ctx context.Context, id string) ([]byte, error) {
	l.at(ctx, "payload", id)
	return l.Line.Payload(ctx, id)
}

// A job that is removed between two looks of one request still had its owner, who learns its
// outcome.
func TestAJobThatGoesMeanwhileIsToldToBeGone(t *testing.T) {
	t.Parallel()
	for query, before := range map[string][]string{"": {"cancel", "look"},
		"?purge=1": {"payload"}} {
		for _, call := range before {
			t.Run(call, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, func(s *setup) {
					s.Wrap = func(l testforebay.Line) testforebay.Line {
						return purging{l, call, 1,
							new(atomic.Int64)}
					}
				})
				id := w.Job(w.Want(w.Submit(w.Report, `1`, key(keyA)), http.StatusAccepted)).ID
				w.Succeed(id, 200, "text/plain", []byte("x"))
				w.Problem(w.Call("DELETE", w.URL+"/v1/jobs/"+id+query, "", key(keyA)),
					http.StatusGone, api.CodeJobGone)
			})
		}
	}
}

// So does a client that waits for the end of a job that ended and was purged before its watch
// looked.
func TestALongPollOfAJobThatGoesIsToldSo(t *testing.T) {
	t.Parallel()
	var looked atomic.Int64
	w := newWorld(t, func(s *setup) {
		s.Wrap = func(l testforebay.Line) testforebay.Line { return purging{l, "look", 2, &looked} }
	})
	id := w.Job(w.Want(w.Submit(w.Report, `1`, key(keyA)), http.StatusAccepted)).ID
	ticket := w.Start(id)
	answers := w.later(func() answer {
		return w.Get("/v1/jobs/"+id, key(keyA), field("Prefer", "wait=20"))
	})
	w.held(httpapi.HeldWait, 1)
	w.Eventually("it has looked", func() bool { return looked.Load() >= 2 })
	w.Settle(leaky.Settlement{Ticket: ticket, To: jobs.Succeeded, Took: time.Millisecond,
		Body: []byte("x")})
	w.Problem(w.soon(answers), http.StatusGone, api.CodeJobGone)
}

package httpapi

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
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// remembering has a process serve stored answers from its memory, as they do.
func remembering(w *world, c *worldConfig) {
	memory := cache.NewMemory(w.cache, 0, w.store.Healthy)
	w.Cleanup(memory.Close)
	c.Answers, c.Stored = degrade.New(memory), memory
}

// A purge takes the answer along that is stored to the same request, wherever it is, and no other.
func TestAPurgeTakesTheStoredAnswerAlong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.adjust = remembering })
	remembering(w, &w.config)
	_, other, _ := w.serve() // a process with a memory of its own
	cached := func(url, payload string) answer {
		return w.call("POST", url+"/v1/jobs", `{"operation":"`+w.report+`","payload":`+payload+`}`, key(keyA), field("Cache-Control", "only-if-cached"))
	}
	id := w.job(w.want(w.submit(w.report, `{"a":1}`, key(keyA)), http.StatusAccepted)).ID
	for _, payload := range []string{`{"a":1}`, `{"a":2}`} {
		w.keep(w.report, w.clientA(), payload)
		for _, url := range []string{w.url, other} {
			w.want(cached(url, payload), 200)
		}
	}
	w.problem(w.call("DELETE", w.url+"/v1/jobs/"+id+"?purge=1", "", key(keyA)), http.StatusConflict, api.CodeNotFinished)
	w.want(cached(w.url, `{"a":1}`), 200) // nothing has changed
	w.succeed(id, 201, "text/plain", []byte("secret\n"))
	w.want(w.call("DELETE", w.url+"/v1/jobs/"+id+"?purge=1", "", key(keyA)), http.StatusNoContent)

	w.problem(cached(w.url, `{"a":1}`), http.StatusGatewayTimeout, api.CodeNotCached)
	w.eventually("the other process looks again", func() bool { return cached(other, `{"a":1}`).StatusCode == http.StatusGatewayTimeout })
	w.store.down.Store(true)
	for _, url := range []string{w.url, other} {
		w.problem(cached(url, `{"a":1}`), http.StatusServiceUnavailable, api.CodeStore)
		w.want(cached(url, `{"a":2}`), 200)
	}
}

// Of a job that callers share, the answer is the one that all of them may get.
func TestAPurgedShareTakesTheStoredAnswerAlong(t *testing.T) {
	t.Parallel()
	w := coalescing(t, func(s *setup) {
		s.adjust = func(w *world, c *worldConfig) {
			c.operation(w.shared).Coalesce = true
			remembering(w, c)
		}
	})
	a := w.job(w.want(w.submit(w.shared, `1`, key(keyA)), http.StatusAccepted)).ID
	b := w.job(w.want(w.submit(w.shared, `1`, key(keyB)), http.StatusAccepted)).ID
	w.keep(w.shared, w.clientA(), `1`)
	w.succeed(w.waiting()[0].Job.ID, 200, "text/plain", []byte("secret\n"))
	w.want(w.call("DELETE", w.url+"/v1/jobs/"+b+"?purge=1", "", key(keyB)), http.StatusNoContent)
	w.problem(w.submit(w.shared, `1`, key(keyB), field("Cache-Control", "only-if-cached")), http.StatusGatewayTimeout, api.CodeNotCached)
	w.want(w.get("/v1/jobs/"+a+"/result", key(keyA)), 200) // its own share is there
	// Issue 10, point 12: the other client, which shares the answer, gets it still; and a younger one is everybody's again.
	cached := field("Cache-Control", "only-if-cached")
	w.want(w.submit(w.shared, `1`, key(keyA), cached), 200)
	w.keep(w.shared, w.clientA(), `1`)
	w.eventually("a younger answer is there", func() bool { return w.submit(w.shared, `1`, key(keyB), cached).StatusCode == 200 })
}

// clinging is a Degrader that removes nothing as long as it is told so.
type clinging struct {
	wholeAnswers
	clings *atomic.Bool
}

func (d clinging) Purge(ctx context.Context, p degrade.Policy, key, client string) error {
	if d.clings.Load() {
		return errors.New("the connection broke")
	}
	return d.wholeAnswers.Purge(ctx, p, key, client)
}

// Where the stored answer can't be removed, the job stays: the same call again does all.
func TestAPurgeThatCantRemoveTheAnswerIsRepeated(t *testing.T) {
	t.Parallel()
	var clings atomic.Bool
	w := newWorld(t, func(s *setup) {
		s.adjust = func(_ *world, c *worldConfig) { c.Answers = clinging{c.Answers.(wholeAnswers), &clings} }
	})
	id := w.job(w.want(w.submit(w.report, `1`, key(keyA)), http.StatusAccepted)).ID
	w.keep(w.report, w.clientA(), `1`)
	w.succeed(id, 201, "text/plain", []byte("secret\n"))
	clings.Store(true)
	purge := func() answer { return w.call("DELETE", w.url+"/v1/jobs/"+id+"?purge=1", "", key(keyA)) }
	if p := w.problem(purge(), http.StatusServiceUnavailable, api.CodeStore); p.RetryAfter < 1 {
		t.Errorf("%+v", p)
	}
	w.want(w.get("/v1/jobs/"+id+"/result", key(keyA)), 201)
	clings.Store(false)
	w.want(purge(), http.StatusNoContent)
	w.problem(w.submit(w.report, `1`, key(keyA), field("Cache-Control", "only-if-cached")), http.StatusGatewayTimeout, api.CodeNotCached)
}

// purging is a Line whose job is purged by somebody else just before one of its calls.
type purging struct {
	wholeLine
	before string        // "cancel", "payload", or "look": that is after so many
	looks  int64         // that go well
	looked *atomic.Int64 // how many did
}

func (l purging) at(ctx context.Context, call, id string) {
	if call == l.before {
		_, _ = l.wholeLine.Purge(ctx, id)
	}
}

func (l purging) Look(ctx context.Context, id string) (leaky.Look, error) {
	if l.looked.Load() >= l.looks {
		l.at(ctx, "look", id)
	}
	defer l.looked.Add(1)
	return l.wholeLine.Look(ctx, id)
}

func (l purging) Cancel(ctx context.Context, id string) (leaky.CancelOutcome, error) {
	l.at(ctx, "cancel", id)
	return l.wholeLine.Cancel(ctx, id)
}

func (l purging) Payload(ctx context.Context, id string) ([]byte, error) {
	l.at(ctx, "payload", id)
	return l.wholeLine.Payload(ctx, id)
}

// A job that goes between two looks of one request was its owner's all the same: it is told what became of it.
func TestAJobThatGoesMeanwhileIsToldToBeGone(t *testing.T) {
	t.Parallel()
	for query, before := range map[string][]string{"": {"cancel", "look"}, "?purge=1": {"payload"}} {
		for _, call := range before {
			t.Run(call, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, func(s *setup) { s.wrap = func(l wholeLine) wholeLine { return purging{l, call, 1, new(atomic.Int64)} } })
				id := w.job(w.want(w.submit(w.report, `1`, key(keyA)), http.StatusAccepted)).ID
				w.succeed(id, 200, "text/plain", []byte("x"))
				w.problem(w.call("DELETE", w.url+"/v1/jobs/"+id+query, "", key(keyA)), http.StatusGone, api.CodeJobGone)
			})
		}
	}
}

// So is one who waits for its end, when it ended and was purged before the waiter looked.
func TestALongPollOfAJobThatGoesIsToldSo(t *testing.T) {
	t.Parallel()
	var looked atomic.Int64
	w := newWorld(t, func(s *setup) { s.wrap = func(l wholeLine) wholeLine { return purging{l, "look", 2, &looked} } })
	id := w.job(w.want(w.submit(w.report, `1`, key(keyA)), http.StatusAccepted)).ID
	ticket := w.start(id)
	answers := w.later(func() answer { return w.get("/v1/jobs/"+id, key(keyA), field("Prefer", "wait=20")) })
	w.held(heldWait, 1)
	w.eventually("it has looked", func() bool { return looked.Load() >= 2 })
	w.settle(leaky.Settlement{Ticket: ticket, To: jobs.Succeeded, Took: time.Millisecond, Body: []byte("x")})
	w.problem(w.soon(answers), http.StatusGone, api.CodeJobGone)
}

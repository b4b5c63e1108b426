package httpapi_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/testforebay"
)

// Case C105.
func TestTheSameKeyIsTheSameJobBeforeAndAfterItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{perClient("per-minute", 60, time.Minute)}
	})
	first := w.Want(w.Submit(w.Plain, `{"n":1}`, key(keyA), idempotent("k-1")), http.StatusAccepted)
	if first.Header.Get("Idempotent-Replayed") != "" {
		t.Error("the first is no replay")
	}
	id := w.Job(first).ID
	// quoted: the same key
	again := w.Want(w.Submit(w.Plain, `{"n":1}`, key(keyA), idempotent(`"k-1"`)),
		http.StatusAccepted)
	if w.Job(again).ID != id || again.Header.Get("Idempotent-Replayed") != "true" ||
		again.Header.Get("Location") != "/v1/jobs/"+id {
		t.Errorf("replay = %s %v", again.Text, again.Header)
	}
	w.Succeed(id, 200, "text/plain", []byte("done"))
	done := w.Want(w.Submit(w.Plain, `{"n":1}`, key(keyA), idempotent("k-1")), http.StatusOK)
	if job := w.Job(done); job.ID != id || job.Status != api.Succeeded ||
		done.Header.Get("Forebay-Decision") != "accepted" || done.Header.Get("Retry-After") != "" {
		t.Errorf("replay = %s %v", done.Text, done.Header)
	}
	if w.Accepted() != 1 {
		t.Errorf("%d jobs, want 1", w.Accepted())
	}
	if got := done.Header.Get("X-RateLimit-Remaining"); got != "59" {
		t.Errorf("remaining %s: replays must not count", got)
	}
}

// Case C102.
func TestAKeyWithAnotherRequestIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Want(w.Submit(w.Plain, `{"n":1}`, key(keyA), idempotent("k-1")), http.StatusAccepted)
	for name, payload := range map[string]string{"another payload": `{"n":2}`,
		"other white space, as documented": `{"n": 1}`} {
		t.Run(name, func(t *testing.T) {
			a := w.Submit(w.Plain, payload, key(keyA), idempotent("k-1"))
			w.Problem(a, http.StatusUnprocessableEntity, api.CodeKeyReuse)
			const want = `rejected;reason="idempotency_key_reuse"`
			if got := a.Header.Get("Forebay-Decision"); got != want {
				t.Errorf("Forebay-Decision: %s", got)
			}
		})
	}
	if w.Accepted() != 1 {
		t.Errorf("%d jobs, want 1", w.Accepted())
	}
	// Another operation, another client: other jobs.
	w.Want(w.Submit(w.Report, `{"n":1}`, key(keyA), idempotent("k-1")), http.StatusAccepted)
	w.Want(w.Submit(w.Plain, `{"n":1}`, key(keyB), idempotent("k-1")), http.StatusAccepted)
	if w.Accepted() != 3 {
		t.Errorf("%d jobs, want 3", w.Accepted())
	}
}

func TestTwinsThatRaceAreOneJobAndOneCharge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{{Name: "bucket", Algorithm: limits.TokenBucket,
			Per: limits.PerClient, Amount: 100, Window: 366 * 24 * time.Hour}}
	})
	_, second, _ := w.Serve()
	var all sync.WaitGroup
	answers := make([]answer, 40)
	for i := range answers {
		all.Go(func() {
			var err error
			if answers[i],
				err = w.Try("POST", []string{w.URL, second}[i%2]+"/v1/jobs",
				`{"operation":"`+w.Plain+`","payload":1}`, key(keyA), idempotent("k")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	replays := 0
	for _, a := range answers {
		w.Want(a, http.StatusAccepted)
		if w.Job(a).ID != w.Job(answers[0]).ID {
			t.Errorf("two jobs: %s and %s", a.Text, answers[0].Text)
		}
		if a.Header.Get("Idempotent-Replayed") == "true" {
			replays++
		}
	}
	if w.Accepted() != 1 || replays != len(answers)-1 {
		t.Errorf("%d jobs and %d replays, want 1 and %d", w.Accepted(), replays, len(answers)-1)
	}
	if got := w.Get("/v1/rate-limits", key(keyA)).Header.Get("X-RateLimit-Remaining"); got != "99" {
		t.Errorf("remaining %s, want 99", got)
	}
}

func TestARefusedRequestLeavesItsKeyFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Line.Capacity = 1 })
	blocker := w.Job(w.Want(w.Submit(w.Plain, `0`, key(keyB)), http.StatusAccepted))
	w.Problem(w.Submit(w.Plain, `1`, key(keyA), idempotent("k")), http.StatusTooManyRequests,
		api.CodeLineFull)
	w.Start(blocker.ID)
	// Even with another body: nothing was remembered.
	a := w.Want(w.Submit(w.Plain, `2`, key(keyA), idempotent("k")), http.StatusAccepted)
	if a.Header.Get("Idempotent-Replayed") != "" {
		t.Error("a refusal was replayed as a job")
	}
}

func TestACanceledJobsKeyStillNamesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	job := w.Job(w.Submit(w.Plain, `1`, key(keyA), idempotent("k")))
	w.Want(w.Call("DELETE", w.URL+job.StatusURL, "", key(keyA)), http.StatusOK)
	again := w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA), idempotent("k")), http.StatusOK))
	if again.ID != job.ID || again.Status != api.Canceled {
		t.Errorf("job = %+v", again)
	}
	w.Want(w.Submit(w.Plain, `1`, key(keyA), idempotent("k2")), http.StatusAccepted)
}

func TestAKeyIsSentOnceAndWellFormed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Problem(w.Submit(w.Plain, `1`, key(keyA), idempotent("a"), idempotent("b")),
		http.StatusBadRequest, api.CodeInvalidIdempotencyKey)
	w.Problem(w.Submit(w.Plain, `1`, key(keyA), idempotent("a"), idempotent("a")),
		http.StatusBadRequest, api.CodeInvalidIdempotencyKey)
	w.Problem(w.Submit(w.Plain, `1`, key(keyA), idempotent("a b")), http.StatusBadRequest,
		api.CodeInvalidIdempotencyKey)
}

// Issue 10, point 12: the key of a job that was purged makes no second job, which the backend would
// know by the same id: neither with the same payload nor with another, alone or in a shared job.
func TestAPurgedJobsKeyIsSpent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operation(w.Shared).Coalesce = true
		}
	})
	for _, operation := range []string{w.Plain, w.Shared} {
		id := w.Job(w.Want(w.Submit(operation, `1`, key(keyA), idempotent("k")),
			http.StatusAccepted)).ID
		look, err := w.Line.Look(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		w.Succeed(look.Job.Source(), 200, "text/plain", []byte("done"))
		w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+id+"?purge=1", "", key(keyA)),
			http.StatusNoContent)
		before := w.Accepted()
		for _, payload := range []string{`1`, `2`} {
			w.Problem(w.Submit(operation, payload, key(keyA), idempotent("k")), http.StatusGone,
				api.CodeJobGone)
		}
		if n := w.Accepted() - before; n != 0 {
			t.Errorf("%d more jobs", n)
		}
		// another client's is another
		w.Want(w.Submit(operation, `1`, key(keyB), idempotent("k")), http.StatusAccepted)
	}
}

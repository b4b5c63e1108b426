package httpapi_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/testforebay"
)

// Two requests with one Idempotency-Key are one job: the second one returns its own permit, and not
// the job's.
func TestATwinGivesBackItsOwnPlaceAlone(t *testing.T) {
	t.Parallel()
	line := &duplicateLine{}
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient,
			Amount: 5}, perClient("wide", 60, time.Hour)}
		s.Wrap = func(l testforebay.Line) testforebay.Line { line.Line = l; return line }
	})
	w.Pause()
	line.first = func() {
		if a, err := w.Try("POST", w.URL+"/v1/jobs", `{"operation":"`+w.Plain+`","payload":1}`,
			key(keyA), idempotent("k")); err != nil || a.StatusCode != http.StatusAccepted {
			t.Errorf("the first of the twins: %v, %v", a.Response, err)
		}
	}
	a := w.Want(w.Submit(w.Plain, `1`, key(keyA), idempotent("k")), http.StatusAccepted)
	if a.Header.Get("Idempotent-Replayed") != "true" {
		t.Fatalf("no twin: %v", a.Header)
	}
	shown := w.rateLimits(key(keyA))
	if shown["jobs"].Remaining != 4 || shown["wide"].Remaining != 59 {
		t.Errorf("one job holds %+v", shown)
	}
	if got := w.stated(a); got["jobs"].r != 4 || got["wide"].r != 59 {
		t.Errorf("stated %+v", got)
	}
}

// Of duplicate requests that come together, one is admitted. The others aren't refused because of
// its permit: they get its job.
func TestTwinsAreNotRefusedByEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient,
			Amount: 1}, perClient("one", 1, time.Hour)}
	})
	w.Pause()
	_, another, _ := w.Serve() // a second process on the same store
	ids := make([]string, 12)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			a, err := w.Try("POST", []string{w.URL, another}[i%2]+"/v1/jobs",
				`{"operation":"`+w.Plain+`","payload":1}`, key(keyA), idempotent("k"))
			if err != nil || a.StatusCode != http.StatusAccepted {
				t.Errorf("twin %d: %v, %v", i, a.Response, err)
				return
			}
			ids[i] = a.Header.Get("Location")
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("jobs %q", ids)
		}
	}
	w.Problem(w.Submit(w.Plain, `1`, key(keyA), idempotent("another")), http.StatusTooManyRequests,
		api.CodeRateLimit)
}

// duplicateLine has another request come first, once.
type duplicateLine struct {
	testforebay.Line
	begun atomic.Bool
	first func()
}

func (l *duplicateLine) Offer(ctx context.Context, o leaky.Offer) (leaky.Place, error) {
	if l.begun.CompareAndSwap(false, true) {
		l.first()
	}
	return l.Line.Offer(ctx, o)
}

// The line knows which permits a job holds, so that any end of the job returns them.
func TestAJobsPlaceIsFreeOnceTheJobHasEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient,
			Amount: 1}}
	})
	ends := map[string]func(id string){
		"canceled": func(id string) {
			w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+id, "", key(keyA)), 200)
		},
		"succeeded": func(id string) { w.Succeed(id, 200, "text/plain", nil) },
	}
	for how, end := range ends {
		for _, fields := range [][][2]string{{key(keyA)}, {key(keyA), idempotent(how)}} {
			id := w.Job(w.Want(w.Submit(w.Plain, `1`, fields...), http.StatusAccepted)).ID
			p := w.Problem(w.Submit(w.Plain, `2`, key(keyA)), http.StatusTooManyRequests,
				api.CodeRateLimit)
			if p.Reason != "jobs" {
				t.Fatalf("%+v", p)
			}
			end(id)
			if left := w.rateLimits(key(keyA))["jobs"].Remaining; left != 1 {
				t.Errorf("the job has %s, and %d places are free, want 1", how, left)
			}
		}
	}
}

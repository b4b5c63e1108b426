package worker_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

// Case C108: The call is aborted in whatever process it runs.
func TestACanceledJobsCallIsAborted(t *testing.T) {
	t.Parallel()
	aborted := make(chan time.Time, 10)
	s := newSite(t, func(b *recorder, w http.ResponseWriter, r *http.Request) {
		if b.hang(r) {
			aborted <- time.Now()
		}
	})
	s.settings.Concurrency = 2
	s.open()
	w := s.start(redistest.Client(t))
	s.start(redistest.Client(t))
	ids := []string{s.offer(nil), s.offer(nil)}
	s.until("the jobs don't run", func() bool { return len(s.backend.all()) == 2 })
	began := time.Now()
	for _, id := range ids {
		if outcome, err := s.line.Cancel(t.Context(), id); err != nil || outcome != leaky.Aborting {
			t.Fatalf("cancel: %s, %v", outcome, err)
		}
	}
	for range ids {
		select {
		case at := <-aborted:
			if took := at.Sub(began); took > time.Second {
				t.Errorf("the connection was closed %v after the cancel", took)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the call goes on")
		}
	}
	for _, id := range ids {
		if standing := s.await(id); standing.State != jobs.Canceled || standing.Attempts != 1 {
			t.Errorf("%+v", standing)
		}
	}
	w.finish(t)
	s.check()
}

// deaf is a Listener that receives no messages.
type deaf struct{}

func (deaf) Wake(string) <-chan struct{} { return nil }

func (deaf) OnAbort(func(string)) {}

// A published message may be lost. Then the next heartbeat aborts the call, and polling finds the
// work.
func TestAWorkerWithoutMessagesStillDrainsAndCancels(t *testing.T) {
	t.Parallel()
	s := newSite(t, hang)
	s.config.Listener = deaf{}
	s.start(redistest.Client(t))
	id := s.offer(nil)
	s.until("the job doesn't run", func() bool { return s.look(id).State == jobs.Running })
	if _, err := s.line.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if standing := s.await(id); standing.State != jobs.Canceled {
		t.Fatalf("%+v", standing)
	}
}

// Case C106.
//
// A canceled job has no result, and a job with a result isn't canceled, whenever the cancel comes.
func TestACancelAtAnyMomentLeavesOneTruth(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(b *recorder, w http.ResponseWriter, r *http.Request) {
		// The work takes that long.
		time.Sleep(time.Duration(5+len(r.Header.Get("Forebay-Job-Id"))%3*5) * time.Millisecond)
		ok(b, w, r)
	})
	w := s.start(redistest.Client(t))
	outcomes := map[jobs.State]int{}
	for i := range 150 {
		id := s.offer(nil)
		<-time.After(time.Duration(i%15) * time.Millisecond)
		said, err := s.line.Cancel(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		standing := s.await(id)
		_, err = s.line.Result(t.Context(), id)
		switch {
		case standing.State == jobs.Canceled && said != leaky.AlreadyFinal &&
			errors.Is(err, leaky.ErrNoResult):
		case standing.State == jobs.Succeeded && said != leaky.Canceled && err == nil:
		default:
			t.Fatalf("cancel said %s, the job is %s, its result %v", said, standing.State, err)
		}
		outcomes[standing.State]++
	}
	t.Logf("%v", outcomes)
	w.finish(t)
	s.check()
}

// At a stop running jobs finish and are recorded once, waiting ones are kept, and Run takes no
// longer than the calls.
func TestAStoppedWorkerFinishesRunningJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(b *recorder, w http.ResponseWriter, r *http.Request) {
		b.hang(r)
		ok(b, w, r)
	})
	s.settings.Concurrency = 5
	s.open()
	w := s.start(redistest.Client(t))
	var ids []string
	for range 25 {
		ids = append(ids, s.offer(nil))
	}
	s.until("five jobs don't run", func() bool { return len(s.backend.all()) == 5 })
	w.stop()
	time.AfterFunc(200*time.Millisecond, s.backend.release)
	if took := w.finish(t); took > 5*time.Second {
		t.Errorf("Run ended after %v; its calls took 0.2 s and the grace period is 10 s", took)
	}
	states := map[jobs.State]int{}
	for _, id := range ids {
		states[s.look(id).State]++
	}
	if states[jobs.Succeeded] != 5 || states[jobs.Waiting] != 20 || len(s.backend.all()) != 5 {
		t.Errorf("states %v after %d calls", states, len(s.backend.all()))
	}
	s.check()
}

// A job whose call outlasts the grace period goes back to the line as it was, and the next worker
// runs it.
func TestACallThatOutlastsTheGracePeriodIsGivenBack(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	s := newSite(t, func(b *recorder, w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			b.hang(r)
			return
		}
		ok(b, w, r)
	})
	s.config.Grace = 100 * time.Millisecond
	w := s.start(redistest.Client(t))
	id := s.offer(nil)
	s.until("the job doesn't run", func() bool { return n.Load() == 1 })
	if took := w.finish(t); took > 4*time.Second {
		t.Errorf("Run ended after %v with a grace period of 0.1 s", took)
	}
	if standing := s.look(id); standing.State != jobs.Waiting || standing.Attempts != 0 {
		t.Fatalf("%+v", standing)
	}
	s.check()
	s.start(redistest.Client(t))
	if standing := s.await(id); standing.State != jobs.Succeeded || standing.Attempts != 1 ||
		n.Load() != 2 {
		t.Fatalf("%+v after %d calls", standing, n.Load())
	}
}

package worker_test

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/worker"
)

// Cases C70 and C78 and C86.
//
// One 503 closes the gate for all workers. It uses no attempt, and is not a failure with a long
// backoff.
func TestOneRefusalClosesTheGateForEveryWorker(t *testing.T) {
	t.Parallel()
	var refused atomic.Int64 // when, µs
	var once sync.Once
	s := newSite(t, func(b *recorder, w http.ResponseWriter, r *http.Request) {
		refuse := false
		once.Do(func() { refuse = true })
		if refuse {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			refused.Store(time.Now().UnixMicro())
			return
		}
		ok(b, w, r)
	})
	s.Retry.Base, s.Retry.Cap = 5*time.Minute, 5*time.Minute
	s.settings.Rate = rate(t, "10/s")
	s.open()
	s.start(redistest.Client(t))
	s.start(redistest.Client(t))
	var ids []string
	for range 4 {
		ids = append(ids, s.offer(nil))
	}
	for _, id := range ids {
		if standing := s.await(id); standing.State != jobs.Succeeded || standing.Attempts != 1 {
			t.Errorf("%+v", standing)
		}
	}
	calls := s.backend.all()
	if len(calls) != 5 {
		t.Fatalf("%d calls, want 4 and the refused one", len(calls))
	}
	if n := len(s.backend.of(calls[0].job)); n != 2 {
		t.Errorf("the refused job was called %d times, want 2", n)
	}
	// 1 s and a slot of 100 ms; more on a busy machine.
	if rest := calls[1].at.Sub(time.UnixMicro(refused.Load())); rest < 990*time.Millisecond ||
		rest > 2500*time.Millisecond {
		t.Errorf("the backend was left alone for %v, and asked for 1 s", rest)
	}
}

// Cases C78 and C83.
//
// However many workers there are, the backend sees one rate, and waiting for it uses no attempt.
func TestTwoWorkersDrainAtOneRate(t *testing.T) {
	t.Parallel()
	s := newSite(t, ok)
	s.settings.Rate = rate(t, "50/s")
	s.open()
	s.start(redistest.Client(t))
	s.start(redistest.Client(t))
	var ids []string
	for range 100 {
		ids = append(ids, s.offer(nil))
	}
	var slots []time.Time
	for _, id := range ids {
		standing := s.await(id)
		if standing.State != jobs.Succeeded || standing.Attempts != 1 {
			t.Fatalf("%+v", standing)
		}
		slots = append(slots, standing.StartedAt)
		calls := s.backend.of(id)
		if len(calls) != 1 {
			t.Fatalf("%d calls of one job", len(calls))
		}
		// Redis runs on this host's clock; round trips on a busy machine may hide some milliseconds
		// of the distance.
		if early := standing.StartedAt.Sub(calls[0].at); early > 10*time.Millisecond {
			t.Errorf("a call came %v before its slot", early)
		}
	}
	slices.SortFunc(slots, time.Time.Compare)
	for i := range slots[1:] {
		if gap := slots[i+1].Sub(slots[i]); gap < 20*time.Millisecond-time.Microsecond {
			t.Fatalf("slots %d and %d are %v apart, at 50/s", i, i+1, gap)
		}
	}
}

// A backend whose calls hang doesn't take up the concurrency of another.
func TestASlowBackendHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	slow, fast := newSite(t, hang), newSite(t, ok)
	rdb := redistest.Client(t)
	slow.Line, slow.Queue = slow.line, jobs.NewQueue(rdb, slow.settings.Backend, fast.config.Log)
	slow.Operations = map[string]worker.Operation{"crawl": {Method: "POST", Path: "/",
		MaxResult: 100}}
	fast.config.Backends = []worker.Backend{slow.Backend}
	fast.start(rdb)
	for range 60 { // its concurrency is 50
		slow.offer(func(o *leaky.Offer) { o.Job.Operation = "crawl" })
	}
	slow.until("the slow backend isn't full", func() bool {
		status, err := slow.line.Status(t.Context())
		return err == nil && status.InFlight == 50
	})
	for range 20 {
		if standing := fast.await(fast.offer(nil)); standing.State != jobs.Succeeded {
			t.Fatalf("%+v", standing)
		}
	}
	slow.backend.release()
}

// Case C72: A job that comes to an idle service starts within milliseconds, not at the next poll.
func TestAnIdleWorkerStartsAJobAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, ok)
	s.start(redistest.Client(t))
	waits := make([]time.Duration, 20)
	for i := range waits {
		<-time.After(30 * time.Millisecond) // idle again
		began := time.Now()
		id := s.offer(nil)
		s.await(id)
		waits[i] = s.backend.of(id)[0].at.Sub(began)
	}
	slices.Sort(waits)
	// 3 ms on a quiet machine. Without wake-ups it would be 125 ms.
	if median := waits[len(waits)/2]; median > 100*time.Millisecond {
		t.Errorf("from offer to call: median %v", median)
	}
}

func TestAWorkerRunsOnEveryKindOfRedis(t *testing.T) {
	t.Parallel()
	for kind, open := range map[string]func(testing.TB) redis.UniversalClient{
		"embedded": redistest.Miniredis,
		"cluster": func(t testing.TB) redis.UniversalClient {
			rdb, _ := redistest.StartCluster(t)
			return rdb
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, ok)
			s.rdb = open(t)
			s.settings.Rate = rate(t, "50/s")
			s.open()
			w := s.start(s.rdb)
			var ids []string
			for range 10 {
				ids = append(ids, s.offer(nil))
			}
			for _, id := range ids {
				if standing := s.await(id); standing.State != jobs.Succeeded ||
					standing.Attempts != 1 {
					t.Errorf("%+v", standing)
				}
			}
			w.finish(t)
			if n := len(s.backend.all()); n != 10 {
				t.Errorf("%d calls for 10 jobs", n)
			}
		})
	}
}

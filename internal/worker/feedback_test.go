package worker_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

func (s *site) status() leaky.Status {
	s.t.Helper()
	st, err := s.line.Status(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// Trouble slows all workers, and is reported once: in the log and the metrics of the worker that
// made the attempt, and to what records changes.
func TestAFleetReportsTroubleOnce(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	s := newSite(t, func(b *recorder, w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		ok(b, w, r)
	})
	s.settings.Rate = rate(t, "20/s")
	s.open()
	var log lines
	s.config.Log = slog.New(slog.NewTextHandler(&log, nil))
	var mu sync.Mutex
	var recorded []string // guarded by mu
	s.config.Changed = func(backend string, change leaky.Change, cause leaky.Sign,
		f leaky.Feedback) {
		mu.Lock()
		defer mu.Unlock()
		recorded = append(recorded, fmt.Sprint(change, " ", cause, " ",
			backend == s.settings.Backend && f.Factor < 1))
	}
	workers := []*running{s.start(redistest.Client(t)), s.start(redistest.Client(t))}
	var ids []string
	for range 10 {
		ids = append(ids, s.offer(nil))
	}
	s.until("the gate doesn't close", func() bool { return !s.status().GateUntil.IsZero() })
	if st := s.status(); st.Factor != 0.5 || st.Cause != leaky.Throttled || st.EffectiveRate != 10 {
		t.Errorf("status = %+v", st)
	}
	for _, id := range ids {
		if standing := s.await(id); standing.State != jobs.Succeeded || standing.Attempts != 1 {
			t.Errorf("%+v", standing)
		}
	}
	for _, w := range workers {
		w.finish(t)
	}
	for change, want := range map[leaky.Change]float64{leaky.GateClosed: 1, leaky.Lowered: 1,
		leaky.ProbePassed: 1, leaky.RaisedToFull: 0} {
		total := 0.0
		for _, w := range workers {
			total += w.sum(t, "forebay_feedback_changes_total", string(change))
		}
		if total != want {
			t.Errorf("%s is counted %v times, want %v", change, total, want)
		}
	}
	if got := strings.Join(recorded, ", "); got != "lowered throttled true, "+
		"gate_closed throttled true, probe_passed answered true" {
		t.Errorf("recorded: %s", got)
	}
	if log.count("the backend is in trouble") != 1 || log.count("cause=throttled") != 1 ||
		log.count("the backend recovers") != 1 ||
		!strings.Contains(log.String(), `changes="[lowered gate_closed]"`) {
		t.Errorf("log:\n%s", log.String())
	}
}

// With two workers, there is one call after each closed gate, and no other beside it.
func TestAFleetProbesASickBackendOneCallAtATime(t *testing.T) {
	t.Parallel()
	var now, most, n atomic.Int64
	s := newSite(t, func(b *recorder, w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		time.Sleep(50 * time.Millisecond) // long enough for another call to come meanwhile
		if n.Add(1) <= 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		ok(b, w, r)
	})
	s.settings.Rate, s.settings.Concurrency = rate(t, "1000/s"), 1 // one call meets the trouble
	s.open()
	s.start(redistest.Client(t))
	s.start(redistest.Client(t))
	first := s.offer(nil)
	s.until("no call is throttled", func() bool { return s.status().Books.Throttled == 1 })
	thirty := 30
	if err := s.line.Tune(t.Context(), leaky.Override{Concurrency: &thirty}, "test"); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		s.offer(nil)
	}
	s.await(first)
	calls := s.backend.all()
	if len(calls) < 4 {
		t.Fatalf("%d calls", len(calls))
	}
	for i, gate := range []time.Duration{1, 2, 4} {
		if gap := calls[i+1].at.Sub(calls[i].at); gap < gate*time.Second {
			t.Errorf("call %d came %v after the one before, whose gate was %d s", i+2, gap, gate)
		}
	}
	for i := range calls[:3] {
		if calls[i+1].job != first {
			t.Errorf("probe %d is for job %s, want the throttled one", i+1, calls[i+1].job)
		}
	}
}

// A backend that is down is called less and less, and its trouble is logged with the cause.
func TestABackendThatIsDownIsCalledLess(t *testing.T) {
	t.Parallel()
	for cause, spoil := range map[leaky.Sign]func(*site){
		leaky.Unreachable: func(s *site) { s.backend.Close() },
		leaky.Timeout:     func(s *site) { s.Timeout = 20 * time.Millisecond },
	} {
		t.Run(string(cause), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, hang)
			spoil(s)
			var log lines
			s.config.Log = slog.New(slog.NewTextHandler(&log, nil))
			w := s.start(redistest.Client(t))
			s.await(s.offer(nil)) // four attempts within the cool-down
			if st := s.status(); st.Factor != 0.5 || st.Cause != cause ||
				st.EffectiveConcurrency != 25 || !st.GateUntil.IsZero() {
				t.Errorf("status = %+v", st)
			}
			w.finish(t)
			if log.count("the backend is in trouble") != 1 ||
				log.count("cause="+string(cause)) != 1 ||
				w.sum(t, "forebay_feedback_changes_total", "") != 1 {
				t.Errorf("log:\n%s", log.String())
			}
		})
	}
}

// With feedback off a throttled job doesn't hold up others, and uses no attempt.
func TestWithoutFeedbackOneThrottledJobHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := newSite(t, asked)
	s.settings.Feedback = false
	s.open()
	s.start(redistest.Client(t))
	busy := s.offer(func(o *leaky.Offer) { asking(429)(o); o.MaxAge = 3 * time.Second })
	s.until("it isn't throttled", func() bool { return s.status().Books.Throttled > 0 })
	for range 10 {
		if standing := s.await(s.offer(asking(200))); standing.State != jobs.Succeeded {
			t.Errorf("%+v", standing)
		}
	}
	if st := s.status(); st.Factor != 1 || !st.GateUntil.IsZero() || st.Delayed != 1 {
		t.Errorf("status = %+v", st)
	}
	standing := s.await(busy)
	if n := len(s.backend.of(busy)); standing.State != jobs.Expired || standing.Attempts != 0 ||
		n < 2 || n > 4 {
		t.Errorf("%+v after %d calls", standing, n)
	}
	s.check()
}

// A throttled answer counts for the backend, also where its job is canceled meanwhile.
func TestACanceledJobsAnswerStillCountsForTheBackend(t *testing.T) {
	t.Parallel()
	called := make(chan struct{})
	s := newSite(t, func(b *recorder, w http.ResponseWriter, r *http.Request) {
		close(called)
		b.hang(r)
		w.Header().Set("Retry-After", strconv.Itoa(60))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	s.config.Listener = deaf{} // the worker doesn't hear of the cancel
	s.start(redistest.Client(t))
	id := s.offer(nil)
	<-called
	if outcome, err := s.line.Cancel(t.Context(), id); err != nil || outcome != leaky.Aborting {
		t.Fatal(outcome, err)
	}
	s.backend.release()
	if standing := s.await(id); standing.State != jobs.Canceled {
		t.Errorf("%+v", standing)
	}
	if st := s.status(); st.Factor != 0.5 || st.GateUntil.IsZero() {
		t.Errorf("status = %+v", st)
	}
}

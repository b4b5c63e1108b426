package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
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

// script matches a script call that has all these arguments.
func script(args ...any) func(redis.Cmder) bool {
	return func(cmd redis.Cmder) bool {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return false
		}
		for _, arg := range args {
			if !slices.Contains(cmd.Args(), arg) {
				return false
			}
		}
		return true
	}
}

// Every call to the line that can fail fails once: before it is carried out, and after. The backend
// is called once, and the outcome counts once.
func TestAFailedCallToTheLineCostsNothing(t *testing.T) {
	t.Parallel()
	for name, match := range map[string]func(s *site, id string) func(redis.Cmder) bool{
		"start": func(s *site, id string) func(redis.Cmder) bool { return script(id) },
		"settle": func(s *site, id string) func(redis.Cmder) bool {
			return script(id, "succeeded")
		},
		"send": func(s *site, id string) func(redis.Cmder) bool { return script(id + ":1") },
		"release": func(s *site, id string) func(redis.Cmder) bool {
			// Only after a release is there a bound on the start: 2 s after the slot.
			return script(jobs.KeyPrefix(s.settings.Backend)+"line",
				(2 * time.Second).Microseconds())
		},
	} {
		for _, applied := range []bool{false, true} {
			t.Run(name+map[bool]string{false: " not applied", true: " applied"}[applied],
				func(t *testing.T) {
					t.Parallel()
					s := newSite(t, ok)
					id := s.offer(nil)
					rdb := redistest.Client(t)
					faulty := redistest.NewFaulty(t, rdb)
					faulty.FailNext(match(s, id), applied)
					w := s.start(rdb)
					if standing := s.await(id); standing.State != jobs.Succeeded ||
						standing.Attempts != 1 {
						t.Errorf("%+v", standing)
					}
					w.finish(t)
					if n := len(s.backend.all()); n != 1 {
						t.Errorf("%d calls", n)
					}
					s.check()
				})
		}
	}
}

// twice is a Queue that delivers every ticket twice, at the same time.
type twice struct{ worker.Queue }

func (q twice) Serve(handle func(jobs.Ticket)) (func(context.Context) error, error) {
	return q.Queue.Serve(func(ticket jobs.Ticket) {
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { handle(ticket) })
		}
		both.Wait()
	})
}

func TestATicketThatComesTwiceIsOneCall(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(b *recorder, w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond) // long enough for the second delivery to come meanwhile
		ok(b, w, r)
	})
	rdb := redistest.Client(t)
	s.Queue = twice{jobs.NewQueue(rdb, s.settings.Backend, slog.New(slog.DiscardHandler))}
	s.start(rdb)
	var ids []string
	for range 20 {
		ids = append(ids, s.offer(nil))
	}
	for _, id := range ids {
		if standing := s.await(id); standing.State != jobs.Succeeded || standing.Attempts != 1 {
			t.Errorf("%+v", standing)
		}
	}
	if n := len(s.backend.all()); n != 20 {
		t.Errorf("%d calls for 20 jobs", n)
	}
}

// watch counts a client's commands that match.
type watch struct {
	match func(redis.Cmder) bool
	seen  atomic.Int64
}

func (w *watch) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *watch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if w.match(cmd) {
			w.seen.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (w *watch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Case C66.
//
// If Redis goes away while a call runs and comes back, the call's outcome counts and work goes on
// by itself.
func TestARedisThatComesBackFindsTheOutcome(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(b *recorder, w http.ResponseWriter, r *http.Request) {
		b.hang(r)
		ok(b, w, r)
	})
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	s.rdb = server.Client(t)
	s.open()
	id := s.offer(nil)
	rdb := newProxyClient(t, proxy)
	settles := &watch{match: script(id, "succeeded")}
	rdb.AddHook(settles)
	w := s.start(rdb)
	s.until("the job doesn't run", func() bool { return len(s.backend.all()) == 1 })
	proxy.Refuse()
	proxy.Cut()
	s.backend.release()
	s.until("the outcome isn't settled again", func() bool { return settles.seen.Load() >= 2 })
	if standing := s.look(id); standing.State != jobs.Running {
		t.Fatalf("%+v", standing)
	}
	proxy.Resume()
	if standing := s.await(id); standing.State != jobs.Succeeded || standing.Attempts != 1 {
		t.Fatalf("%+v", standing)
	}
	if standing := s.await(s.offer(nil)); standing.State != jobs.Succeeded {
		t.Fatalf("%+v", standing)
	}
	w.finish(t)
	s.check()
}

// Case C65.
//
// A worker that is cut off loses its jobs to another within 15 s. It aborts its own calls before
// the other begins them, so the backend never sees two at a time.
func TestAJobOfALostWorkerRunsElsewhereAndNeverTwiceAtOnce(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	var first sync.Once
	s := newSite(t, func(b *recorder, w http.ResponseWriter, r *http.Request) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		hung := false
		first.Do(func() { hung = true })
		if hung {
			b.hang(r)
			return
		}
		ok(b, w, r)
	})
	s.Timeout = time.Minute
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	s.rdb = server.Client(t)
	s.open()
	id := s.offer(nil)
	var log lines
	s.config.Log = slog.New(slog.NewTextHandler(&log, nil))
	s.start(newProxyClient(t, proxy))
	s.until("the job doesn't run", func() bool { return len(s.backend.all()) == 1 })
	proxy.Refuse()
	proxy.Cut()
	began := time.Now()
	other := s.start(server.Client(t))
	standing := s.await(id)
	if took := time.Since(began); standing.State != jobs.Succeeded || standing.Attempts != 2 ||
		took > 15*time.Second {
		t.Errorf("%+v after %v", standing, took)
	}
	if calls := s.backend.all(); len(calls) != 2 ||
		calls[0].header.Get("Idempotency-Key") != calls[1].header.Get("Idempotency-Key") {
		t.Errorf("calls: %+v", calls)
	}
	if most.Load() != 1 {
		t.Errorf("the backend saw %d calls of the job at once", most.Load())
	}
	s.until("the worker doesn't say that it has lost the job", func() bool {
		return log.count("job lost") == 1
	})
	other.finish(t)
	s.check()
	if n := other.sum(t, "forebay_jobs_returned_total", ""); n != 1 {
		t.Errorf("%v jobs are counted as returned", n)
	}
}

// newProxyClient returns a client with the service's short timeouts.
func newProxyClient(t *testing.T, p *redistest.Proxy) redis.UniversalClient {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: 500 * time.Millisecond,
		ReadTimeout: 500 * time.Millisecond, WriteTimeout: 500 * time.Millisecond,
		ContextTimeoutEnabled: true})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// Case C87.
//
// Calls that take too long for the concurrency are logged for the operator, once, with the
// backend's name.
func TestAConcurrencyTooLowForTheRateIsLoggedOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, hang)
	var log lines
	s.config.Log = slog.New(slog.NewTextHandler(&log, nil))
	s.config.Grace, s.Timeout = 0, time.Minute
	s.settings.Concurrency = 1
	s.open()
	w := s.start(redistest.Client(t))
	s.offer(nil)
	s.offer(nil)
	s.until("no warning", func() bool { return log.count("raise drain.concurrency") > 0 })
	<-time.After(time.Second) // four more looks
	if log.count("raise drain.concurrency") != 1 ||
		!strings.Contains(log.String(), "backend="+s.settings.Backend) {
		t.Errorf("log:\n%s", log.String())
	}
	if waited := w.sum(t, "forebay_drain_wait_seconds_total", leaky.OnConcurrency); waited < 9 {
		t.Errorf("the metric says that %v s were waited for concurrency", waited)
	}
	if waited := w.sum(t, "forebay_drain_wait_seconds_total", leaky.OnRate); waited > 1 {
		t.Errorf("the metric says that %v s were waited for the rate", waited)
	}
}

// Run ends in time if Redis has gone away while calls run. Their jobs return when their leases
// expire.
func TestAWorkerStopsInTimeWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*redistest.Proxy){
		"gone":  func(p *redistest.Proxy) { p.Refuse(); p.Cut() },
		"hangs": (*redistest.Proxy).Hang,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, hang)
			server := redistest.Start(t)
			proxy := redistest.StartProxy(t, server.Addr)
			s.rdb = server.Client(t)
			s.config.Grace = 100 * time.Millisecond
			s.open()
			for range 20 {
				s.offer(nil)
			}
			w := s.start(newProxyClient(t, proxy))
			s.until("the jobs don't run", func() bool { return len(s.backend.all()) == 20 })
			fail(proxy)
			if took := w.finish(t); took > 10*time.Second {
				t.Errorf("Run ended after %v", took)
			}
			proxy.Resume()
		})
	}
}

// unserved is a Queue that can't be served.
type unserved struct{ worker.Queue }

var errUnserved = errors.New("no queue")

func (unserved) Serve(func(jobs.Ticket)) (func(context.Context) error, error) {
	return nil, errUnserved
}

func TestRunReturnsAnErrorIfItCannotServe(t *testing.T) {
	t.Parallel()
	s := newSite(t, ok)
	s.Queue = unserved{}
	w := s.start(redistest.Client(t))
	select {
	case err := <-w.ended:
		if !errors.Is(err, errUnserved) {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Run goes on")
	}
}

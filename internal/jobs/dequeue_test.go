package jobs_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/redistest"
)

// counter counts the script calls of a client that have a given key.
type counter struct {
	key     string
	calls   atomic.Int64
	all     atomic.Int64
	refusal atomic.Bool // answers them with an error
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.all.Add(1)
		if strings.HasPrefix(cmd.Name(), "eval") && slices.Contains(cmd.Args(), any(c.key)) {
			c.calls.Add(1)
			if c.refusal.Load() {
				err := fmt.Errorf("BUSY Redis is busy running a script")
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// countDequeues counts the dequeues that reach Redis. Only that script has the key "paused".
func countDequeues(rdb redis.UniversalClient, backend string) *counter {
	c := &counter{key: "asynq:{" + backend + "}:paused"}
	rdb.AddHook(c)
	return c
}

// The gate recognises asynq's dequeue by its keys. If asynq changes them, the gate lets every call
// pass and this test fails: an idle server would call thousands of times a second, and a held one
// calls 10 times.
func TestTheGateRecognisesAsynqsDequeue(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	backend := redistest.Name(t, "gate")
	dequeues := countDequeues(rdb, backend)
	serve(t, jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler)), func(jobs.Ticket) {})
	eventually(t, "asynq's dequeue has other keys: no call with "+dequeues.key, func() bool {
		return dequeues.calls.Load() > 0
	})
	before, began := dequeues.calls.Load(), time.Now()
	eventually(t, "no second look", func() bool { return dequeues.calls.Load() >= before+5 })
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("5 dequeues of an idle queue within %v: they aren't held back", took)
	}
}

// Case C72: A ticket is taken at once, not at the next poll.
func TestATicketIsTakenAtOnceByTheProcessThatSentIt(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	backend := redistest.Name(t, "latency")
	q := jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler))
	got := make(chan jobs.Ticket, 1)
	serve(t, q, func(ticket jobs.Ticket) { got <- ticket })
	took := make([]time.Duration, 25)
	for i, ticket := range tickets(backend, len(took)) {
		began := time.Now()
		if err := q.Send(t.Context(), []jobs.Ticket{ticket}); err != nil {
			t.Fatal(err)
		}
		receive(t, got)
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	t.Logf("from Send to handler: median %v, slowest %v", took[len(took)/2], took[len(took)-1])
	// Polls every 100 ms would give a median of 50.
	if median := took[len(took)/2]; median > 25*time.Millisecond {
		t.Errorf("median %v from Send to handler", median)
	}
}

// Tickets that another process has sent, or that a killed one has left, are found by polling.
func TestTicketsThatAnotherProcessSentAreFound(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	backend := redistest.Name(t, "other")
	got := make(chan jobs.Ticket, 1)
	serve(t, jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler)), func(ticket jobs.Ticket) {
		got <- ticket
	})
	other := jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler))
	if err := other.Send(t.Context(), tickets(backend, 1)); err != nil {
		t.Fatal(err)
	}
	receive(t, got)
}

// Cases C66 and C76.
//
// A Redis that answers with errors isn't called without pause, and work goes on when it has
// recovered.
func TestDequeueRestsWhileRedisFailsAndGoesOnAfter(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	backend := redistest.Name(t, "trouble")
	dequeues := countDequeues(rdb, backend)
	dequeues.refusal.Store(true)
	q := jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler))
	got := make(chan jobs.Ticket, 1)
	serve(t, q, func(ticket jobs.Ticket) { got <- ticket })
	began := time.Now()
	eventually(t, "no retries", func() bool { return dequeues.calls.Load() >= 6 })
	if took := time.Since(began); took < 310*time.Millisecond { // 10 + 20 + 40 + 80 + 160
		t.Errorf("6 failing dequeues within %v", took)
	}
	if err := q.Send(t.Context(), tickets(backend, 1)); err != nil {
		t.Fatal(err)
	}
	dequeues.refusal.Store(false)
	receive(t, got)
}

func TestRestsGrowToABound(t *testing.T) {
	t.Parallel()
	last := time.Duration(0)
	for n := int64(1); n < 200; n++ {
		r := jobs.Rest(n)
		if r < last || r <= 0 || r > 500*time.Millisecond {
			t.Fatalf("rest after %d failures is %v, after one less %v", n, r, last)
		}
		last = r
	}
	if last != 500*time.Millisecond {
		t.Fatalf("the longest rest is %v", last)
	}
}

// asynq retries a failed "done" with a context that it has cancelled itself. Unless that is
// replaced, the task, finished long ago, runs again after a minute.
func TestAFinishedTaskWhoseDoneFailedIsGoneSoon(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	faulty := redistest.NewFaulty(t, rdb)
	backend := redistest.Name(t, "done")
	q := jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler))
	done := "asynq:{" + backend + "}:processed"
	faulty.FailNext(func(cmd redis.Cmder) bool {
		return strings.HasPrefix(cmd.Name(), "eval") && slices.Contains(cmd.Args(), any(done))
	}, false)
	got := make(chan jobs.Ticket, 2)
	serve(t, q, func(ticket jobs.Ticket) { got <- ticket })
	if err := q.Send(t.Context(), tickets(backend, 1)); err != nil {
		t.Fatal(err)
	}
	receive(t, got)
	eventually(t, "the first done didn't fail", func() bool { return faulty.Armed() == 0 })
	// asynq's syncer tries again after 5 s. With the cancelled context only its recoverer would,
	// after 60 s.
	eventually(t, "the finished task is still there", func() bool {
		return len(taskKeys(t, rdb, backend)) == 0
	})
}

// Case C65.
//
// asynq's view of a task (a timeout, an expired lease, a cancel) never ends an attempt: only the
// line may.
func TestAHandlerOutlivesWhatAsynqThinksOfItsTask(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	backend := redistest.Name(t, "cancel")
	q := jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler))
	begun, free, finished := make(chan jobs.Ticket, 5), make(chan struct{}), make(chan struct{}, 5)
	serve(t, q, func(ticket jobs.Ticket) {
		begun <- ticket
		<-free
		finished <- struct{}{}
	})
	finish := sync.OnceFunc(func() { close(free) })
	t.Cleanup(finish)
	one := tickets(backend, 1)
	if err := q.Send(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	receive(t, begun)
	eventually(t, "asynq didn't cancel the task", func() bool {
		// again until asynq listens
		rdb.Publish(t.Context(), "asynq:cancel", fmt.Sprintf("%s:%d", one[0].ID, one[0].Run))
		return rdb.ZCard(t.Context(), "asynq:{"+backend+"}:retry").Val() == 1
	})
	finish()
	select {
	case <-finished:
	case <-time.After(10 * time.Second):
		t.Fatal("the handler never returned")
	}
}

// The commands that an idle server sends to Redis. About 5 a second are asynq's own housekeeping.
func BenchmarkIdleCommands(b *testing.B) {
	rdb := redistest.Client(b)
	backend := redistest.Name(b, "idle")
	count := countDequeues(rdb, backend)
	q := jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler))
	stop, err := q.Serve(func(jobs.Ticket) {})
	if err != nil {
		b.Fatal(err)
	}
	before, began := count.all.Load(), time.Now()
	for b.Loop() {
		<-time.After(time.Second)
	}
	b.ReportMetric(float64(count.all.Load()-before)/time.Since(began).Seconds(), "commands/s")
	if err := stop(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// The time from Send to the handler on an idle server.
func BenchmarkSendToHandler(b *testing.B) {
	rdb := redistest.Client(b)
	backend := redistest.Name(b, "latency")
	q := jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler))
	got := make(chan jobs.Ticket)
	stop, err := q.Serve(func(ticket jobs.Ticket) { got <- ticket })
	if err != nil {
		b.Fatal(err)
	}
	run := int64(0)
	id := jobs.NewID(backend)
	for b.Loop() {
		run++
		if err := q.Send(b.Context(), []jobs.Ticket{{ID: id, Run: run}}); err != nil {
			b.Fatal(err)
		}
		<-got
	}
	if err := stop(context.Background()); err != nil {
		b.Fatal(err)
	}
}

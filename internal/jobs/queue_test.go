package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// serve starts a queue's server and stops it at the end of the test.
func serve(
	t *testing.T, q *jobs.Queue, handle func(jobs.Ticket),
) (stop func(context.Context) error) {
	t.Helper()
	stop, err := q.Serve(handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return stop
}

func tickets(backend string, n int) []jobs.Ticket {
	all := make([]jobs.Ticket, n)
	for i := range all {
		all[i] = jobs.Ticket{ID: jobs.NewID(backend), Run: int64(i + 1),
			Due: 1_790_000_000_123_456 + int64(i)}
	}
	return all
}

func receive(t *testing.T, from <-chan jobs.Ticket) jobs.Ticket {
	t.Helper()
	select {
	case ticket := <-from:
		return ticket
	case <-time.After(10 * time.Second):
		t.Fatal("no ticket came")
		return jobs.Ticket{}
	}
}

func TestEveryTicketReachesAWorkerAsItWasSent(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	backend := redistest.Name(t, "carry")
	q := jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler))
	got := make(chan jobs.Ticket, 100)
	serve(t, q, func(ticket jobs.Ticket) { got <- ticket })
	sent := tickets(backend, 100)
	if err := q.Send(t.Context(), sent); err != nil {
		t.Fatal(err)
	}
	want := map[jobs.Ticket]bool{}
	for _, ticket := range sent {
		want[ticket] = true
	}
	for range sent {
		if ticket := receive(t, got); !want[ticket] {
			t.Fatalf("got %+v, which wasn't sent or came twice", ticket)
		} else {
			delete(want, ticket)
		}
	}
	eventually(t, "the queue keeps tasks after their end", func() bool {
		return len(taskKeys(t, rdb, backend)) == 0
	})
}

// If the reply to a Send is lost, its caller sends again.
func TestATicketSentTwiceIsInTheQueueOnce(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	backend := redistest.Name(t, "twice")
	q := jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler))
	one := tickets(backend, 1)
	for range 2 {
		if err := q.Send(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	if n := rdb.LLen(t.Context(), "asynq:{"+backend+"}:pending").Val(); n != 1 {
		t.Fatalf("%d messages wait, want 1", n)
	}
}

func TestSendSaysWhereItFailed(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	faulty := redistest.NewFaulty(t, rdb)
	backend := redistest.Name(t, "fails")
	q := jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler))
	sent := tickets(backend, 3)
	faulty.FailNext(func(cmd redis.Cmder) bool {
		return cmd.Name() == "evalsha" && strings.Contains(fmt.Sprint(cmd.Args()...), sent[1].ID)
	}, false)
	err := q.Send(t.Context(), sent)
	// asynq keeps only the text of the cause
	if err == nil || !strings.Contains(err.Error(), "message 2 of 3") {
		t.Fatalf("err = %v", err)
	}
	if n := rdb.LLen(t.Context(), "asynq:{"+backend+"}:pending").Val(); n != 2 {
		t.Fatalf("%d messages wait, want all but the one that failed", n)
	}
}

// A queue that stops takes no more tickets, and waits for handlers that run.
func TestStopWaitsForWhatRunsAndTakesNothingNew(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	backend := redistest.Name(t, "stop")
	q := jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler))
	begun, free := make(chan jobs.Ticket, 10), make(chan struct{})
	stop := serve(t, q, func(ticket jobs.Ticket) {
		begun <- ticket
		<-free
	})
	finish := sync.OnceFunc(func() { close(free) })
	t.Cleanup(finish)
	sent := tickets(backend, 2)
	if err := q.Send(t.Context(), sent[:1]); err != nil {
		t.Fatal(err)
	}
	receive(t, begun)

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := stop(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("stop = %v while a handler runs, want deadline exceeded", err)
	}
	if err := q.Send(t.Context(), sent[1:]); err != nil {
		t.Fatal(err)
	}
	finish()
	eventually(t, "the handler's end isn't noted", func() bool {
		return len(taskKeys(t, rdb, backend)) == 1
	})
	select {
	case ticket := <-begun:
		t.Fatalf("%+v was taken after the stop", ticket)
	default:
	}
	if n := rdb.LLen(t.Context(), "asynq:{"+backend+"}:pending").Val(); n != 1 {
		t.Fatalf("%d messages wait for another worker, want 1", n)
	}
}

func TestAnIdleQueueStopsAtOnce(t *testing.T) {
	t.Parallel()
	backend := redistest.Name(t, "idle")
	q := jobs.NewQueue(redistest.Client(t), backend, slog.New(slog.DiscardHandler))
	stop := serve(t, q, func(jobs.Ticket) {})
	began := time.Now()
	if err := stop(t.Context()); err != nil || time.Since(began) > 2*time.Second {
		t.Fatalf("stop: %v after %v", err, time.Since(began))
	}
}

// A message that isn't a ticket (from an older version, say) is dropped with a warning, and blocks
// nothing.
func TestAMessageThatIsNoTicketIsDropped(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{"", "x", "id 1", "id one 2", "id 1 two", "id 1 2 3",
		"id 99999999999999999999 1"} {
		if ticket, err := jobs.DecodeTicket([]byte(payload)); err == nil {
			t.Errorf("%q was read as %+v", payload, ticket)
		}
	}
	var log lines
	rdb := redistest.Client(t)
	backend := redistest.Name(t, "junk")
	q := jobs.NewQueue(rdb, backend, slog.New(slog.NewTextHandler(&log, nil)))
	got := make(chan jobs.Ticket, 1)
	serve(t, q, func(ticket jobs.Ticket) { got <- ticket })
	jobs.EnqueueRaw(t, rdb, backend, "junk")
	if err := q.Send(t.Context(), tickets(backend, 1)); err != nil {
		t.Fatal(err)
	}
	receive(t, got)
	eventually(t, "nothing was logged", func() bool { return log.contain("dropped a message") })
}

// taskKeys lists asynq's tasks of a queue, in any state.
func taskKeys(t *testing.T, rdb redis.UniversalClient, backend string) []string {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "asynq:{"+backend+"}:t:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func eventually(t *testing.T, otherwise string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(otherwise)
		}
	}
}

// lines is a log that tests read.
type lines struct {
	mu   sync.Mutex
	text []string // guarded by mu
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, string(p))
	return len(p), nil
}

func (l *lines) contain(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.text, func(line string) bool {
		return strings.Contains(line, part)
	})
}

// Case N22: Paused sees a queue that was paused with asynq's own tools.
func TestAPausedQueueSaysSo(t *testing.T) {
	t.Parallel()
	rdb, backend := redistest.Client(t), redistest.Name(t, "b")
	q := jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler))
	is := func(want bool) {
		t.Helper()
		if paused, err := q.Paused(t.Context()); err != nil || paused != want {
			t.Errorf("%v, %v, want %v", paused, err, want)
		}
	}
	is(false)
	resume := jobs.Pause(t, rdb, backend)
	is(true)
	resume()
	is(false)
}

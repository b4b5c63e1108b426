package jobs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// asynq polls: after a dequeue that found nothing it sleeps, and a job that comes meanwhile waits.
// Polling faster costs Redis more. asynq has no hook for a wake-up, but takes any
// redis.UniversalClient. The client that it gets here holds each dequeue back until this process
// has sent a ticket. The client also works around two faults of asynq 0.26: a busy loop while Redis
// answers with errors, and a canceled context on calls that must be made.

const (
	// holdTime bounds how long a dequeue of tickets is held back. Tickets of other processes, also
	// of killed ones, are found that late. It costs 10 calls a second on an idle queue.
	holdTime = 100 * time.Millisecond
	// Pauses after failed dequeues, doubling from the first to the longest, which is how late the
	// end of a Redis outage may be noticed.
	firstRest   = 10 * time.Millisecond
	longestRest = 500 * time.Millisecond
	// lateTime bounds a call whose own context was canceled before it was made.
	lateTime = 5 * time.Second
)

// gate holds dequeues back. open and close are safe for concurrent use.
type gate struct {
	hold   time.Duration // how long a dequeue is held back at most
	sent   chan struct{} // capacity 1: a ticket was sent since the last dequeue began
	closed chan struct{}
	once   sync.Once

	// These describe the last dequeue. asynq makes one at a time, but doesn't promise that, so they
	// are atomic.
	found    atomic.Bool  // it found a ticket, so there may be more
	failures atomic.Int64 // in a row
}

func newGate(hold time.Duration) *gate {
	return &gate{hold: hold, sent: make(chan struct{}, 1), closed: make(chan struct{})}
}

// open lets the next dequeue pass at once.
func (g *gate) open() {
	select {
	case g.sent <- struct{}{}:
	default: // already open
	}
}

// close ends every wait; no dequeue passes from now on.
func (g *gate) close() { g.once.Do(func() { close(g.closed) }) }

// pass waits until a dequeue is worth making. It reports false if none may be made any more.
func (g *gate) pass() bool {
	var hold time.Duration
	sent := g.sent
	if n := g.failures.Load(); n > 0 {
		// A ticket that is sent meanwhile doesn't end a rest: it would turn an outage into a storm
		// of calls.
		hold, sent = rest(n), nil
	} else if !g.found.Load() {
		hold = g.hold
	}
	select {
	case <-time.After(hold):
	case <-sent:
	case <-g.closed:
	}
	if g.isClosed() {
		time.Sleep(time.Millisecond) // asynq calls again without a pause until it has stopped
		return false
	}
	return true
}

func (g *gate) isClosed() bool {
	select {
	case <-g.closed:
		return true
	default:
		return false
	}
}

// rest returns the wait after n failures in a row.
func rest(n int64) time.Duration {
	return min(firstRest<<min(n-1, 16), longestRest)
}

// note records how a dequeue went.
func (g *gate) note(err error) {
	switch {
	case err == nil:
		g.found.Store(true)
		g.failures.Store(0)
	case errors.Is(err, redis.Nil):
		g.found.Store(false)
		g.failures.Store(0)
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		// asynq sends the script itself next.
	default:
		g.failures.Add(1)
	}
}

// dequeuer is the client of asynq's server of one queue. Calls other than dequeue pass through.
type dequeuer struct {
	redis.UniversalClient
	gate *gate
	keys []string // of the dequeue script, which is recognized by them
}

func newDequeuer(rdb redis.UniversalClient, queue string, g *gate) *dequeuer {
	p := "asynq:{" + queue + "}:"
	return &dequeuer{rdb, g, []string{p + "pending", p + "paused", p + "active", p + "lease"}}
}

// EvalSha is how asynq calls every script.
func (d *dequeuer) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if !slices.Equal(keys, d.keys) {
		ctx, cancel := d.outlasting(ctx)
		defer cancel()
		return d.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	if !d.gate.pass() {
		nothing := redis.NewCmd(ctx)
		nothing.SetErr(redis.Nil) // like an empty queue
		return nothing
	}
	cmd := d.UniversalClient.EvalSha(ctx, sha, keys, args...)
	d.gate.note(cmd.Err())
	return cmd
}

// Eval follows an EvalSha of a script that Redis didn't have. The gate has let that one pass.
func (d *dequeuer) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	dequeue := slices.Equal(keys, d.keys)
	ctx, cancel := d.outlasting(ctx)
	defer cancel()
	cmd := d.UniversalClient.Eval(ctx, script, keys, args...)
	if dequeue {
		d.gate.note(cmd.Err())
	}
	return cmd
}

// outlasting replaces a context that was canceled before the call. asynq retries a failed "done"
// with such a context: it would fail each time, until the finished task runs again. Once the gate
// is closed, the context is kept, because a stop with many such retries must not wait for a Redis
// that hangs.
func (d *dequeuer) outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	if !errors.Is(ctx.Err(), context.Canceled) || d.gate.isClosed() {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), lateTime)
}

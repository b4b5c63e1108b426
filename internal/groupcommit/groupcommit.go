// Package groupcommit lets concurrent requests share one call to the store.
//
// A Collector sends at once when no call is in flight (or few: see Overlap). Questions that arrive
// while a call is in flight are gathered and go out together as the next call, up to a bound. It
// never delays a call to gather more: a lone request doesn't wait. Under load the batch grows by
// itself to the number of requests that arrive in one round trip. The idea is the group commit of
// databases (DeWitt et al., "Implementation Techniques for Main Memory Database Systems", 1984).
//
// # What shares a call
//
// Admissions of one backend share calls, and so do other decisions of the limits, and looks at
// jobs. Decisions may have two calls in flight, so that Redis works on one batch while the process
// prepares the next. A shared call reads the state of each limit once, however many requests of the
// batch the limit applies to.
//
// Before it sends, a collector lets ready goroutines run. On a busy processor this makes the
// batches larger; on an idle one it costs nothing.
package groupcommit

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/forebay/forebay/internal/transfer"
)

// Call answers a batch: one answer for each question, in the same order, or one error for all. Its
// context ends at the collector's timeout and not with any caller's, so a client that hangs up
// doesn't cancel the call for the others of its batch.
type Call[Q, A any] func(ctx context.Context, batch []Q) ([]A, error)

// Collector gathers concurrent questions into shared calls. Safe for concurrent use.
type Collector[Q, A any] struct {
	call    Call[Q, A]
	timeout time.Duration
	weigh   func(Q) int // bytes of a question; nil: all are small

	mu           sync.Mutex
	small, large lane[Q, A] // guarded by mu
}

// lane holds questions that may share a call, and counts the calls in flight for them.
type lane[Q, A any] struct {
	max     int            // questions per call
	flights int            // calls in flight at most
	busy    int            // calls in flight
	waiting []*entry[Q, A] // not sent yet, oldest first
}

type entry[Q, A any] struct {
	ctx      context.Context // the caller's: once it has ended, the question is not sent
	question Q
	bytes    int
	answer   A
	err      error
	done     chan struct{} // closed when answer and err are set
}

// largeFlights is the number of large questions in flight at once: while Redis works on one, the
// next is on its way. More would only slow each other down.
const largeFlights = 2

// New returns a Collector whose calls carry at most max questions and end after timeout.
func New[Q, A any](max int, timeout time.Duration, call Call[Q, A]) *Collector[Q, A] {
	return &Collector[Q, A]{call: call, timeout: timeout,
		small: lane[Q, A]{max: max, flights: 1}, large: lane[Q, A]{max: 1, flights: largeFlights}}
}

// Weigh sets how many bytes a question has, and returns the collector. A call then carries at most
// transfer.Together. A question over transfer.Small goes alone, at most two at once, in a lane of
// its own, so that small ones don't wait behind it. A call's timeout grows by transfer.Time of its
// bytes. Weigh must be called before the first Do.
func (c *Collector[Q, A]) Weigh(bytes func(Q) int) *Collector[Q, A] {
	c.weigh = bytes
	return c
}

// A further call is worth its round trip once max/enough questions wait.
const enough = 4

// Overlap lets up to n calls be in flight at once, and returns the collector. A further call goes
// out only once a quarter of max waits. So the store works on one batch while the process prepares
// the next, and batches stay large. Overlap must be called before the first Do.
func (c *Collector[Q, A]) Overlap(n int) *Collector[Q, A] {
	c.small.flights = n
	return c
}

// Do asks q and returns its answer. When ctx ends first, Do returns ctx's error. A question whose
// call is under way may then still be carried out. One that still waits for a call is dropped, so a
// store that recovers from a hang isn't sent questions that their callers have given up.
func (c *Collector[Q, A]) Do(ctx context.Context, q Q) (A, error) {
	e := &entry[Q, A]{ctx: ctx, question: q, done: make(chan struct{})}
	if c.weigh != nil {
		e.bytes = c.weigh(q)
	}
	l := &c.small
	if e.bytes > transfer.Small {
		l = &c.large
	}
	c.mu.Lock()
	l.waiting = append(l.waiting, e)
	lead := l.busy == 0 || l.busy < l.flights && len(l.waiting) >= max(1, l.max/enough)
	if lead {
		l.busy++
	}
	c.mu.Unlock()

	if lead {
		// In a goroutine of its own, so that this caller, too, can return when its context ends.
		go c.drain(context.WithoutCancel(ctx), l)
	}
	select {
	case <-e.done:
		return e.answer, e.err
	case <-ctx.Done():
		var none A
		return none, ctx.Err()
	}
}

// drain sends batch after batch until no question waits in the lane.
func (c *Collector[Q, A]) drain(ctx context.Context, l *lane[Q, A]) {
	for {
		// Goroutines that are ready to run may be about to call Do, so let them run first. On an
		// idle processor this returns at once. Under load it makes batches a third larger.
		runtime.Gosched()
		c.send(ctx, c.take(l))
		if !c.more(l) {
			return
		}
	}
}

// take removes the oldest questions from the lane and returns those that go out together. Questions
// whose caller's context has ended are dropped.
func (c *Collector[Q, A]) take(l *lane[Q, A]) []*entry[Q, A] {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch, rest, bytes := make([]*entry[Q, A], 0, min(len(l.waiting), l.max)), l.waiting, 0
	for len(rest) > 0 && len(batch) < l.max {
		if next := rest[0]; next.ctx.Err() == nil {
			if bytes += next.bytes; bytes > transfer.Together && len(batch) > 0 {
				break
			}
			batch = append(batch, next)
		}
		rest = rest[1:]
	}
	l.waiting = rest
	return batch
}

// more reports whether questions wait in the lane. If none does, this call's goroutine no longer
// counts as busy.
func (c *Collector[Q, A]) more(l *lane[Q, A]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(l.waiting) > 0 {
		return true
	}
	l.busy--
	return false
}

func (c *Collector[Q, A]) send(ctx context.Context, batch []*entry[Q, A]) {
	if len(batch) == 0 {
		return
	}
	questions, bytes := make([]Q, len(batch)), 0
	for i, e := range batch {
		questions[i] = e.question
		bytes += e.bytes
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout+transfer.Time(bytes))
	defer cancel()
	answers, err := c.call(ctx, questions)
	if err == nil && len(answers) != len(batch) {
		err = fmt.Errorf("group commit: %d answers to %d questions", len(answers), len(batch))
	}
	for i, e := range batch {
		if err != nil {
			e.err = err
		} else {
			e.answer = answers[i]
		}
		close(e.done)
	}
}

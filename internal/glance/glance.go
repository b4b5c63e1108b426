// Package glance reads something once for all who ask within a moment, so that however many look,
// the store is asked as often as by one.
package glance

import (
	"context"
	"sync"
	"time"
)

// Seen is the last value that was read.
type Seen[T any] struct {
	Value T
	At    time.Time // when it was read; zero: never
	Err   error     // why there is no newer one; nil: it is as new as its Glance promises
}

// Glance is something that is read from time to time. Safe for concurrent use.
type Glance[T any] struct {
	read  func(context.Context) (T, error)
	fresh time.Duration
	limit time.Duration
	now   func() time.Time
	turn  chan struct{} // has a value while one reads

	mu   sync.Mutex
	seen Seen[T]   // guarded by mu
	next time.Time // guarded by mu: when it is to be read again
}

// New returns a Glance whose values are used again for fresh. A read may take up to limit, and no
// longer than the context of the call that makes it. now is the clock.
func New[T any](fresh, limit time.Duration, now func() time.Time,
	read func(context.Context) (T, error)) *Glance[T] {
	return &Glance[T]{read: read, fresh: fresh, limit: limit, now: now,
		turn: make(chan struct{}, 1)}
}

// Last returns what was seen last. It doesn't block.
func (g *Glance[T]) Last() Seen[T] {
	seen, _ := g.last()
	return seen
}

// last returns what was seen last, and whether that is fresh.
func (g *Glance[T]) last() (Seen[T], bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen, g.now().Before(g.next)
}

// Get returns what was seen within the time that it is fresh for, otherwise it reads, or waits for
// the one that does. A failure is used again for as long, with the value before: a store that fails
// isn't asked more often than one that doesn't. A read that fails because the caller's context has
// ended is no failure for the others. mine reports whether it was read for this call.
func (g *Glance[T]) Get(ctx context.Context) (seen Seen[T], mine bool) {
	if seen, fresh := g.last(); fresh {
		return seen, false
	}
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		seen := g.Last()
		seen.Err = ctx.Err()
		return seen, false
	}
	seen, fresh := g.last()
	if fresh {
		return seen, false
	}
	at := g.now()
	bounded, cancel := context.WithTimeout(ctx, g.limit)
	defer cancel()
	value, err := g.read(bounded)
	if seen.Err = err; err == nil {
		seen.Value, seen.At = value, at
	}
	if err != nil && ctx.Err() != nil {
		return seen, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen, g.next = seen, g.now().Add(g.fresh)
	return seen, true
}

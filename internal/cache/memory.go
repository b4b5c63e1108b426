package cache

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/maypok86/otter/v2"
)

const (
	// DefaultMemory is what a Memory holds unless told otherwise. A lost Redis should find the answers that are asked for again and
	// again: 64 MiB are some 6,000 of 10 KiB, and little beside what a process with results of MaxBody in flight takes.
	DefaultMemory = 64 << 20
	// MaxRemembered bounds a body that is held in memory. A larger one would push a hundred ordinary ones out, which more callers
	// miss; it stays in Redis alone.
	MaxRemembered = 1 << 20
	// entryBytes is what an answer takes in memory besides its texts: the entry and its places in the table, the queues and
	// the wheel of expiries. Measured: some 220 bytes. (Go's allocator rounds the texts up by at most an eighth, which isn't counted.)
	entryBytes = 256
)

// ErrLost says that the store is lost and this process remembers no such answer: there may be one in the store.
var ErrLost = errors.New("the store is lost, and this process remembers no such answer")

// Memory is a Cache that outlives its Redis: where Redis can't be read, it serves what it remembers. Safe for concurrent use.
//
// While Redis answers, its word is what holds: an answer that another process stored is seen, and one that is gone is forgotten. What
// this process remembers is only what passed through it: what it Put, what it Got, and what it was told to Remember.
//
// A remembered answer is served until it is as old as it may become, never longer. Its age is what it was, by Redis's clock, and the
// time since by this process's monotonic clock, which no step of the host's clock moves. (Time for which the host sleeps
// isn't counted by that.) The time of the read itself is counted in: an age errs upwards, by as long as Redis took.
//
// Its size is bounded: where it is full, the answers that are asked for least make way.
//
// The bodies that it returns are shared: nobody may write into them.
type Memory struct {
	inner   *Cache
	healthy func() bool
	entries *otter.Cache[string, entry]
}

// entry is a remembered answer.
type entry struct {
	answer   Answer        // its Age is what it was at
	at       time.Time     // by the monotonic clock
	staleFor time.Duration // how old it may become
	seen     time.Time     // when it was remembered
}

func (e entry) age(now time.Time) time.Duration { return e.answer.Age + now.Sub(e.at) }

// younger reports whether e's backend answered after f's.
func (e entry) younger(f entry) bool {
	return e.at.Add(-e.answer.Age).After(f.at.Add(-f.answer.Age))
}

// NewMemory returns a Memory before inner that holds at most maxBytes; 0 or less stands for DefaultMemory. Healthy reports whether
// Redis answers, at no cost: where it is false, Get doesn't wait for Redis. nil: always. Close ends its goroutine.
func NewMemory(inner *Cache, maxBytes int64, healthy func() bool) *Memory {
	if maxBytes <= 0 {
		maxBytes = DefaultMemory
	}
	if healthy == nil {
		healthy = func() bool { return true }
	}
	return &Memory{
		inner:   inner,
		healthy: healthy,
		entries: otter.Must(&otter.Options[string, entry]{ // it fails on contradicting options alone
			MaximumWeight: uint64(maxBytes),
			Weigher: func(key string, e entry) uint32 {
				return uint32(entryBytes + len(key) + len(e.answer.ContentType) + len(e.answer.Body)) // the texts are under 2 MiB
			},
			// It only makes room: whether an answer may still be served is decided when it is asked for, exactly.
			ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[string, entry]) time.Duration {
				return max(e.Value.staleFor-e.Value.age(time.Now()), 1)
			}),
		}),
	}
}

// Close ends the clean-up in the background. The Memory goes on working; but an answer too old to be served stays in memory until
// others need its room. Further calls do nothing.
func (m *Memory) Close() { m.entries.StopAllGoroutines() }

// Put stores a in Redis as Cache.Put does, with its errors, and remembers it, also where Redis failed. It asks Redis whether healthy
// or not: the answer should get there if it can.
func (m *Memory) Put(ctx context.Context, key string, a Answer, staleFor time.Duration, of Owner) error {
	began := time.Now() // a.Age is of now
	err := m.inner.Put(ctx, key, a, staleFor, of)
	m.remember(key, entry{answer: a, at: began, staleFor: staleFor})
	return err
}

// Remember keeps an answer that the caller knows to be good, until it is staleFor old; a.Age says how old it is. It writes nothing
// to Redis. What Put would refuse or drop it drops in silence, and so it does with what is older than what it remembers.
func (m *Memory) Remember(key string, a Answer, staleFor time.Duration) {
	m.remember(key, entry{answer: a, at: time.Now(), staleFor: staleFor})
}

// Get returns the answer stored under key and its age, and whether there is one: Redis's word, or what is remembered where
// Redis isn't healthy, fails, or hasn't answered when ctx ends. Where nothing is remembered then, the error is Redis's, or
// ErrLost where it wasn't asked.
func (m *Memory) Get(ctx context.Context, key string) (Answer, bool, error) {
	if !m.healthy() {
		return m.recall(key, ErrLost)
	}
	// The age is taken to be of now. Redis looked at its clock a little later, so it can't be more.
	began := time.Now()
	a, staleFor, ok, err := m.inner.read(ctx, key)
	if err != nil {
		return m.recall(key, err)
	}
	if !ok {
		m.forget(key, began)
		return Answer{}, false, nil
	}
	m.keep(key, entry{answer: a, at: began, staleFor: staleFor}, func(old entry) bool {
		return !old.seen.After(began)
	})
	return a, true, nil
}

// recall returns what is remembered, or else the error why there is nothing better.
func (m *Memory) recall(key string, lost error) (Answer, bool, error) {
	e, ok := m.entries.GetIfPresent(key)
	if !ok {
		return Answer{}, false, lost
	}
	e.answer.Age = e.age(time.Now())
	if e.answer.Age >= e.staleFor {
		return Answer{}, false, lost
	}
	return e.answer, true, nil
}

// remember keeps a caller's answer where it is fit for that.
func (m *Memory) remember(key string, e entry) {
	e.answer.Age = max(e.answer.Age, 0)
	if e.answer.check() != nil || e.answer.Age >= e.staleFor {
		return
	}
	if len(e.answer.Body) <= MaxRemembered {
		// The caller may go on with its buffers, and they may be larger than what is in them: that would escape the bound.
		e.answer.Body, e.answer.ContentType = bytes.Clone(e.answer.Body), strings.Clone(e.answer.ContentType)
	}
	m.keep(key, e, func(entry) bool { return false })
}

// keep takes e in, unless what is remembered is younger; overrides says whether that has to go all the same. What is too large to keep
// still replaces what is older: the last good answer or none.
func (m *Memory) keep(key string, e entry, overrides func(old entry) bool) {
	e.seen = time.Now()
	m.entries.Compute(key, func(old entry, found bool) (entry, otter.ComputeOp) {
		switch {
		case found && old.younger(e) && !overrides(old):
			return old, otter.CancelOp
		case len(e.answer.Body) > MaxRemembered:
			return entry{}, otter.InvalidateOp
		}
		return e, otter.WriteOp
	})
}

// forget drops what was remembered before the given moment: what came later may be in Redis by now.
func (m *Memory) forget(key string, before time.Time) {
	m.entries.ComputeIfPresent(key, func(old entry) (entry, otter.ComputeOp) {
		if old.seen.After(before) {
			return old, otter.CancelOp
		}
		return entry{}, otter.InvalidateOp
	})
}

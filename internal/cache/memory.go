package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/pubsub"
)

const (
	// DefaultMemory is the default bound of a Memory, in bytes. While Redis is unavailable, the
	// answers that are requested repeatedly should be in memory. 64 MiB hold some 6,000 answers of
	// 10 KiB, and are little compared to a process that has results of MaxBody in flight.
	DefaultMemory = 64 << 20
	// MaxRemembered bounds a body that is held in memory. A larger one would displace a hundred
	// ordinary ones, which more callers would miss; it stays in Redis alone.
	MaxRemembered = 1 << 20
	// entryBytes is the memory that an answer takes besides its texts: the entry, and its part of
	// the table, the queues and the wheel of expiries. Measured: some 220 bytes. (Go's allocator
	// rounds the texts up by at most an eighth, which isn't counted.)
	entryBytes = 256
)

const (
	// trust is how long a reply of Redis is used without asking again. A hot answer costs Redis one
	// read a second per process. An answer that another process stored, or that a purge removed, is
	// noticed within this time.
	trust = time.Second
	// readTime bounds a read of Redis, and so each caller's wait. The read continues if its first
	// caller gives up, because others may be waiting for it.
	readTime = time.Second
	// purgeLook is how often a process checks for purged answers.
	purgeLook = time.Second
)

// ErrUnavailable reports that the store is unavailable and that this process holds no such answer.
// The store may have one.
var ErrUnavailable = errors.New("the store is unavailable, and this process holds no such answer")

// Memory is a Cache in front of Redis that serves from memory while Redis is unavailable. It is
// safe for concurrent use.
//
// While Redis answers, Redis decides: an answer that another process stored is seen, and a removed
// one is forgotten. An answer read within the last second (trust) is served without asking again. A
// missing answer is asked for each time, since it may have been stored meanwhile. Concurrent reads
// of one answer are one read. If Redis can't be read, remembered answers are served: those that
// passed through Put or Get of this process.
//
// A remembered answer is never served beyond the age at which it expires. Its age is the age by
// Redis's clock when it was read, plus the time since by this process's monotonic clock, which
// doesn't step with the host's clock. (It doesn't count time for which the host sleeps.) The time
// of the read is included: an age errs upwards, by as long as Redis took.
//
// Its size is bounded: when it is full, the answers requested least are removed.
//
// Callers must not write into the bodies that it returns, which are shared.
type Memory struct {
	inner   *Cache
	healthy func() bool
	entries *otter.Cache[string, entry]
	purges  atomic.Uint64 // purges noticed: answers requested before the last one aren't served

	mu    sync.Mutex
	reads map[string]*read // guarded by mu: reads under way
}

// entry is a remembered answer.
type entry struct {
	answer  Answer        // its Age is the age at the time at
	at      time.Time     // by the monotonic clock
	keepFor time.Duration // the age at which it expires
	seen    time.Time     // when it was remembered
	stored  bool          // Redis had it at the time at, as far as is known
	purges  uint64        // purges noticed before it was requested
}

func (e entry) age(now time.Time) time.Duration { return e.answer.Age + now.Sub(e.at) }

// younger reports whether e's backend answered after f's.
func (e entry) younger(f entry) bool {
	return e.at.Add(-e.answer.Age).After(f.at.Add(-f.answer.Age))
}

// NewMemory returns a Memory in front of inner that holds at most maxBytes; 0 or less means
// DefaultMemory. healthy reports whether Redis answers, at no cost. While it returns false, Get
// doesn't wait for Redis. A nil healthy means always. Close ends the Memory's goroutine.
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
		reads:   map[string]*read{},
		entries: otter.Must(&otter.Options[string, entry]{ // fails only on contradicting options
			MaximumWeight: uint64(maxBytes),
			Weigher: func(key string, e entry) uint32 {
				// no overflow: the texts are under 2 MiB
				return uint32(entryBytes + len(key) + len(e.answer.ContentType) +
					len(e.answer.Fields) + len(e.answer.Body))
			},
			// This only frees memory: each read checks exactly whether the answer may still be
			// served.
			ExpiryCalculator: otter.ExpiryWritingFunc(func(
				e otter.Entry[string, entry],
			) time.Duration {
				return max(e.Value.keepFor-e.Value.age(time.Now()), 1)
			}),
		}),
	}
}

// Close ends the clean-up in the background. The Memory continues to work, but an expired answer
// then stays in memory until others need its room. Further calls do nothing.
func (m *Memory) Close() { m.entries.StopAllGoroutines() }

// Run applies the removals of other processes until ctx ends: single answers as they are removed;
// purges and missed messages within about a second. Without it, removals are noticed only when
// Redis is asked for an answer.
func (m *Memory) Run(ctx context.Context) {
	news := pubsub.Read(pubsub.Config{Redis: m.inner.rdb,
		Topics: map[string]func(string){forgottenNews: m.drop}})
	defer func() { _ = news.Close() }()
	tick := time.NewTicker(purgeLook)
	defer tick.Stop()
	// Whether earlier answers were removed since is unknown before the first look.
	known := removals{}
	for {
		if m.healthy() {
			known = m.catchUp(ctx, known)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// removals are the removals that a process has noticed.
type removals struct {
	some      bool   // false before the first look
	purges    string // the text that each purge changes
	forgotten int64  // how many single answers were removed
}

// catchUp drops the answers removed since the known removals, and returns those known now.
func (m *Memory) catchUp(ctx context.Context, known removals) removals {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	purges, err := m.inner.purged(ctx)
	if err != nil {
		return known
	}
	keys, n, missed, err := m.inner.forgotten(ctx, known.forgotten)
	switch {
	case err != nil:
		return known
	case !known.some, missed, purges != known.purges:
		m.forgetAll()
	default:
		for _, key := range keys {
			m.drop(key)
		}
	}
	return removals{some: true, purges: purges, forgotten: n}
}

// Put stores a in Redis as Cache.Put does, with its errors, and remembers it even if Redis failed.
// It calls Redis whether healthy or not, so that the answer gets there if it can.
func (m *Memory) Put(ctx context.Context, key string, a Answer, keepFor time.Duration,
	of Owner) error {
	// a.Age is the age now
	e := entry{answer: a, at: time.Now(), keepFor: keepFor, purges: m.purges.Load()}
	var err error
	e.stored, err = m.inner.put(ctx, key, a, keepFor, of)
	e.answer.Age = max(a.Age, 0)
	if e.answer.check() != nil || e.answer.Age >= keepFor {
		return err
	}
	if len(a.Body) <= MaxRemembered {
		// The caller may reuse its buffers, and they may be larger than their content, which the
		// bound wouldn't count.
		e.answer.Body, e.answer.ContentType = bytes.Clone(a.Body), strings.Clone(a.ContentType)
		e.answer.Fields = jobs.Fields(strings.Clone(string(a.Fields)))
	}
	m.keep(key, e, func(entry) bool { return false }, new(atomic.Bool))
	return err
}

// Get returns the answer stored under key and its age, and whether there is one. It returns Redis's
// reply, or the remembered answer if Redis isn't healthy, fails, or hasn't answered when ctx ends.
// If no answer is remembered then, the error is Redis's or ctx's, or ErrUnavailable if Redis wasn't
// asked. An answer that was in Redis when Get was called is found.
func (m *Memory) Get(ctx context.Context, key string) (Answer, bool, error) {
	if !m.healthy() {
		return m.recall(key, ErrUnavailable)
	}
	if e, ok := m.known(key); ok && e.stored && time.Since(e.at) < trust {
		return e.served()
	}
	for again := false; ; again = true {
		r, first := m.join(key)
		select {
		case <-r.done:
		case <-ctx.Done():
			return m.recall(key, fmt.Errorf("read stored answer: %w", context.Cause(ctx)))
		}
		switch {
		case r.err != nil:
			return m.recall(key, r.err)
		case r.found:
			return r.entry.served()
		case first || again:
			return Answer{}, false, nil
		}
		// That read began before this call, so the answer may have been stored meanwhile. A read
		// that begins now decides.
	}
}

// served returns the answer with its present age, or none if it has expired.
func (e entry) served() (Answer, bool, error) {
	if e.answer.Age = e.age(time.Now()); e.answer.Age >= e.keepFor {
		return Answer{}, false, nil
	}
	return e.answer, true, nil
}

// known returns the remembered answer, expired or not.
func (m *Memory) known(key string) (entry, bool) {
	e, ok := m.entries.GetIfPresent(key)
	return e, ok && e.purges == m.purges.Load()
}

// recall returns the remembered answer, or otherwise the error that kept Redis's from being read.
func (m *Memory) recall(key string, unread error) (Answer, bool, error) {
	if e, ok := m.known(key); ok {
		if a, ok, _ := e.served(); ok {
			return a, true, nil
		}
	}
	return Answer{}, false, unread
}

// read is one read of Redis, shared by all callers that ask for its key meanwhile. Its results may
// be read once done is closed.
type read struct {
	done chan struct{}
	// old: it began before the answer was forgotten. No further caller joins it, and its result
	// isn't remembered.
	old   atomic.Bool
	entry entry
	found bool
	err   error
}

// join returns the read of the key that is under way, or begins one.
func (m *Memory) join(key string) (r *read, first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.reads[key]; r != nil {
		return r, false
	}
	r = &read{done: make(chan struct{})}
	m.reads[key] = r
	go func() {
		m.ask(key, r)
		m.mu.Lock()
		if m.reads[key] == r {
			delete(m.reads, key)
		}
		m.mu.Unlock()
		close(r.done)
	}()
	return r, true
}

// ask reads the key from Redis, and remembers the result.
func (m *Memory) ask(key string, r *read) {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	// The age is taken to be that of now. Redis reads its clock a little later, so it can't be
	// more.
	r.entry = entry{at: time.Now(), stored: true, purges: m.purges.Load()}
	r.entry.answer, r.entry.keepFor, r.found, r.err = m.inner.read(ctx, key)
	switch {
	case r.err != nil:
	case r.found:
		m.keep(key, r.entry, func(old entry) bool { return !old.seen.After(r.entry.at) }, &r.old)
	default:
		m.forget(key, r.entry.at)
	}
}

// keep remembers e, unless a younger answer is remembered that overrides doesn't give up. An answer
// too large to keep still removes an older one: the last good answer is served, or none. Nothing is
// remembered once void is set.
func (m *Memory) keep(key string, e entry, overrides func(old entry) bool, void *atomic.Bool) {
	e.seen = time.Now()
	m.entries.Compute(key, func(old entry, found bool) (entry, otter.ComputeOp) {
		switch {
		case e.purges != m.purges.Load(), void.Load():
			return old, otter.CancelOp // it may have been purged
		case found && old.purges == e.purges && old.younger(e) && !overrides(old):
			return old, otter.CancelOp
		case len(e.answer.Body) > MaxRemembered:
			return entry{}, otter.InvalidateOp
		}
		return e, otter.WriteOp
	})
}

// forget drops an answer remembered before the given moment. A later one may be in Redis by now.
func (m *Memory) forget(key string, before time.Time) {
	m.entries.ComputeIfPresent(key, func(old entry) (entry, otter.ComputeOp) {
		if old.seen.After(before) {
			return old, otter.CancelOp
		}
		return entry{}, otter.InvalidateOp
	})
}

// Forget is Cache.Forget. This process's own copy is dropped at once, even if Redis failed.
func (m *Memory) Forget(ctx context.Context, key string) error {
	err := m.inner.Forget(ctx, key)
	m.drop(key)
	return err
}

// Hide is Cache.Hide. This process's own copy is dropped at once.
func (m *Memory) Hide(ctx context.Context, key, client string) error {
	err := m.inner.Hide(ctx, key, client)
	m.drop(key)
	return err
}

// drop drops the remembered answer to the key, and the result of a read under way.
func (m *Memory) drop(key string) {
	m.mu.Lock()
	if r := m.reads[key]; r != nil {
		r.old.Store(true) // before the copy is dropped: the read may be about to restore it
		delete(m.reads, key)
	}
	m.mu.Unlock()
	m.forget(key, time.Now())
}

// forgetAll drops all answers, and the results of all reads under way.
func (m *Memory) forgetAll() {
	m.purges.Add(1)
	m.entries.InvalidateAll()
}

// Holding is Cache.Holding.
func (m *Memory) Holding(ctx context.Context, operation string) (Holding, error) {
	return m.inner.Holding(ctx, operation)
}

// Inspect is Cache.Inspect: it shows Redis's answer.
func (m *Memory) Inspect(ctx context.Context, key string) (Entry, bool, error) {
	return m.inner.Inspect(ctx, key)
}

// Purge is Cache.Purge. All copies of this process are dropped at once.
func (m *Memory) Purge(ctx context.Context, f Filter) (removed int, err error) {
	removed, err = m.inner.Purge(ctx, f)
	if !errors.Is(err, ErrNoFilter) {
		m.forgetAll()
	}
	return removed, err
}

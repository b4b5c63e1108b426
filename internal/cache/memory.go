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

const (
	// trust is how long Redis's word holds without being asked for again. So a hot answer costs Redis one read a second and process; and one
	// that another process has stored, or a purge removed, is seen at most so much later.
	trust = time.Second
	// readTime bounds a read of Redis, which goes on although who asked first has gone: others may wait for it. Nobody waits longer.
	readTime = time.Second
	// purgeLook is how often a process asks whether answers were purged.
	purgeLook = time.Second
)

// ErrLost says that the store is lost and this process remembers no such answer: there may be one in the store.
var ErrLost = errors.New("the store is lost, and this process remembers no such answer")

// Memory is a Cache in front of Redis that also outlives it. Safe for concurrent use.
//
// While Redis answers, its word is what holds: an answer that another process stored is seen, and one that is gone is forgotten. What it said
// within the last second (trust) isn't asked for again, but for an answer that it didn't have, since that may be there by now. Concurrent reads of one
// answer are one. Where Redis can't be read, what is remembered is served: what passed through this process, Put or Got.
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
	purges  atomic.Uint64 // that this process has heard of: what was asked for before the last isn't served

	mu    sync.Mutex
	reads map[string]*read // guarded by mu: those under way
}

// entry is a remembered answer.
type entry struct {
	answer  Answer        // its Age is what it was at
	at      time.Time     // by the monotonic clock
	keepFor time.Duration // how old it may become
	seen    time.Time     // when it was remembered
	stored  bool          // Redis had it at, as far as is known
	purges  uint64        // that had been heard of before it was asked for
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
		reads:   map[string]*read{},
		entries: otter.Must(&otter.Options[string, entry]{ // it fails on contradicting options alone
			MaximumWeight: uint64(maxBytes),
			Weigher: func(key string, e entry) uint32 {
				return uint32(entryBytes + len(key) + len(e.answer.ContentType) + len(e.answer.Fields) + len(e.answer.Body)) // the texts are under 2 MiB
			},
			// It only makes room: whether an answer may still be served is decided when it is asked for, exactly.
			ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[string, entry]) time.Duration {
				return max(e.Value.keepFor-e.Value.age(time.Now()), 1)
			}),
		}),
	}
}

// Close ends the clean-up in the background. The Memory goes on working; but an answer too old to be served stays in memory until
// others need its room. Further calls do nothing.
func (m *Memory) Close() { m.entries.StopAllGoroutines() }

// Run keeps up with what other processes remove, until ctx ends: single answers as they are removed, and whatever was missed of that, and
// purges, within about a second. Without it they are noticed as Redis is asked for single answers.
func (m *Memory) Run(ctx context.Context) {
	news := m.inner.rdb.Subscribe(ctx, forgottenNews)
	defer func() { _ = news.Close() }()
	heard := news.Channel()
	tick := time.NewTicker(purgeLook)
	defer tick.Stop()
	known := removals{} // it isn't known of what was remembered before the first look whether it was removed since
	for {
		if m.healthy() {
			known = m.catchUp(ctx, known)
		}
		for looks := false; !looks; {
			select {
			case <-tick.C:
				looks = true
			case message, ok := <-heard:
				if !ok {
					heard = nil
					continue
				}
				m.drop(message.Payload)
			case <-ctx.Done():
				return
			}
		}
	}
}

// removals are those that a process has heard of.
type removals struct {
	some      bool   // false: it hasn't looked yet
	purges    string // the text that each purge changes
	forgotten int64  // how many single answers were removed
}

// catchUp drops what was removed since the removals that are known, and returns those that are known then.
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

// Put stores a in Redis as Cache.Put does, with its errors, and remembers it, also where Redis failed. It asks Redis whether healthy
// or not: the answer should get there if it can.
func (m *Memory) Put(ctx context.Context, key string, a Answer, keepFor time.Duration, of Owner) error {
	e := entry{answer: a, at: time.Now(), keepFor: keepFor, purges: m.purges.Load()} // a.Age is of now
	var err error
	e.stored, err = m.inner.put(ctx, key, a, keepFor, of)
	e.answer.Age = max(a.Age, 0)
	if e.answer.check() != nil || e.answer.Age >= keepFor {
		return err
	}
	if len(a.Body) <= MaxRemembered {
		// The caller may go on with its buffers, and they may be larger than what is in them: that would escape the bound.
		e.answer.Body, e.answer.ContentType = bytes.Clone(a.Body), strings.Clone(a.ContentType)
		e.answer.Fields = jobs.Fields(strings.Clone(string(a.Fields)))
	}
	m.keep(key, e, func(entry) bool { return false }, new(atomic.Bool))
	return err
}

// Get returns the answer stored under key and its age, and whether there is one: Redis's word, or what is remembered where
// Redis isn't healthy, fails, or hasn't answered when ctx ends. Where nothing is remembered then, the error is Redis's or ctx's, or
// ErrLost where Redis wasn't asked. An answer that was in Redis when Get was called is found.
func (m *Memory) Get(ctx context.Context, key string) (Answer, bool, error) {
	if !m.healthy() {
		return m.recall(key, ErrLost)
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
		// That read began before this call: the answer may have come between. One that begins now tells.
	}
}

// served is what a remembered answer is served as.
func (e entry) served() (Answer, bool, error) {
	if e.answer.Age = e.age(time.Now()); e.answer.Age >= e.keepFor {
		return Answer{}, false, nil
	}
	return e.answer, true, nil
}

// known returns what is remembered, whether it is too old or not.
func (m *Memory) known(key string) (entry, bool) {
	e, ok := m.entries.GetIfPresent(key)
	return e, ok && e.purges == m.purges.Load()
}

// recall returns what is remembered, or else the error why there is nothing better.
func (m *Memory) recall(key string, lost error) (Answer, bool, error) {
	if e, ok := m.known(key); ok {
		if a, ok, _ := e.served(); ok {
			return a, true, nil
		}
	}
	return Answer{}, false, lost
}

// read is one of Redis that all wait for who ask for the key meanwhile. Its results are to be read once done is closed.
type read struct {
	done  chan struct{}
	old   atomic.Bool // it began before the answer was to be forgotten: nobody else joins it, and it isn't remembered
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

// ask reads the key from Redis, and remembers what it says.
func (m *Memory) ask(key string, r *read) {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	// The age is taken to be of now. Redis looks at its clock a little later, so it can't be more.
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

// keep takes e in, unless what is remembered is younger; overrides says whether that has to go all the same. What is too large to keep
// still replaces what is older: the last good answer or none. Nothing is taken in once void is set.
func (m *Memory) keep(key string, e entry, overrides func(old entry) bool, void *atomic.Bool) {
	e.seen = time.Now()
	m.entries.Compute(key, func(old entry, found bool) (entry, otter.ComputeOp) {
		switch {
		case e.purges != m.purges.Load(), void.Load():
			return old, otter.CancelOp // it may be what was purged
		case found && old.purges == e.purges && old.younger(e) && !overrides(old):
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

// Forget is Cache.Forget, and what this process remembers under the key is dropped at once, also where Redis failed.
func (m *Memory) Forget(ctx context.Context, operation, key string) error {
	err := m.inner.Forget(ctx, operation, key)
	m.drop(key)
	return err
}

// Hide is Cache.Hide, and what this process remembers under the key is dropped at once.
func (m *Memory) Hide(ctx context.Context, key, client string) error {
	err := m.inner.Hide(ctx, key, client)
	m.drop(key)
	return err
}

// drop drops what is remembered under the key, and what is on its way here.
func (m *Memory) drop(key string) {
	m.mu.Lock()
	if r := m.reads[key]; r != nil {
		r.old.Store(true) // before what is remembered goes: it may be about to bring that back
		delete(m.reads, key)
	}
	m.mu.Unlock()
	m.forget(key, time.Now())
}

// forgetAll drops everything, and whatever is on its way here.
func (m *Memory) forgetAll() {
	m.purges.Add(1)
	m.entries.InvalidateAll()
}

// Holding is Cache.Holding.
func (m *Memory) Holding(ctx context.Context, operation string) (Holding, error) {
	return m.inner.Holding(ctx, operation)
}

// Inspect is Cache.Inspect: it tells what Redis has.
func (m *Memory) Inspect(ctx context.Context, key string) (Entry, bool, error) {
	return m.inner.Inspect(ctx, key)
}

// Purge is Cache.Purge, and what this process remembers is dropped at once.
func (m *Memory) Purge(ctx context.Context, f Filter) (removed int, err error) {
	removed, err = m.inner.Purge(ctx, f)
	if !errors.Is(err, ErrNoFilter) {
		m.forgetAll()
	}
	return removed, err
}

package limits

import (
	"context"
	"math"
	"sync"
	"time"
)

const (
	maxKept    = 100_000 // counts that a process keeps in memory: about 30 MB
	sweepFrom  = 1_000   // counts from which stale ones are dropped
	sweepLooks = 4       // counts checked for each new one: over 1, so that stale ones become fewer
)

// memory is a source within this process. It is the Go model of limits.lua: it gives the same
// answers to the same questions.
type memory struct {
	clock func() int64 // µs since 1970

	mu   sync.Mutex
	kept map[string]*kept // guarded by mu
}

type kept struct {
	rule  *Rule
	state state
}

// NewLocal returns a Limiter that counts in this process alone, without Redis. It keeps at most
// 100,000 counts. For each one beyond that, it drops the least used of a few others.
func NewLocal() *Limiter {
	return NewLocalAt(time.Now)
}

// NewLocalAt is NewLocal with another clock, so that an hour of a limit can be simulated at once.
// The clock must be safe for concurrent use.
func NewLocalAt(clock func() time.Time) *Limiter {
	return newLocal(func() int64 { return clock().UnixMicro() })
}

func newLocal(clock func() int64) *Limiter {
	m := newMemory(clock)
	return &Limiter{ask: func(_ context.Context, q *question) (answer, error) {
		return m.answer(q, make([]fill, len(q.rules))), nil
	}}
}

func newMemory(clock func() int64) *memory {
	return &memory{clock: clock, kept: map[string]*kept{}}
}

// answer decides one question. The answer's fills are those given, one for each rule.
func (m *memory) answer(q *question, fills []fill) answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found [MaxRules]*kept
	a := answer{now: m.clock(), spent: q.mode == spend, fills: fills}
	for i, r := range q.rules {
		k := m.find(q.keys[i], r, a.now, q.mode != peek)
		found[i], fills[i] = k, r.arithmetic.load(&k.state, a.now)
		a.spent = a.spent && (r.fits(fills[i], q.takes(i)) || r.limit.Shadow)
	}
	for i, r := range q.rules {
		c := charge{q.takes(i), q.at, q.member}
		switch k := found[i]; {
		case q.mode == refund:
			fills[i] = r.arithmetic.refund(&k.state, fills[i], a.now, c)
		case a.spent && r.fits(fills[i], c.cost):
			fills[i] = r.arithmetic.spend(&k.state, fills[i], a.now, c)
			if r.limit.Shadow {
				a.passed |= 1 << i
			}
		case r.kind == kindLog && !r.fits(fills[i], c.cost):
			fills[i].wait = r.arithmetic.(log).fitsAt(&k.state, fills[i], a.now, c.cost)
		}
	}
	return a
}

// find returns the state of a key. If the key is new, its state is kept only if keep is set.
func (m *memory) find(key string, r *Rule, now int64, keep bool) *kept {
	if k, ok := m.kept[key]; ok {
		k.rule = r // it may have been scaled
		return k
	}
	k := &kept{rule: r}
	if keep {
		m.sweep(now)
		m.kept[key] = k
	}
	return k
}

// sweep is called for each new key. It checks a few others and drops those whose count equals an
// unused one. If there are too many keys, it also drops the one of those few with the most room: a
// client that has used up a limit must not get rid of its count by causing new keys.
func (m *memory) sweep(now int64) {
	if len(m.kept) < sweepFrom {
		return
	}
	looks, loosest, most := sweepLooks, "", math.Inf(-1)
	for key, k := range m.kept {
		f := k.rule.arithmetic.load(&k.state, now)
		if f == k.rule.arithmetic.load(&state{}, now) {
			delete(m.kept, key)
		} else if free := float64(f.room) / float64(k.rule.capacity*k.rule.unit); free > most {
			loosest, most = key, free
		}
		if looks--; looks == 0 {
			break
		}
	}
	if len(m.kept) >= maxKept {
		delete(m.kept, loosest)
	}
}

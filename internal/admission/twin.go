package admission

import (
	"context"
	"sync"
	"time"
)

const (
	maxKept   = 100_000 // counts that a process keeps by itself: about 20 MB
	sweepFrom = 1_000   // counts from which to look for stale ones
)

// memory is a source within this process: the twin of limits.lua, with the same answers to the same questions.
type memory struct {
	clock func() int64 // µs since 1970

	mu   sync.Mutex
	kept map[string]kept // guarded by mu
}

type kept struct {
	rule  *Rule
	state state
}

// NewLocal returns a Limiter that counts in this process alone, without Redis. It keeps at most 100,000 counts;
// over that it forgets some at random.
func NewLocal() *Limiter {
	return newLocal(func() int64 { return time.Now().UnixMicro() })
}

func newLocal(clock func() int64) *Limiter {
	m := &memory{clock: clock, kept: map[string]kept{}}
	return &Limiter{ask: func(_ context.Context, q *question) (answer, error) { return m.answer(q), nil }}
}

// answer decides one question.
func (m *memory) answer(q *question) answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := answer{now: m.clock(), fills: make([]fill, len(q.rules))}
	a.spent = q.mode == spend
	for i, r := range q.rules {
		a.fills[i] = m.load(q.keys[i], r, a.now)
		a.spent = a.spent && r.fits(a.fills[i], q.cost)
	}
	for i, r := range q.rules {
		switch {
		case q.mode == refund:
			a.fills[i] = r.arithmetic.refund(a.fills[i], a.now, q.cost, q.at)
		case a.spent:
			a.fills[i].room -= q.cost * r.unit
		default:
			continue
		}
		m.keep(q.keys[i], r, a.fills[i], a.now)
	}
	return a
}

func (m *memory) load(key string, r *Rule, now int64) fill {
	k, ok := m.kept[key]
	if !ok {
		return r.arithmetic.fresh(now)
	}
	f, ahead := r.arithmetic.load(k.state, now)
	if ahead {
		m.keep(key, r, f, now)
	}
	return f
}

// keep stores a key. For each new one it looks at a few others and drops those that are as good as fresh; where there
// are too many keys, any.
func (m *memory) keep(key string, r *Rule, f fill, now int64) {
	if _, ok := m.kept[key]; !ok && len(m.kept) >= sweepFrom {
		looks := 4
		for other, k := range m.kept {
			f, _ := k.rule.arithmetic.load(k.state, now)
			if len(m.kept) >= maxKept || f == k.rule.arithmetic.fresh(now) {
				delete(m.kept, other)
			}
			if looks--; looks == 0 {
				break
			}
		}
	}
	m.kept[key] = kept{r, r.arithmetic.store(f, now)}
}

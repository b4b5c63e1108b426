package limits

import (
	"math"
	"sync"
)

// Scaled returns the limit with its amount and burst times factor, rounded down, from 1 to the most
// that its algorithm can keep.
func (l Limit) Scaled(factor float64) Limit {
	scale := func(n int64) int64 {
		return int64(min(max(1, math.Floor(float64(n)*factor+1e-9)), MaxAmount))
	}
	l.Amount = scale(l.Amount)
	if l.Burst != 0 {
		l.Burst = scale(l.Burst)
	}
	if l.Algorithm == SlidingWindowLog {
		l.Amount = min(l.Amount, MaxLog)
	}
	return l
}

// Scaled returns the rule of the scaled limit. The counts of r hold against the new amount, except
// a bucket's: it counts in parts of its own rate, so the scaled one begins full.
func (r *Rule) Scaled(factor float64) (*Rule, error) {
	l, counted := r.limit.Scaled(factor), r.counted
	if l.Algorithm.HasBurst() {
		counted = l
	}
	return newRule(l, counted)
}

// variants remembers the scaled variants of rules. Safe for concurrent use.
type variants struct {
	mu    sync.Mutex
	rules map[variant]*Rule // guarded by mu
}

type variant struct {
	rule   *Rule
	factor float64
}

// maxVariants bounds what is remembered: clients with rules of their own come and go, and their old
// rules are never asked for again.
const maxVariants = 10_000

// of returns rule times factor. If that is too fine to be counted, it returns the whole rule, the
// nearest one that can be kept.
func (s *variants) of(rule *Rule, factor float64) *Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := variant{rule, factor}
	if known, ok := s.rules[key]; ok {
		return known
	}
	part, err := rule.Scaled(factor)
	if err != nil {
		part = rule
	}
	if s.rules == nil || len(s.rules) >= maxVariants {
		s.rules = make(map[variant]*Rule)
	}
	s.rules[key] = part
	return part
}

package limits

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Region makes a Limiter count together with other regions, each of which has a Redis of its own
// (package region). Its methods are safe for concurrent use and return at once.
type Region interface {
	// Lost reports whether the region doesn't learn what the others spend. It then applies its
	// share of every limit, except concurrency limits, which count the region's own jobs.
	Lost() bool
	// Share returns the region's part of every limit while Lost: above 0, at most 1.
	Share() float64
	// Spent takes what a decision charged and, with costs below 0, what was refunded, for the other
	// regions to debit. It doesn't keep the slice.
	Spent(debits []Debit)
}

// Debit is a cost that was spent of one key in one region, for the others to take from their own
// counts. It says how the key counts, so a region debits keys whose rule it doesn't know.
type Debit struct {
	Key        string
	Parameters [5]int64 // how the key counts
	Cost       int64    // requests, or bytes where the limit counts those; below 0: refunded
	At         int64    // when it was spent, in µs since 1970 by the clock of that region's store
}

// Join makes the limiter count together with other regions. It must be called before the first
// decision.
func (l *Limiter) Join(r Region) { l.region = r }

// Debit takes what other regions spent from the counts of a limiter on Redis, whether it fits or
// not. Of a cost over MaxAmount it takes MaxAmount, since no limit has more. It skips debits of
// cost 0 and of unknown algorithms. Debits share script calls, and no call outlasts the given time.
// After an error some of them may have been made.
func (l *Limiter) Debit(ctx context.Context, debits []Debit, within time.Duration) error {
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	slots := make(chan struct{}, maxBatch)
	by := time.Now().Add(within)
	for _, d := range debits {
		kind := d.Parameters[0]
		if d.Cost == 0 || kind < kindBucket || kind > kindLog {
			continue
		}
		cost := max(-MaxAmount, min(MaxAmount, d.Cost))
		rule := &Rule{parameters: d.Parameters, kind: kind, unit: d.Parameters[1]}
		q := &question{mode: refund, cost: -cost, at: d.At, by: by,
			rules: []*Rule{rule}, keys: []string{d.Key}}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if _, err := l.ask(ctx, q); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// report hands the charge to the region, if there is one, for the others to debit.
func (c *charged) report(r Region) {
	if r != nil {
		c.region = r
		r.Spent(c.debits(1, 0))
	}
}

// debits returns what a decision charged (sign 1) or gave back (-1), except for a cost that was
// kept. Permits of concurrency limits are not among them: they are a region's own.
func (c *charged) debits(sign, kept int64) []Debit {
	var debits []Debit
	for i, q := range c.questions {
		for j, rule := range q.rules {
			if rule.kind == kindConcurrency || !c.answers[i].spentOn(q, j) {
				continue
			}
			cost := sign * q.takes(j)
			if !rule.limit.Bytes {
				cost += kept
			}
			debits = append(debits,
				Debit{Key: q.keys[j], Parameters: rule.widest, Cost: cost, At: c.answers[i].now})
		}
	}
	return debits
}

// rulesNow returns the rules of a request as they apply now: whole, or the region's share of them.
func (l *Limiter) rulesNow(whole []*Rule) []*Rule {
	if l.region == nil || !l.region.Lost() {
		return whole
	}
	share := l.region.Share()
	rules := make([]*Rule, len(whole))
	for i, rule := range whole {
		rules[i] = rule
		if rule.kind != kindConcurrency {
			rules[i] = l.shares.of(rule, share)
		}
	}
	return rules
}

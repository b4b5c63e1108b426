package limits

import (
	"context"
	"errors"
)

// Fallback decides by a shared Limiter, and goes on by itself where that can't decide: each process by the twin, with its part of
// every limit. What is spent then is not known to Redis later: when it is back, its counts go on from where they were. Safe for
// concurrent use.
type Fallback struct {
	shared, own *Limiter
	peers       func() int
	healthy     func() bool

	parts variants[float64]
}

// NewFallback returns a Fallback. peers is how many processes share the limits, healthy whether the shared Limiter can be asked
// without waiting for nothing.
func NewFallback(shared *Limiter, peers func() int, healthy func() bool) *Fallback {
	return &Fallback{shared: shared, own: NewLocal(), peers: peers, healthy: healthy}
}

// Decide is Limiter.Decide, of the shared limits or of this process's part. Its errors are the caller's mistakes: ErrCost and ErrRules.
func (f *Fallback) Decide(ctx context.Context, r Request) (Verdict, error) {
	if f.healthy() {
		v, err := f.shared.Decide(ctx, r)
		if err == nil || isMistake(err) {
			return v, err
		}
	}
	v, err := f.own.Decide(context.WithoutCancel(ctx), f.share(r)) // its time may have gone to a Redis that hangs
	if v.charge != nil {
		v.charge.tell(f.shared.region)
	}
	v.Alone = err == nil
	return v, err
}

// Peek is Limiter.Peek, as Decide would decide.
func (f *Fallback) Peek(ctx context.Context, r Request) (Verdict, error) {
	if f.healthy() {
		v, err := f.shared.Peek(ctx, r)
		if err == nil || isMistake(err) {
			return v, err
		}
	}
	return f.own.Peek(context.WithoutCancel(ctx), f.share(r))
}

// Refund gives back what a verdict of this Fallback charged, to where it was charged.
func (f *Fallback) Refund(ctx context.Context, v Verdict) error { return f.shared.Refund(ctx, v) }

// Settle is Limiter.Settle, where it was charged.
func (f *Fallback) Settle(ctx context.Context, v Verdict, cost int64) error {
	return f.shared.Settle(ctx, v, cost)
}

func isMistake(err error) bool {
	return errors.Is(err, ErrCost) || errors.Is(err, ErrRules) || errors.Is(err, errNoSubject)
}

// share is the request with this process's part of each limit: of its region's part, where regions share them, for it hears nothing of the
// others without its Redis.
func (f *Fallback) share(r Request) Request {
	n := max(1, f.peers())
	part := 1 / float64(n)
	if f.shared.region != nil {
		part *= f.shared.region.part()
	}
	if part == 1 {
		return r
	}
	rules := make([]*Rule, len(r.Rules))
	for i, rule := range r.Rules {
		rules[i] = f.parts.of(rule, part, part)
	}
	r.Rules = rules
	return r
}

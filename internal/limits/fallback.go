package limits

import (
	"context"
	"errors"
)

// Fallback decides by a shared Limiter, and while that can't decide, by the Go model in this
// process, with the process's part of every limit. What is spent then isn't sent to Redis: when
// Redis is back, its counts continue from where they were. Safe for concurrent use.
type Fallback struct {
	shared, own *Limiter
	peers       func() int
	healthy     func() bool

	parts variants
}

// NewFallback returns a Fallback. peers returns how many processes share the limits. healthy
// reports whether it makes sense to ask the shared Limiter.
func NewFallback(shared *Limiter, peers func() int, healthy func() bool) *Fallback {
	return &Fallback{shared: shared, own: NewLocal(), peers: peers, healthy: healthy}
}

// Decide is Limiter.Decide, on the shared limits or on this process's part. Its errors are the
// caller's mistakes: ErrCost and ErrRules.
func (f *Fallback) Decide(ctx context.Context, r Request) (Verdict, error) {
	if f.healthy() {
		v, err := f.shared.Decide(ctx, r)
		if err == nil || isMistake(err) {
			return v, err
		}
	}
	// ctx may have ended: a Redis that hangs uses up its time.
	v, err := f.own.Decide(context.WithoutCancel(ctx), f.share(r))
	if v.charge != nil {
		v.charge.report(f.shared.region)
	}
	v.Alone = err == nil
	return v, err
}

// Peek is Limiter.Peek, on the limits that Decide would use.
func (f *Fallback) Peek(ctx context.Context, r Request) (Verdict, error) {
	if f.healthy() {
		v, err := f.shared.Peek(ctx, r)
		if err == nil || isMistake(err) {
			return v, err
		}
	}
	return f.own.Peek(context.WithoutCancel(ctx), f.share(r))
}

// Refund gives back what a verdict of this Fallback charged, where it was charged.
func (f *Fallback) Refund(ctx context.Context, v Verdict) error { return f.shared.Refund(ctx, v) }

// Settle is Limiter.Settle, where it was charged.
func (f *Fallback) Settle(ctx context.Context, v Verdict, cost int64) error {
	return f.shared.Settle(ctx, v, cost)
}

func isMistake(err error) bool {
	return errors.Is(err, ErrCost) || errors.Is(err, ErrRules) || errors.Is(err, errNoSubject)
}

// share returns the request with this process's part of each limit. With several regions that is a
// part of the region's share: without its Redis the region receives nothing from the others.
func (f *Fallback) share(r Request) Request {
	n := max(1, f.peers())
	part := 1 / float64(n)
	if f.shared.region != nil {
		part *= f.shared.region.Share()
	}
	if part == 1 {
		return r
	}
	rules := make([]*Rule, len(r.Rules))
	for i, rule := range r.Rules {
		rules[i] = f.parts.of(rule, part)
	}
	r.Rules = rules
	return r
}

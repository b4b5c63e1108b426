package admission

import (
	"context"

	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/limits"
)

// Check decides on a request that a gateway asks about, for a caller that may have the operation.
// It spends as much as a job of the operation would, except for concurrency limits, since nothing
// reports when the work ends. While the store is unavailable, Operation.OnFailure decides; unless a
// limit refused, the outcome then has ReasonStore. An error is a fault of the caller, as for
// Submit.
func (a *Admission) Check(ctx context.Context, c Caller, o *Operation,
	cost int64) (Outcome, error) {
	p := a.CheckPlan(c, o.Name)
	t := Terms{Reason: ReasonChecked, Plan: p}
	if len(p.Rules) == 0 {
		return &Passed{t}, nil
	}
	by := Decider(a.Limiter)
	if o.OnFailure == CheckLocal {
		by = a.LocalChecks
	}
	err := errUnhealthy
	if o.OnFailure == CheckLocal || a.Store.Healthy() {
		var v limits.Verdict
		request := limits.Request{Cost: cost, Subject: Subject(c.Client, o.Name), Recall: true}
		if v, err = a.decideBy(ctx, by, p, request); err == nil {
			return checked(t, v, request), nil
		}
		if isFault(err) {
			return nil, err
		}
	}
	t.Reason, t.StoreError = ReasonStore, err
	if o.OnFailure == CheckAllow {
		return &Passed{t}, nil
	}
	return &Refused{Terms: t, By: ByStore}, nil
}

// checked is the outcome of a check that the limits decided.
func checked(t Terms, v limits.Verdict, r limits.Request) Outcome {
	t.Verdict = &v
	if v.Allowed {
		if v.Alone {
			t.Reason = ReasonStore
		}
		return &Passed{t}
	}
	t.Reason = v.Reason
	return &Refused{Terms: t, By: RefusedBy(t.Plan, v, r), RetryAfter: v.RetryAfter}
}

// Charge charges a request that can't be decided on to the limits on all of a caller's requests,
// with a cost of 1 and the bytes of its body: otherwise any number of bodies could be sent for
// free. The outcome is *Passed or *Refused, or nil if nothing was charged because no limit applies
// or the store is unavailable.
func (a *Admission) Charge(ctx context.Context, c Caller, bytes int64) Outcome {
	return a.charge(ctx, a.CheckPlan(c, ""),
		limits.Request{Subject: Subject(c.Client, ""), Cost: 1, Bytes: bytes, Recall: true})
}

// ChargeUnknown is Charge for a caller without valid credentials. It charges only limits on
// addresses, and so bounds how fast keys can be guessed.
func (a *Admission) ChargeUnknown(ctx context.Context, c identity.Client) Outcome {
	return a.charge(ctx, a.planner.plan(planKey{country: c.Country}),
		limits.Request{Subject: Subject(c, ""), Cost: 1, Recall: true})
}

func (a *Admission) charge(ctx context.Context, p *Plan, r limits.Request) Outcome {
	if len(p.Rules) == 0 || !a.Store.Healthy() {
		return nil
	}
	v, err := a.Decide(ctx, p, r)
	if err != nil {
		return nil // the request is refused without the store too
	}
	return checked(Terms{Plan: p}, v, r)
}

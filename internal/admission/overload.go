package admission

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// staleTime bounds the search for a stored answer after the store has failed. Answers in memory
// don't need it.
const staleTime = 150 * time.Millisecond

// overloaded tries the steps of the operation's on_overload for a request that got no job, and
// returns the outcome of the first that has an answer. If none has, the outcome is the refusal.
func (s *submission) overloaded(r *refusal) Outcome {
	o := s.instead(r)
	if o == nil {
		o = &r.Refused
	}
	t := o.About()
	if t.Plan == r.Plan && t.Verdict == nil {
		t.Verdict = r.Verdict
	}
	if t.StoreError == nil {
		t.StoreError = r.StoreError
	}
	return o
}

// instead returns the outcome that a refused request gets instead of its job, or nil.
func (s *submission) instead(r *refusal) Outcome {
	if r.final || r.unavailable && s.RejectOnFailure {
		return nil
	}
	ctx := s.ctx
	if r.unavailable {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), staleTime)
		defer cancel()
		if o := s.fresh(ctx); o != nil {
			return o // answers in memory are still good after a failure of the store
		}
	}
	now := degrade.Situation{Wish: s.req.Wish, Unavailable: r.unavailable}
	for at := 0; ; at++ {
		var step degrade.Step
		var o Outcome
		step, at = s.operation.Overload.Next(at, now)
		switch step.Kind {
		case degrade.Stale:
			if o = s.stale(ctx, r.Reason); o != nil && !r.unavailable {
				s.refresh()
			}
		case degrade.Operation:
			o = s.fallBack(step.Operation, r.Reason)
		case degrade.Body:
			return &Fixed{Terms: s.terms(r.Reason), Body: step.Body}
		default:
			return nil
		}
		if o != nil {
			return o
		}
	}
}

// fallback returns the submission of the same request for a fallback operation, or nil if that
// operation isn't open to the caller, or the payload doesn't fit it. Its Idempotency-Key differs
// from that of a request for the operation itself.
func (s *submission) fallback(operation, why string) *submission {
	o := s.operations[operation]
	if o == nil || !o.Open(s.req.Caller.Tier) {
		return nil
	}
	cost, err := o.Cost.Of(s.req.Payload)
	if err != nil {
		return nil
	}
	b := *s
	b.operation, b.cost, b.line = o, cost, s.Lines[o.Backend]
	b.plan = s.Admission.Plan(s.req.Caller, o.Name)
	b.why, b.first, b.stored = why, s, &stored{}
	if s.req.Key == "" {
		b.id = jobs.NewID(o.Backend)
	} else {
		b.id = s.derived(o, s.operation.Name+">"+o.Name) // no operation has a > in its name
	}
	return &b
}

// fallBack tries to get a job of a fallback operation, by that operation's limits and line. If
// there is none, it returns nil: the first refusal counts.
func (s *submission) fallBack(operation, why string) Outcome {
	b := s.fallback(operation, why)
	if b == nil {
		return nil
	}
	o, refused := b.admit()
	if refused != nil {
		return nil
	}
	return o
}

// fallbacks returns the submissions for all fallback operations, in the order of on_overload.
func (s *submission) fallbacks(why string) []*submission {
	var found []*submission
	for _, step := range s.operation.Overload.Steps {
		if step.Kind == degrade.Reject {
			break
		}
		if step.Kind == degrade.Operation {
			if b := s.fallback(step.Operation, why); b != nil {
				found = append(found, b)
			}
		}
	}
	return found
}

// sameKey returns the submissions for the other jobs that the request's Idempotency-Key may make:
// of its own operation and of the fallback operations, without this one. There are none without a
// key. The first of those jobs that is on record is the answer to all duplicates of the request,
// because each is offered with the ids of the others (leaky.Offer.Others).
func (s *submission) sameKey(why string) []*submission {
	if s.req.Key == "" {
		return nil
	}
	first := s
	if s.first != nil {
		first = s.first
	}
	all := append([]*submission{first}, first.fallbacks(why)...)
	return slices.DeleteFunc(all, func(b *submission) bool { return b.id == s.id })
}

// recorded returns the job that the request's Idempotency-Key made before, or nil twice if there is
// none.
func (s *submission) recorded() (Outcome, *refusal) {
	for _, b := range append([]*submission{s}, s.sameKey(ReasonReplayed)...) {
		look, err := b.line.Look(s.ctx, b.id)
		var gone *leaky.GoneError
		switch {
		case err == nil:
			return b.replayed(look)
		case errors.As(err, &gone) && gone.Spent:
			return nil, s.refused(BySpentKey)
		case !errors.Is(err, leaky.ErrUnknownJob):
			return nil, s.unavailable(err)
		}
	}
	return nil, nil
}

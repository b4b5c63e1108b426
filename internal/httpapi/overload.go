package httpapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// overloaded is the way of a request that got no job: down its operation's on_overload, to the first step that has an answer. Where none has,
// the answer is the refusal.
func (a *attempt) overloaded(refusal error) error {
	var p *api.Problem
	if !errors.As(refusal, &p) || p.Status != http.StatusTooManyRequests && p.Code != api.CodeStore {
		return refusal // no overload: this request can't ever be admitted
	}
	reason := p.Reason
	if reason == "" {
		reason = p.Code
	}
	ctx, lost := a.Ctx, p.Code == api.CodeStore
	if lost {
		if a.s.OnFailure == OnFailureReject {
			return refusal
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(a.R.Context()), staleTime)
		defer cancel()
		if a.fresh(ctx) {
			return nil // what is in memory is no older for the loss
		}
	}
	for _, step := range a.o.Overload.Steps {
		if a.wish.OnlyIfCached && step.Kind != degrade.Stale {
			return refusal // it got here since the store is lost
		}
		switch step.Kind {
		case degrade.Stale:
			if a.stale(ctx, reason) {
				if !lost {
					a.refresh()
				}
				return nil
			}
		case degrade.Operation:
			if lost {
				continue
			}
			if answered, err := a.simplify(step.Operation, reason); answered {
				return err
			}
		case degrade.Body:
			a.fixed(step.Body, reason)
			return nil
		case degrade.Reject:
			return refusal
		}
	}
	return refusal
}

// lineRefused is the answer to a job that got no place.
func lineRefused(operation string, place leaky.Place) *api.Problem {
	p := &api.Problem{Type: api.TypeReducedCapacity, Title: "Temporary Reduced Capacity", Status: http.StatusTooManyRequests,
		Reason: string(place.Outcome), ViolatedPolicies: []string{"line"}}
	switch place.Outcome {
	case leaky.LineFull:
		p.Code, p.Detail = api.CodeLineFull, "The line for "+operation+" is full."
	case leaky.ClientShare:
		p.Type, p.Title = api.TypeQuotaExceeded, "Quota Exceeded"
		p.Code, p.Detail = api.CodeClientShare, "You hold your share of the line for "+operation+"."
	case leaky.StoredFull:
		p.Type, p.Title, p.ViolatedPolicies = api.TypeQuotaExceeded, "Quota Exceeded", []string{"stored"}
		p.Code = api.CodeStoredFull
		p.Detail = "Your jobs and their results take as much storage for " + operation +
			" as they may. Purge jobs that have ended, or wait until they expire."
	default:
		p.Code, p.Detail = api.CodeWaitTooLong, "The predicted wait for "+operation+" is too long."
	}
	// A prediction, not a promise; and those who were refused together shouldn't all be back at one moment.
	jitter := time.Duration(rand.Float64() * 0.1 * float64(place.RetryAfter))
	p.RetryAfter = web.WholeSeconds(place.RetryAfter + jitter)
	return p
}

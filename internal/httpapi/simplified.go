package httpapi

import (
	"errors"
	"net/http"
	"slices"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// standIns are the attempts at jobs of those operations that stand in for the attempt's own, in the order of its on_overload. why is
// what they say of it.
func (a *attempt) standIns(why string) []*attempt {
	var found []*attempt
	for _, step := range a.o.Overload.Steps {
		if step.Kind == degrade.Reject {
			break
		}
		if step.Kind == degrade.Operation {
			if b := a.standIn(step.Operation, why); b != nil {
				found = append(found, b)
			}
		}
	}
	return found
}

// sameKey are the attempts at the other jobs that the request's Idempotency-Key may make: its own operation's and of those that stand in for
// it, but for the attempt's own. None without a key. Whichever of those jobs comes to be first is the answer to all duplicates of the request: each is offered
// with the ids of the others (leaky.Offer.Others).
func (a *attempt) sameKey(why string) []*attempt {
	if a.key == "" {
		return nil
	}
	first := a
	if a.first != nil {
		first = a.first
	}
	all := append([]*attempt{first}, first.standIns(why)...)
	return slices.DeleteFunc(all, func(b *attempt) bool { return b.id == a.id })
}

// recorded answers a request whose Idempotency-Key made a job before.
func (a *attempt) recorded() (answered bool, err error) {
	for _, b := range append([]*attempt{a}, a.sameKey(reasonReplayed)...) {
		look, err := b.line.Look(a.Ctx, b.id)
		var gone *leaky.GoneError
		switch {
		case err == nil:
			return true, b.replay(look)
		case errors.As(err, &gone) && gone.Spent:
			return true, keySpent()
		case !errors.Is(err, leaky.ErrUnknownJob):
			return true, a.overloaded(a.StoreFailed(err))
		}
	}
	return false, nil
}

// standIn is an attempt at the same request's job of another operation; nil where the caller may not have that, or its payload isn't one for it.
// Its Idempotency-Key is another one than that of a request for that operation itself.
func (a *attempt) standIn(operation, why string) *attempt {
	o := a.s.operations[operation]
	if o == nil || !o.may(a.client.Tier) {
		return nil
	}
	cost, wrong := o.Cost.of(a.payload)
	if wrong != nil {
		return nil
	}
	b := &attempt{call: a.call, submission: a.submission, o: o, cost: cost, line: a.s.Lines[o.Backend], key: a.key, instead: why,
		fingerprint: a.fingerprint, secret: a.secret, first: a, stored: &stored{wish: a.wish}}
	b.drop = func() {
		b.body, b.payload = nil, nil
		a.drop()
	}
	if a.key == "" {
		b.id = jobs.NewID(o.Backend)
	} else {
		b.id = a.derive(o, a.o.Name+">"+o.Name) // no operation has a > in its name
	}
	return b
}

// simplify answers with a job of another operation, by that one's limits and line, where it gets one. Else nothing has changed.
func (a *attempt) simplify(operation, why string) (answered bool, err error) {
	b := a.standIn(operation, why)
	if b == nil {
		return false, nil
	}
	plan, verdict, noStore := a.plan, a.verdict, a.StoreLost
	a.plan, a.verdict = a.planOf(operation), nil
	answer, err := b.take()
	if err != nil {
		a.plan, a.verdict, a.StoreLost = plan, verdict, noStore
		return false, nil // the first refusal counts
	}
	return true, answer()
}

// fixed answers with a body of the config.
func (a *attempt) fixed(body []byte, why string) {
	a.decision, a.reason = api.Degraded, why
	a.W.Header()["Cache-Control"] = web.NoStore
	a.Bytes(http.StatusOK, "application/json", body)
}

package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/leaky"
)

// turn is a request's right to be decided while its twins, the requests with the same Idempotency-Key, wait: else one could get a job of the one operation, and
// the next of another that stands in for it. The zero value is of a request without a key, or without stand-ins. It is one for the
// attempts of its request, of which one goroutine has it.
type turn struct {
	leave   func(*api.Problem)        // lets the twins in this process go on; nil: there is no turn
	refusal *api.Problem              // for which neither the request nor its stand-ins got a job; nil: one did, or may yet
	passed  bool                      // a twin's stand-ins were refused a moment ago: the request's own aren't tried
	give    func(ctx context.Context) // gives back the claim in Redis; nil: it was never taken
	doubt   bool                      // a job may come to be that isn't known yet: the claim is left to run out
}

// over ends it: whatever comes of the request is in Redis by now. More calls do nothing.
func (t *turn) over(ctx context.Context) {
	if t.leave == nil {
		return
	}
	if t.give != nil && !t.doubt {
		t.give(ctx)
	}
	t.leave(t.refusal)
	t.leave = nil
}

// claimLook is how often a request looks what became of its twin in another process. Most are decided within a few ms; and one request of a
// key and process looks at a time.
const claimLook = 20 * time.Millisecond

var errBeingDecided = errors.New("another process decides on a request with the same Idempotency-Key")

// awaitTurn answers a request with an Idempotency-Key whose job is on record. Where other operations may stand in for its own, twins of the
// request are decided one by one, in this process and then among all, until one has a job. Where one is refused, those that waited for it in this process are, too: else a
// crowd of them would run out of time, one refusal after the other.
func (a *attempt) awaitTurn() (answered bool, err error) {
	if len(a.standIns(reasonReplayed)) == 0 {
		return a.recorded()
	}
	for {
		first, leave := a.s.twins.join("any "+a.id, a.fingerprint)
		if first == nil {
			a.turn.leave = leave
			return a.claim()
		}
		select {
		case <-first.done:
		case <-a.ctx.Done():
			return true, a.storeFailed(errBeingDecided)
		}
		if first.refusal != nil && first.fingerprint == a.fingerprint {
			a.turn.passed = true
			return true, a.overloaded(first.refusal) // the same request, at the same moment
		}
		if answered, err = a.recorded(); answered || err != nil {
			return answered, err
		}
	}
}

// claim keeps the request's twins in other processes from being decided, or answers with what was decided on one of them. Where that takes too
// long the request may come again: its key is good for that.
func (a *attempt) claim() (answered bool, err error) {
	line, id, by := a.line, a.id, rand.Text()
	give := func(ctx context.Context) {
		_ = line.Unclaim(ctx, id, by) // else it runs out
	}
	for waited := false; ; waited = true {
		taken, claimErr := line.Claim(a.ctx, id, by)
		if taken || claimErr != nil {
			a.turn.give = give
		}
		// After the claim: nobody is about to make one of these jobs any more. And where there can be no claim, since Redis takes no more, it can
		// still be read.
		b, look, err := a.onRecord()
		var spent *api.Problem
		switch {
		case b != nil:
			return true, b.replay(look)
		case errors.As(err, &spent):
			return true, spent
		case (err != nil || claimErr != nil) && waited:
			return true, a.storeFailed(errors.Join(errBeingDecided, err, claimErr))
		case err != nil || claimErr != nil:
			return true, a.overloaded(a.storeFailed(errors.Join(err, claimErr)))
		case taken:
			return false, nil
		}
		pause := time.NewTimer(claimLook)
		select {
		case <-pause.C:
		case <-a.ctx.Done():
			pause.Stop()
			return true, a.storeFailed(errBeingDecided)
		}
	}
}

// recorded answers a request whose Idempotency-Key made a job before.
func (a *attempt) recorded() (answered bool, err error) {
	b, look, err := a.onRecord()
	var spent *api.Problem
	switch {
	case errors.As(err, &spent):
		return true, spent
	case err != nil:
		return true, a.overloaded(a.storeFailed(err))
	case b != nil:
		return true, b.replay(look)
	}
	return false, nil
}

// onRecord finds the job that the request's Idempotency-Key made before, of its operation or of one that stood in for it, and the attempt at that; nil where there is
// none.
func (a *attempt) onRecord() (*attempt, leaky.Look, error) {
	for _, b := range append([]*attempt{a}, a.standIns(reasonReplayed)...) {
		look, err := b.line.Look(a.ctx, b.id)
		if err == nil {
			return b, look, nil
		}
		var gone *leaky.GoneError
		switch {
		case errors.As(err, &gone) && gone.Spent:
			return nil, leaky.Look{}, keySpent()
		case !errors.Is(err, leaky.ErrUnknownJob):
			return nil, leaky.Look{}, err
		}
	}
	return nil, leaky.Look{}, nil
}

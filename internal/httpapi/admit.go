package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// attempt is one try at admitting a job: of the operation that was asked for, or of one that stands in for it.
type attempt struct {
	*call
	submission
	o           *Operation
	cost        int64
	line        Line
	key         string // the Idempotency-Key; "": there is none
	id          string // the job's
	fingerprint string // "" without a key
	secret      string // what the id of a caller without an API key is derived with; "": nothing
	instead     string // why another operation was refused that this one stands in for; "": it stands for itself
	turn        *turn
	drop        func() // lets go of the body, which nobody needs any more
	*stored
}

// name gives the job the id that is derived from its Idempotency-Key. An error is the store's.
func (a *attempt) name() (err error) {
	if a.client.Anonymous {
		if a.secret, err = a.s.Secret.Text(a.ctx); err != nil {
			return err
		}
	}
	a.id, a.fingerprint = a.derive(a.o, a.o.Name), fingerprint(a.o.Name, a.body)
	return nil
}

// derive is the id of a job of operation o that the Idempotency-Key makes, where it is used for that.
func (a *attempt) derive(o *Operation, used string) string {
	if a.secret != "" {
		return jobs.DeriveSecretID(a.secret, o.Backend, a.client.ID, used, a.key)
	}
	return jobs.DeriveID(o.Backend, a.client.ID, used, a.key)
}

// admit takes the job through the limits and into the line.
func (a *attempt) admit() error {
	got, err := a.take()
	if err != nil {
		return a.overloaded(err)
	}
	return got()
}

// take gets the request a job, and returns what answers for it: a new one, a share in one that is under way, or the one that its
// Idempotency-Key made before. An error is why there is none.
func (a *attempt) take() (answer func() error, err error) {
	offer := a.offer()
	var first *deciding
	decided := func(*api.Problem) {}
	if a.fingerprint != "" {
		first, decided = a.s.twins.join(a.id, a.fingerprint)
		defer decided(nil)
	}
	v, err := a.spend()
	if err != nil {
		if look, accepted := a.twin(first); accepted {
			return func() error { return a.replay(look) }, nil
		}
		return nil, err
	}
	offer.Job.Holds = v.Holds()
	place, err := a.line.Offer(a.ctx, offer)
	decided(nil)
	if err != nil {
		// The job may have been accepted: its limits stay spent.
		a.turn.doubt = true
		return nil, a.storeFailed(err)
	}
	switch place.Outcome {
	case leaky.Accepted:
		return func() error { return a.accepted(offer, place) }, nil
	case leaky.Joined, leaky.Again: // it costs what a request costs
		return a.joined(offer.Job, place), nil
	case leaky.Spent:
		a.refund(v)
		return nil, keySpent()
	case leaky.Exists: // a twin of this request was faster
		a.refund(v)
		a.verdict = nil // what the twin took came after it
		return a.existing()
	}
	a.refund(v)
	return nil, lineRefused(a.o.Name, place)
}

// offer is the job as the line gets it, but for the places that it holds.
func (a *attempt) offer() leaky.Offer {
	return leaky.Offer{
		Job: jobs.Job{ID: a.id, Operation: a.o.Name, Client: a.client.ID, Tier: a.client.Tier, Priority: a.priority, Payload: a.payload,
			Traceparent: traceparent(a.r.Header), Fingerprint: a.fingerprint, Callback: a.callback, NoStore: a.wish.NoStore},
		Weight: a.plan.weight * a.priority.Weight(), StartWithin: a.startWithin, MaxAge: a.o.MaxAge, Keep: a.o.Keep, Join: a.joins(),
		MaxStored: a.s.Tiers[a.client.Tier].MaxStored,
	}
}

// existing answers with the job of this id that is on record.
func (a *attempt) existing() (answer func() error, err error) {
	look, err := a.line.Look(a.ctx, a.id)
	if err != nil {
		return nil, a.storeFailed(err)
	}
	return func() error { return a.replay(look) }, nil
}

// spend has the request's limits decide. What they took is given back when the job gets no place.
func (a *attempt) spend() (admission.Verdict, error) {
	if len(a.plan.rules) == 0 {
		return admission.Verdict{Allowed: true}, nil
	}
	request := admission.Request{Cost: a.cost, Bytes: a.bodyBytes, Subject: subject(a.client, a.o.Name), Job: a.holder()}
	v, err := a.decide(a.s.Limiter, a.plan, request)
	if err != nil {
		return v, a.storeFailed(err)
	}
	a.verdict = &v
	if !v.Allowed {
		return v, a.plan.overLimit(v, request)
	}
	return v, nil
}

// Refunds that never reached the store are tried again, so often and after so long.
const (
	refundTries = 4
	refundRest  = 500 * time.Millisecond
)

// refund gives back what v took. It waits for that no longer than the call may wait for the store: the client's answer comes first.
func (a *attempt) refund(v admission.Verdict) {
	if a.verdict == nil {
		return // there was no limit
	}
	a.verdict = refunded(v, admission.Request{Cost: a.cost, Bytes: a.bodyBytes})
	client := a.client.ID
	done := make(chan struct{})
	go func() {
		defer close(done)
		var err error
		for try := range refundTries {
			if try > 0 {
				time.Sleep(refundRest)
			}
			if err = a.s.Limiter.Refund(context.WithoutCancel(a.ctx), v); !errors.Is(err, admission.ErrNotAsked) {
				break
			}
		}
		a.s.heard.forget(client)
		if err != nil {
			a.s.metrics.lostRefunds.Inc()
			a.s.storeLog.do(func() { a.s.Log.Warn("refund failed", "request_id", a.requestID, "error", err) })
		}
	}()
	select {
	case <-done:
	case <-a.ctx.Done():
	}
}

// Reasons of an accepted decision, for logs and metrics; Forebay-Decision needs none. Of a degraded one reasonReplayed is told.
const (
	reasonNew      = "new"
	reasonFresh    = "fresh"    // a stored answer that is as good as a new one
	reasonJoined   = "joined"   // the same was under way
	reasonReplayed = "replayed" // the Idempotency-Key's job was there before
	reasonChecked  = "checked"  // a gateway asked
)

// accepted answers for a job that has its place.
func (a *attempt) accepted(offer leaky.Offer, place leaky.Place) error {
	job := offer.Job
	job.CreatedAt = place.AcceptedAt
	look := leaky.Look{Job: job, Standing: jobs.Standing{State: jobs.Waiting}, Position: place.Position, Wait: place.Wait, WaitingOn: place.WaitingOn}
	if offer.Join != "" && preferredWait(a.r.Header[api.HeaderPrefer]) > 0 {
		look = a.relook(look) // whoever waits must know whose end it waits for
	}
	return a.answer(look, reasonNew)
}

// replay answers for a job that this Idempotency-Key made before.
func (a *attempt) replay(look leaky.Look) error {
	if look.Job.Fingerprint != a.fingerprint || look.Job.Client != a.client.ID {
		return problem(http.StatusUnprocessableEntity, api.CodeKeyReuse,
			"This Idempotency-Key came with another request before. Requests are the same when their bodies are, byte for byte.")
	}
	a.w.Header()[api.HeaderIdempotentReplay] = []string{"true"}
	return a.answer(look, reasonReplayed)
}

// keySpent answers for an Idempotency-Key whose job was purged: the backend knows the job's id, and must not see it with another payload.
func keySpent() *api.Problem {
	return problem(http.StatusGone, api.CodeJobGone,
		"The job of this Idempotency-Key was purged. The key can't be used again before the job's record would have gone: use another.")
}

// answer is the 202 of a job that isn't done, or the 200 of one that is, after the wait that the client prefers. A client that
// waited gets what it waited for: the result itself, and Content-Location says so.
func (a *attempt) answer(look leaky.Look, reason string) error {
	a.turn.over(a.ctx)
	a.decision, a.reason, a.jobID = api.Accepted, reason, look.Job.ID
	if a.instead != "" {
		a.decision, a.reason = api.Degraded, a.instead
	}
	if preferredWait(a.r.Header[api.HeaderPrefer]) > 0 && !done(look) {
		look.Job.Payload = nil
		a.drop() // thousands wait
	}
	look, err := a.s.await(a.call, a.line, look)
	if p, ok := errors.AsType[*api.Problem](err); err != nil && !(ok && p.Code == api.CodeTooManyStreams) {
		a.noStore = true
	}
	// The job is accepted, also where the wait failed or was refused: answer with what was known before.
	view := jobView(look, time.Now())
	view.Degraded = a.instead != ""
	h := a.w.Header()
	h["Cache-Control"] = noStore
	h["Location"], h["Content-Location"] = []string{view.StatusURL}, []string{view.StatusURL}
	if view.Done {
		if h[api.HeaderPreferenceApplied] != nil && look.Standing.State == jobs.Succeeded {
			h["Content-Location"] = []string{view.Links.Result}
			if a.sendResult(http.StatusOK, a.line, look) == nil {
				a.s.warm(a.line, look.Job, a.payload)
				return nil
			}
			h["Content-Location"] = []string{view.StatusURL}
		}
		return a.json(http.StatusOK, view)
	}
	h["Retry-After"] = []string{strconv.Itoa(pollAfter(look, time.Now()))}
	h[api.HeaderOperationLocation] = []string{view.StatusURL} // or pollers take any 200 at Location for the end
	return a.json(http.StatusAccepted, view)
}

// twinTime is how long a twin in another process may take from its charge to its place in the line: two round trips to Redis, with room.
const twinTime = 50 * time.Millisecond

// refusedByPlaces reports whether a limit on jobs at one time is among those that refused.
func (a *attempt) refusedByPlaces() bool {
	return slices.ContainsFunc(a.verdict.Standings, func(s admission.Standing) bool {
		return s.Violated && s.Rule.Limit().Algorithm == admission.Concurrency && !s.Rule.Limit().Shadow
	})
}

// twin finds the job of a request that was refused, where a twin of it with the same Idempotency-Key came first: what refuses this one
// may be nothing but the other's charge. It waits for one that is being decided here.
func (a *attempt) twin(first *deciding) (look leaky.Look, accepted bool) {
	if a.fingerprint == "" || a.verdict == nil {
		return look, false // no key, or the limits didn't decide
	}
	if first != nil {
		select {
		case <-first.done:
		case <-a.ctx.Done():
		}
	}
	look, err := a.line.Look(a.ctx, a.id)
	if errors.Is(err, leaky.ErrUnknownJob) && a.refusedByPlaces() {
		// In another process it may be between its charge and its place in the line.
		pause := time.NewTimer(twinTime)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-a.ctx.Done():
		}
		look, err = a.line.Look(a.ctx, a.id)
	}
	if err == nil {
		a.verdict = nil // what it refused is over
	}
	return look, err == nil
}

// holder is by what name the job holds its places of limits on jobs at one time. Twins of a request with an Idempotency-Key have one job id:
// the one that comes to nothing must not give back the places of the other.
func (a *attempt) holder() string {
	if a.fingerprint == "" || !a.plan.holds {
		return a.id
	}
	return a.id + "~" + rand.Text()[:8]
}

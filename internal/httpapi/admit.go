package httpapi

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
)

// attempt is one try at admitting a job: of the operation that was asked for, or of one that stands in for it.
type attempt struct {
	*call
	submission
	o           *Operation
	cost        int64
	line        Line
	key         string   // the Idempotency-Key; "": there is none
	id          string   // the job's
	fingerprint string   // "" without a key
	secret      string   // what the id of a caller without an API key is derived with; "": nothing
	instead     string   // why another operation was refused that this one stands in for; "": it stands for itself
	first       *attempt // of the operation that was asked for, where this one stands in for that; nil: it is that
	drop        func()   // lets go of the body, which nobody needs any more
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
// Idempotency-Key made before. An error is why there is none. Limits and line decide in one step: a request without a new job has charged nothing.
func (a *attempt) take() (answer func() error, err error) {
	offer, place := a.offer(), leaky.Place{Outcome: leaky.Limited} // which a cluster's limits say without the line
	request := limits.Request{Rules: a.plan.rules, Cost: a.cost, Bytes: a.bodyBytes, Subject: subject(a.client, a.o.Name), Job: a.id,
		Recall: a.key == ""} // the job of a key may be there, whatever the limits say
	v, err := a.s.Limiter.Along(a.ctx, request, func(part *limits.Part) (limits.Ending, error) {
		offer.Job.Holds, offer.Charge = part.Holds(), part.Charge()
		var err error
		place, err = a.line.Offer(a.ctx, offer)
		return ending(place.Outcome), err
	})
	if err != nil {
		return nil, a.storeFailed(err) // the job may have been accepted, and charged
	}
	if v.Unreturned != nil {
		a.s.metrics.lostRefunds.Inc()
		a.s.storeLog.do(func() { a.s.Log.Warn("refund failed", "request_id", a.requestID, "error", v.Unreturned) })
	}
	switch place.Outcome {
	case leaky.Spent:
		return nil, keySpent()
	case leaky.Exists:
		return a.existing(place.ID)
	}
	if len(a.plan.rules) > 0 {
		a.note(a.plan, request, v)
		a.verdict = &v
	}
	switch place.Outcome {
	case leaky.Accepted:
		return func() error { return a.accepted(offer, place) }, nil
	case leaky.Joined, leaky.Again: // it costs what a request costs
		return a.joined(offer.Job, place), nil
	case leaky.Limited:
		return nil, a.plan.overLimit(v, request)
	}
	return nil, lineRefused(a.o.Name, place)
}

// ending is what an offer's outcome means to the limits.
func ending(o leaky.Outcome) limits.Ending {
	switch o {
	case leaky.Accepted, leaky.Joined, leaky.Again:
		return limits.Taken
	case leaky.Limited:
		return limits.Limited
	}
	return limits.Left
}

// offer is the job as the line gets it, but for what it takes of limits.
func (a *attempt) offer() leaky.Offer {
	var others []string
	for _, b := range a.sameKey("") {
		if !a.s.Apart || b.o.Backend == a.o.Backend {
			others = append(others, b.id)
		}
	}
	return leaky.Offer{
		Job: jobs.Job{ID: a.id, Operation: a.o.Name, Client: a.client.ID, Tier: a.client.Tier, Priority: a.priority, Payload: a.payload,
			Traceparent: traceparent(a.r.Header), Fingerprint: a.fingerprint, Callback: a.callback, NoStore: a.wish.NoStore},
		Weight: a.plan.weight * a.priority.Weight(), StartWithin: a.startWithin, MaxAge: a.o.MaxAge, Keep: a.o.Keep, Join: a.joins(),
		MaxStored: a.s.Tiers[a.client.Tier].MaxStored, Others: others,
	}
}

// existing answers with the job on record that the offer met: of its own id, or of another that its Idempotency-Key made ("": of its own).
func (a *attempt) existing(id string) (answer func() error, err error) {
	b := a
	for _, other := range a.sameKey(reasonReplayed) {
		if other.id == id {
			b = other
		}
	}
	if b != a && a.first != nil {
		a.plan = a.planOf(a.first.o.Name) // simplify has taken the fallback's
	}
	look, err := b.line.Look(a.ctx, b.id)
	if err != nil {
		return nil, a.storeFailed(err)
	}
	return func() error { return b.replay(look) }, nil
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

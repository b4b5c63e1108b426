package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"forebay/api"
	"forebay/internal/admission"
	"forebay/internal/jobs"
	"forebay/internal/leaky"
)

// submission is a POST /v1/jobs as read.
type submission struct {
	operation   string
	payload     []byte // byte for byte
	priority    jobs.Priority
	startWithin time.Duration // 0: no such wish
	body        []byte        // the whole request, for its fingerprint
}

// submit answers POST /v1/jobs. Its steps are the design's, in its order.
func (s *Server) submit(c *call) error {
	sub, malformed := s.readSubmission(c)
	client, unknown := s.Identity.Identify(c.r)
	if unknown == nil {
		c.identify(client)
	}
	switch {
	case malformed != nil:
		return malformed
	case unknown != nil:
		return c.unidentified(client, unknown)
	}
	o, err := s.operationFor(c, sub.operation)
	if err != nil {
		return err
	}
	cost, wrong := o.Cost.of(sub.payload)
	if wrong != nil {
		return fieldErrors{*wrong}.err()
	}
	key, err := idempotencyKey(c.r.Header)
	if err != nil {
		return err
	}
	if s.isDraining() {
		return shuttingDown()
	}
	a := &attempt{call: c, submission: sub, o: o, cost: cost, line: s.Lines[o.Backend]}
	if !s.Store.Healthy() {
		return a.overloaded(a.storeFailed(errUnhealthy))
	}
	if key != "" {
		a.id, a.fingerprint = jobs.DeriveID(o.Backend, client.ID, o.Name, key), fingerprint(o.Name, sub.body)
		look, err := a.line.Look(c.ctx, a.id)
		switch {
		case err == nil:
			return a.replay(look)
		case !errors.Is(err, leaky.ErrUnknownJob):
			return a.overloaded(a.storeFailed(err))
		}
	} else {
		a.id = jobs.NewID(o.Backend)
	}
	return a.admit()
}

func (s *Server) readSubmission(c *call) (submission, error) {
	body, err := readBody(c.w, c.r, s.MaxBody)
	if err != nil {
		return submission{}, err
	}
	return parseSubmission(body)
}

// parseSubmission reads the body of a POST /v1/jobs.
func parseSubmission(body []byte) (submission, error) {
	fields, err := members(body)
	if err != nil {
		return submission{}, err
	}
	sub := submission{priority: jobs.Normal, body: body}
	var wrong fieldErrors
	named := false
	for _, m := range fields {
		switch m.name {
		case "operation":
			sub.operation, named = wrong.text(m), true
		case "payload":
			sub.payload = m.value
		case "priority":
			if word := wrong.optionalText(m); word != "" || string(m.value) == `""` {
				sub.priority = jobs.Priority(word)
			}
			if sub.priority.Weight() == 0 {
				wrong.add(m.name, `Must be "high", "normal" or "low".`)
			}
		case "start_within":
			sub.startWithin = wrong.duration(m)
		default:
			wrong.unknown(m)
		}
	}
	if !named {
		wrong.add("operation", "Is required.")
	}
	if sub.payload == nil {
		wrong.add("payload", "Is required; null, where the operation needs none.")
	}
	return sub, wrong.err()
}

// operationFor returns the operation that the caller asks for and may have, and notes it.
func (s *Server) operationFor(c *call, name string) (*Operation, error) {
	o, known := s.operations[name]
	if !known {
		p := problem(http.StatusNotFound, api.CodeUnknownOperation, "There is no operation "+brief(name)+".")
		p.Operations = s.allowed(c.client.Tier)
		return nil, p
	}
	c.operation = o.Name
	if !o.may(c.client.Tier) {
		c.w.Header().Set("WWW-Authenticate", `Bearer realm="forebay", error="insufficient_scope"`)
		p := problem(http.StatusForbidden, api.CodeNotAllowed, "Operation "+o.Name+" isn't open to your tier.")
		p.Operations = s.allowed(c.client.Tier)
		return nil, p
	}
	c.plan = c.planOf(o.Name)
	return o, nil
}

// attempt is one try at admitting a job.
type attempt struct {
	*call
	submission
	o           *Operation
	cost        int64
	line        Line
	id          string
	fingerprint string
}

// admit takes the job through the limits and into the line.
func (a *attempt) admit() error {
	var first <-chan struct{}
	decided := func() {}
	if a.fingerprint != "" {
		first, decided = a.s.twins.join(a.id)
		defer decided()
	}
	v, err := a.spend()
	if err != nil {
		if look, accepted := a.twin(first); accepted {
			return a.replay(look)
		}
		return a.overloaded(err)
	}
	job := jobs.Job{ID: a.id, Operation: a.o.Name, Client: a.client.ID, Tier: a.client.Tier, Priority: a.priority, Payload: a.payload,
		Traceparent: traceparent(a.r.Header), Fingerprint: a.fingerprint, Holds: v.Holds()}
	place, err := a.line.Offer(a.ctx, leaky.Offer{Job: job, Weight: a.plan.weight * a.priority.Weight(),
		StartWithin: a.startWithin, MaxAge: a.o.MaxAge, Keep: a.o.Keep})
	decided()
	if err != nil {
		// The job may have been accepted: its limits stay spent.
		return a.overloaded(a.storeFailed(err))
	}
	switch place.Outcome {
	case leaky.Accepted:
		return a.accepted(job, place)
	case leaky.Exists: // a twin of this request was faster
		a.refund(v)
		a.verdict = nil // what the twin took came after it
		look, err := a.line.Look(a.ctx, a.id)
		if err != nil {
			return a.overloaded(a.storeFailed(err))
		}
		return a.replay(look)
	}
	a.refund(v)
	return a.overloaded(lineRefused(a.o.Name, place))
}

// spend has the request's limits decide. What they took is given back when the job gets no place.
func (a *attempt) spend() (admission.Verdict, error) {
	if len(a.plan.rules) == 0 {
		return admission.Verdict{Allowed: true}, nil
	}
	v, err := a.decide(a.s.Limiter, a.plan, admission.Request{Cost: a.cost, Subject: subject(a.client, a.o.Name), Job: a.holder()})
	if err != nil {
		return v, a.storeFailed(err)
	}
	a.verdict = &v
	if !v.Allowed {
		return v, a.plan.overLimit(v, a.cost)
	}
	return v, nil
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
func (a *attempt) twin(first <-chan struct{}) (look leaky.Look, accepted bool) {
	if a.fingerprint == "" || a.verdict == nil {
		return look, false // no key, or the limits didn't decide
	}
	if first != nil {
		select {
		case <-first:
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
	refunded(a.verdict, a.cost)
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

// Reasons of an accepted decision, for logs and metrics; Forebay-Decision needs none.
const (
	reasonNew      = "new"
	reasonReplayed = "replayed" // the Idempotency-Key's job was there before
	reasonChecked  = "checked"  // a gateway asked
)

// accepted answers for a job that has its place.
func (a *attempt) accepted(job jobs.Job, place leaky.Place) error {
	job.CreatedAt = place.AcceptedAt
	look := leaky.Look{Job: job, Standing: jobs.Standing{State: jobs.Waiting}, Position: place.Position, Wait: place.Wait, WaitingOn: place.WaitingOn}
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

// answer is the 202 of a job that isn't done, or the 200 of one that is, after the wait that the client prefers. A client that
// waited gets what it waited for: the result itself, and Content-Location says so.
func (a *attempt) answer(look leaky.Look, reason string) error {
	a.decision, a.reason, a.jobID = api.Accepted, reason, look.Job.ID
	look, err := a.s.await(a.call, a.line, look)
	if err != nil {
		// It's accepted, whatever became of the wait: answer with what was known before.
		a.noStore = true
	}
	view := jobView(look, time.Now())
	h := a.w.Header()
	h["Cache-Control"] = noStore
	h["Location"], h["Content-Location"] = []string{view.StatusURL}, []string{view.StatusURL}
	if view.Done {
		if h[api.HeaderPreferenceApplied] != nil && look.Standing.State == jobs.Succeeded {
			if body, err := a.line.Result(a.ctx, look.Job.ID); err == nil {
				a.s.warm(a.line, look.Job, a.payload)
				h["Content-Location"] = []string{view.Links.Result}
				h["X-Content-Type-Options"] = noSniff
				a.bytes(http.StatusOK, look.Standing.Result.ContentType, body)
				return nil
			}
		}
		return a.json(http.StatusOK, view)
	}
	h["Retry-After"] = []string{strconv.Itoa(pollAfter(look, time.Now()))}
	return a.json(http.StatusAccepted, view)
}

package admission

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
)

// Request is a request for a job, by a caller to which the operation is open.
type Request struct {
	ID          string // of the request, for the log
	Caller      Caller
	Operation   *Operation // one of Admission.Operation
	Cost        int64      // from Operation.Cost.Of for the payload
	Payload     []byte     // JSON, byte for byte; it must not change until Submit has returned
	Body        []byte     // the whole request, which distinguishes duplicates from other requests
	Priority    jobs.Priority
	StartWithin time.Duration // how long the job may wait for its start; 0: any time
	Callback    string        // URL that is notified of the job's end; "": none
	Key         string        // the Idempotency-Key; "": none
	Traceparent string        // W3C trace context for the backend; "": none
	Wish        degrade.Wish  // which stored answers the request accepts
	// Waits: the caller will wait for the job's end, so Accepted.Look must name the job that ends.
	Waits bool
}

// Submit decides on a request. ctx bounds its work in the store; after a failure of the store, the
// search for a stored answer may take a moment longer. A request that gets no new job, and no new
// subscription to one, has spent nothing. An error is a fault of the caller: limits.ErrCost,
// limits.ErrRules, or an offer that no line takes. The store's failures are outcomes.
func (a *Admission) Submit(ctx context.Context, r Request) (Outcome, error) {
	s := &submission{Admission: a, req: r, ctx: ctx, operation: r.Operation,
		cost: r.Cost, line: a.Lines[r.Operation.Backend], plan: a.Plan(r.Caller, r.Operation.Name),
		stored: &stored{}}
	o, refused := s.answer()
	if refused != nil {
		if refused.fault {
			return nil, refused.StoreError
		}
		o = s.overloaded(refused)
	}
	if s.asked {
		_, served := o.(*Stored)
		o.About().Missed = !served
	}
	return o, nil
}

// answer returns the outcome before on_overload.
func (s *submission) answer() (Outcome, *refusal) {
	if !s.Store.Healthy() {
		return nil, s.unavailable(errUnhealthy)
	}
	if s.req.Key != "" {
		if err := s.derive(); err != nil {
			return nil, s.unavailable(err)
		}
	}
	if o, refused := s.known(); o != nil || refused != nil {
		return o, refused
	}
	if s.req.Key == "" {
		s.id = jobs.NewID(s.operation.Backend) // now: most answers from the store need none
	}
	return s.admit()
}

var errUnhealthy = errors.New("the store isn't healthy")

// submission is a request on its way through Submit, for a job of the requested operation or of a
// fallback operation.
type submission struct {
	*Admission
	req       Request
	ctx       context.Context
	operation *Operation // whose job it is
	cost      int64
	line      Line
	plan      *Plan

	id          string // the job's
	fingerprint string // "" without a key
	secret      string // the ids of callers without an API key are derived from it; "": none

	why   string      // the first operation was refused; "": this is the first
	first *submission // of the requested operation; nil: this is it
	*stored
}

// refusal is why a request got no job, before on_overload.
type refusal struct {
	Refused
	unavailable bool // the store is, or this process decides without the others
	final       bool // the request can never be admitted, so nothing is answered instead
	fault       bool // StoreError is a fault of the caller
}

// unavailable is the refusal of a request for which the store failed.
func (s *submission) unavailable(err error) *refusal {
	t := s.terms(ReasonStore)
	t.StoreError = err
	r := &refusal{Refused: Refused{Terms: t, By: ByStore}, unavailable: true}
	r.fault = isFault(err)
	return r
}

// isFault reports whether an error is a fault of the caller, not of the store.
func isFault(err error) bool {
	return errors.Is(err, limits.ErrCost) || errors.Is(err, limits.ErrRules)
}

// terms returns the first parts of the submission's outcome.
func (s *submission) terms(reason string) Terms { return Terms{Reason: reason, Plan: s.plan} }

// derive gives the job the id that follows from its Idempotency-Key. An error is the store's.
func (s *submission) derive() (err error) {
	if s.req.Caller.Anonymous {
		if s.secret, err = s.Secret.Text(s.ctx); err != nil {
			return err
		}
	}
	s.id = s.derived(s.operation, s.operation.Name)
	s.fingerprint = fingerprint(s.operation.Name, s.req.Body)
	return nil
}

// derived is the id of the job of an operation that the Idempotency-Key makes, in a scope.
func (s *submission) derived(o *Operation, scope string) string {
	if s.secret != "" {
		return jobs.DeriveSecretID(s.secret, o.Backend, s.req.Caller.ID, scope, s.req.Key)
	}
	return jobs.DeriveID(o.Backend, s.req.Caller.ID, scope, s.req.Key)
}

// fingerprint distinguishes the requests that come with one Idempotency-Key: by the operation and
// the body as it was sent. The same JSON with different white space is a different request. Half of
// a SHA-256 is enough, because it is compared only within one key of one client. Every job keeps it
// in Redis.
func fingerprint(operation string, body []byte) string {
	sum := sha256.New()
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(operation)))
	sum.Write(length[:])
	sum.Write([]byte(operation))
	sum.Write(body)
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:sha256.Size/2])
}

// admit decides in one step by the limits and the line. The outcome is a new job, a subscription to
// one that is under way, or the job that the request's Idempotency-Key made before.
func (s *submission) admit() (Outcome, *refusal) {
	var offer leaky.Offer
	// On a cluster, limits refuse before the line is asked.
	place := leaky.Place{Outcome: leaky.Limited}
	request := limits.Request{Rules: s.plan.Rules, Cost: s.cost, Bytes: int64(len(s.req.Body)),
		Subject: Subject(s.req.Caller.Client, s.operation.Name), Job: s.id,
		Recall: s.req.Key == ""} // a key may have made a job, whatever the limits say
	v, err := s.Limiter.Along(s.ctx, request, func(part *limits.Part) (limits.Ending, error) {
		offer = s.offer() // now: a refusal from memory needs none
		offer.Job.Holds, offer.Charge = part.Holds(), part.Charge()
		var err error
		place, err = s.line.Offer(s.ctx, offer)
		return ending(place.Outcome), err
	})
	if err != nil {
		return nil, s.unavailable(err) // the job may have been accepted, and charged
	}
	if v.Unreturned != nil {
		s.metrics.lostRefunds.Inc()
		s.storeLog.Do(func() {
			s.Log.Warn("refund failed", "request_id", s.req.ID, "error", v.Unreturned)
		})
	}
	switch place.Outcome {
	case leaky.Spent:
		return nil, s.refused(BySpentKey)
	case leaky.Exists:
		return s.existing(place.ID)
	}
	t := s.terms("")
	if len(s.plan.Rules) > 0 {
		s.note(s.plan, request, v)
		t.Verdict = &v
	}
	switch place.Outcome {
	case leaky.Accepted:
		return s.accepted(t, offer, place), nil
	case leaky.Joined, leaky.Again: // a subscription costs what a request costs
		return s.joined(t, offer.Job, place), nil
	case leaky.Limited:
		return nil, s.overLimit(t, v, request)
	}
	t.Reason = string(place.Outcome)
	return nil, &refusal{Refused: Refused{Terms: t, By: ByLine, Line: place.Outcome,
		RetryAfter: place.RetryAfter}}
}

// ending returns what an offer's outcome means to the limits.
func ending(o leaky.Outcome) limits.Ending {
	switch o {
	case leaky.Accepted, leaky.Joined, leaky.Again:
		return limits.Taken
	case leaky.Limited:
		return limits.Limited
	}
	return limits.Left
}

// offer returns the offer of the job to the line, without the limits' part.
func (s *submission) offer() leaky.Offer {
	var others []string
	for _, b := range s.sameKey("") {
		if !s.Cluster || b.operation.Backend == s.operation.Backend {
			others = append(others, b.id)
		}
	}
	return leaky.Offer{
		Job: jobs.Job{ID: s.id, Operation: s.operation.Name, Client: s.req.Caller.ID,
			Tier:     s.req.Caller.Tier,
			Priority: s.req.Priority, Payload: s.req.Payload, Traceparent: s.req.Traceparent,
			Fingerprint: s.fingerprint, Callback: s.req.Callback, NoStore: s.req.Wish.NoStore},
		Weight: s.plan.Weight * s.req.Priority.Weight(), StartWithin: s.req.StartWithin,
		MaxAge: s.operation.MaxAge, Keep: s.operation.Keep, Join: s.join(),
		MaxStored: s.Tiers[s.req.Caller.Tier].MaxStored, Others: others,
	}
}

// join returns the Join of the request's offer; "": its job isn't shared. A request for a new
// answer (no-cache) doesn't join a job that was requested before it, and one with no-store shares
// its job with no other.
func (s *submission) join() string {
	if !s.operation.Coalesce || s.req.Wish.NoCache ||
		!s.operation.Overload.HasScope(s.req.Caller.ID) {
		return ""
	}
	return joinOf(s.cacheKey())
}

// accepted returns the outcome of a request whose job has a place in the line.
func (s *submission) accepted(t Terms, offer leaky.Offer, place leaky.Place) Outcome {
	job := offer.Job
	job.CreatedAt = place.AcceptedAt
	look := leaky.Look{Job: job, Standing: jobs.Standing{State: jobs.Waiting},
		Position: place.Position, Wait: place.Wait, WaitingOn: place.WaitingOn}
	if offer.Join != "" && s.req.Waits {
		look = s.lookAgain(&t, look)
	}
	t.Reason = s.reason(ReasonNew)
	return &Accepted{Terms: t, Job: s.job(look)}
}

// joined returns the outcome of a request with a subscription to a job that is under way.
func (s *submission) joined(t Terms, job jobs.Job, place leaky.Place) Outcome {
	if job.CreatedAt = place.AcceptedAt; place.Outcome == leaky.Again {
		job.ID = place.ID
	}
	look := s.lookAgain(&t, leaky.Look{Job: job, Standing: jobs.Standing{State: jobs.Waiting},
		WaitingOn: place.WaitingOn})
	t.Reason = s.reason(ReasonJoined)
	return &Joined{Terms: t, Job: s.job(look)}
}

// lookAgain returns where the job stands, or if the store fails, the last known state: the job has
// a record, and its client must learn of it.
func (s *submission) lookAgain(t *Terms, known leaky.Look) leaky.Look {
	look, err := s.line.Look(s.ctx, known.Job.ID)
	if err != nil {
		t.StoreError = err
		return known
	}
	return look
}

func (s *submission) job(look leaky.Look) Job { return Job{Look: look, Fallback: s.first != nil} }

// reason returns why the first operation was refused, if it was; otherwise own.
func (s *submission) reason(own string) string {
	if s.first != nil {
		return s.why
	}
	return own
}

// existing returns the outcome of a request whose Idempotency-Key has made the job with this id;
// "": with the submission's own.
func (s *submission) existing(id string) (Outcome, *refusal) {
	b := s
	for _, other := range s.sameKey(ReasonReplayed) {
		if other.id == id {
			b = other
		}
	}
	look, err := b.line.Look(s.ctx, b.id)
	if err != nil {
		return nil, s.unavailable(err)
	}
	return b.replayed(look)
}

// replayed returns the outcome of a duplicate request, or a refusal if the key came with another
// request.
func (s *submission) replayed(look leaky.Look) (Outcome, *refusal) {
	if look.Job.Fingerprint != s.fingerprint || look.Job.Client != s.req.Caller.ID {
		return nil, s.refused(ByOtherRequest)
	}
	t := s.terms(s.reason(ReasonReplayed))
	if s.first != nil {
		t.Plan = s.first.plan // the duplicate spends nothing of the fallback operation's limits
	}
	return &Replayed{Terms: t, Job: s.job(look)}, nil
}

// refused returns a final refusal: on_overload isn't tried.
func (s *submission) refused(by By) *refusal {
	return &refusal{Refused: Refused{Terms: s.terms(""), By: by}, final: true}
}

// overLimit returns the refusal by limits.
func (s *submission) overLimit(t Terms, v limits.Verdict, r limits.Request) *refusal {
	t.Reason = v.Reason
	refused := &refusal{Refused: Refused{Terms: t, By: RefusedBy(s.plan, v, r),
		RetryAfter: v.RetryAfter}}
	switch refused.By {
	case ByPart:
		refused.Reason, refused.unavailable = ReasonStore, true
	case ByCost:
		refused.final = true
	}
	return refused
}

// RefusedBy returns how a plan's limits refused a request: ByLimits, ByCost or ByPart.
func RefusedBy(p *Plan, v limits.Verdict, r limits.Request) By {
	if !v.Never {
		return ByLimits
	}
	for i, s := range v.Standings {
		if s.Never && !s.Rule.Limit().Shadow && r.Takes(s.Rule) > p.Rules[i].Limit().Capacity() {
			return ByCost
		}
	}
	return ByPart // the plan's whole rules, of which parts decided, could admit it
}

package httpapi

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/web"
)

// call is one request until it is answered. One goroutine uses it, except for the read that peek
// starts.
type call struct {
	web.Call
	s *Server

	caller    admission.Caller // ID "": not identified
	bodyBytes int64            // of the request's body; 0: none, or it wasn't read to its end
	payload   []byte           // of the request for a job, until drop; nil: none
	drop      func()           // releases the body, once it is no longer needed
	plan      *admission.Plan  // the limits that the answer's fields describe; nil: none

	verdict *limits.Verdict      // the limits' verdict, once known
	peeked  chan *limits.Verdict // receives peek's verdict; nil: peek wasn't called

	admission bool // the answer is a decision:
	decision  string
	reason    string
	operation string // "": not known
	jobID     string

	free func() // gives back the room that is reserved for the answer; nil: none is
}

// AddFields adds the RateLimit fields and the decision to an answer.
func (c *call) AddFields(h http.Header) {
	if v := c.standings(); v != nil {
		writeRateLimits(h, c.plan, v, c.s.Legacy)
	}
	if c.decision != "" {
		h[api.HeaderDecision] = []string{decisionField(c.decision, c.reason)}
	}
}

// Reserve reserves the room for an answer: see unread.reserve.
func (c *call) Reserve(n int) error { return c.reserve(nil, n) }

// Refused notes a problem as the decision, if the request is answered with one.
func (c *call) Refused(p *api.Problem) {
	if c.admission {
		c.decision, c.reason = api.Rejected, p.Reason
		if c.reason == "" {
			c.reason = p.Code
		}
	}
}

// Ended gives back the room for the answer, and counts and logs the decision.
func (c *call) Ended(took time.Duration) {
	if c.free != nil {
		c.free()
	}
	if c.decision != "" {
		c.s.metrics.decided(c, took)
		c.logDecision()
	}
}

// logDecision writes one line for a decision. An accepted job is logged at debug level, since the
// worker that runs it logs its end. A request that was not accepted is logged at info level, at
// most 100 a second, so that a flood doesn't fill the disk. Metrics count all of them. A caller's
// address is personal data, and other things that a client sent may be secret: neither is logged.
func (c *call) logDecision() {
	level := slog.LevelInfo
	if c.decision == api.Accepted {
		level = slog.LevelDebug
	}
	if !c.s.Web.Log.Enabled(c.Ctx, level) ||
		level == slog.LevelInfo && !c.s.Web.AnswerLog.AllowN(c.Began, 1) {
		return
	}
	client := c.caller.Name
	if client == "" {
		client = "anonymous"
		if c.caller.ID == "" {
			client = "unknown"
		}
	}
	c.s.Web.Log.LogAttrs(c.Ctx, level, c.decision,
		slog.String("reason", c.reason), slog.String("operation", c.operation),
		slog.String("job_id", c.jobID), slog.String("client", client),
		slog.String("request_id", c.RequestID), slog.Int("status", c.Status),
		slog.Duration("took", time.Since(c.Began)))
}

// caller wraps h so that it is called only for identified callers.
func (s *Server) caller(h handler) handler {
	return func(c *call) error {
		if err := c.readCaller(); err != nil {
			return err
		}
		c.W.Header()["Cache-Control"] = web.NoStore
		return h(c)
	}
}

// readCaller identifies the caller. If it can't, the error is the answer.
func (c *call) readCaller() error {
	client, err := c.s.Identity.Identify(c.R)
	if err != nil {
		return c.unidentified(client, err)
	}
	c.identify(client)
	return nil
}

// deciding wraps an h whose requests are answered with a decision.
func deciding(h handler) handler {
	return func(c *call) error {
		c.admission = true
		return h(c)
	}
}

// identified is caller for requests that need the store. While h runs, the caller's limits are read
// for the answer's fields, unless they are known from a moment ago.
func (s *Server) identified(h handler) handler {
	return s.caller(func(c *call) error {
		if !s.Store.Healthy() {
			return web.StoreError(web.ErrUnhealthy)
		}
		c.peek(recallStatus)
		return h(c)
	})
}

// identify notes the request's client. The answer speaks of the limits on all of the caller's
// requests until an operation is known.
func (c *call) identify(client identity.Client) {
	var err error
	if c.caller, err = c.s.Admission.Caller(c.Ctx, client); err != nil {
		c.s.Web.StoreLog.Do(func() {
			c.s.Web.Log.Warn("not known whether a client is new",
				"request_id", c.RequestID, "error", err)
		})
	}
	c.plan = c.s.Admission.Plan(c.caller, "")
}

// charged returns the answer to an identified caller whose request can't be decided on, and charges
// the request (Admission.Charge), unless this process had no room for it.
func (c *call) charged(refusal error) error {
	var p *api.Problem
	if !errors.As(refusal, &p) || p.Status >= http.StatusInternalServerError {
		return refusal
	}
	if over := c.overCharge(c.s.Admission.Charge(c.Ctx, c.caller, c.bodyBytes)); over != nil {
		return over
	}
	return refusal
}

// overCharge returns the refusal if the caller's limits had no room for the charge, otherwise nil.
// The answer's fields then describe the limits that were charged.
func (c *call) overCharge(o admission.Outcome) error {
	if o == nil {
		return nil
	}
	c.plan, c.verdict = o.About().Plan, o.About().Verdict
	if refused, ok := o.(*admission.Refused); ok {
		return c.refused(refused)
	}
	return nil
}

// unidentified returns the answer to a caller without valid credentials. Such calls are charged to
// the limits on its address, which bounds how fast keys can be guessed.
func (c *call) unidentified(client identity.Client, reason error) error {
	// A page of another site can make a browser ask without a key, but guesses no key by that.
	free := errors.Is(reason, identity.ErrNoKey) && c.crossSite()
	if !free && client.Address != "" {
		if over := c.overCharge(c.s.Admission.ChargeUnknown(c.Ctx, client)); over != nil {
			return over
		}
	}
	switch {
	case errors.Is(reason, identity.ErrTwoKeys), errors.Is(reason, identity.ErrKeyTooLong),
		errors.Is(reason, identity.ErrNoAddress):
		return web.Problem(http.StatusBadRequest, api.CodeInvalidCredentials, web.Sentence(reason))
	case errors.Is(reason, identity.ErrNoKey), errors.Is(reason, identity.ErrUnknownScheme):
		// RFC 6750, section 3.1: a request without a key gets no error code.
		c.W.Header().Set("WWW-Authenticate", `Bearer realm="forebay"`)
	default:
		c.W.Header().Set("WWW-Authenticate", `Bearer realm="forebay", error="invalid_token"`)
	}
	return web.Problem(http.StatusUnauthorized, api.CodeInvalidCredentials, web.Sentence(reason))
}

// peek begins to read where the caller's limits stand, unless that is known and no older than
// within.
func (c *call) peek(within time.Duration) {
	if c.plan == nil || len(c.plan.Rules) == 0 {
		return
	}
	subject := admission.Subject(c.caller.Client, c.operation)
	if c.verdict = c.s.Admission.Recent(c.plan, subject, within); c.verdict != nil {
		return
	}
	c.peeked = make(chan *limits.Verdict, 1)
	ctx, peeked, plan, s := c.Ctx, c.peeked, c.plan, c.s
	go func() {
		v, err := s.Admission.Peek(ctx, plan, subject)
		if err != nil {
			peeked <- nil // an answer without the fields is better than none
			return
		}
		peeked <- &v
	}()
}

// How old the recent limits in an answer may be.
const (
	// For decisions that no limit made: fresh answers, duplicate requests.
	recallDecision = time.Second
	// For answers that clients poll for.
	recallStatus = 200 * time.Millisecond
)

// standings returns where the caller's limits stand, after the decision or as peeked, or nil if
// that isn't known.
func (c *call) standings() *limits.Verdict {
	if c.verdict == nil && !c.StoreLost && c.caller.ID != "" {
		if c.peeked == nil && c.s.Store.Healthy() {
			within := recallStatus
			if c.admission {
				within = recallDecision
			}
			c.peek(within)
		}
		if c.peeked != nil {
			c.verdict = <-c.peeked
		}
		c.peeked, c.StoreLost = nil, true
	}
	return c.verdict
}

func decisionField(decision, reason string) string {
	if decision == api.Accepted && reason != api.CodeStore {
		return decision
	}
	return decision + `;reason="` + reason + `"`
}

// reserve reserves the room for the call's answer until the call ends: see unread.reserve. A second
// reservation replaces the first, since the answer has changed. Answers to unknown callers are
// small and aren't counted.
func (c *call) reserve(body []byte, n int) (err error) {
	if c.free != nil {
		c.free()
		c.free = nil
	}
	if n > smallAnswer && c.caller.ID != "" {
		c.free, err = c.s.unread.reserve(c.caller.Client, body, n)
	}
	return err
}

package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/web"
)

// call is one request on its way to its answer. One goroutine has it, except for the reading that
// peek begins.
type call struct {
	web.Call
	s *Server

	client    identity.Client // ID "": not identified
	bodyBytes int64           // of the request's body; 0: it has none, or wasn't read to its end
	newUntil  time.Time       // the client's grace ends then; zero: it has none
	override  *Override       // the client's; nil: none
	check     bool            // a gateway asks; see planKey
	plan      *plan           // the limits that the answer's fields speak of; nil: none

	verdict *limits.Verdict      // what the limits said, once known
	peeked  chan *limits.Verdict // what peek will know; nil: it wasn't asked

	admission bool // the answer is a decision:
	decision  string
	reason    string
	operation string // "": not known
	jobID     string

	free func() // gives back the room that the answer takes; nil: it takes none
}

// AddFields adds the RateLimit fields and the decision to an answer.
func (c *call) AddFields(h http.Header) {
	if v := c.standings(); v != nil {
		c.plan.write(h, v, c.s.Legacy)
	}
	if c.decision != "" {
		h[api.HeaderDecision] = []string{decisionField(c.decision, c.reason)}
	}
}

// Reserve takes the room for an answer: see unread.reserve.
func (c *call) Reserve(n int) error { return c.reserve(nil, n) }

// Refused makes a decision of a problem, where the answer is to be one.
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
// worker that runs it logs its end. A request that was not accepted is logged at info level, at most
// 100 a second, so that a flood doesn't fill the disk. Metrics count all of them. A caller's address
// is personal, and other things that a client sent may be secret: neither is logged.
func (c *call) logDecision() {
	level := slog.LevelInfo
	if c.decision == api.Accepted {
		level = slog.LevelDebug
	}
	if !c.s.Web.Log.Enabled(c.Ctx, level) || level == slog.LevelInfo && !c.s.Web.AnswerLog.Allow(c.Began) {
		return
	}
	client := c.client.Name
	if client == "" {
		client = "anonymous"
		if c.client.ID == "" {
			client = "unknown"
		}
	}
	c.s.Web.Log.LogAttrs(c.Ctx, level, c.decision,
		slog.String("reason", c.reason), slog.String("operation", c.operation), slog.String("job_id", c.jobID),
		slog.String("client", client), slog.String("request_id", c.RequestID), slog.Int("status", c.Status),
		slog.Duration("took", time.Since(c.Began)))
}

// caller has h called for identified callers alone.
func (s *Server) caller(h handler) handler {
	return func(c *call) error {
		client, err := s.Identity.Identify(c.R)
		if err != nil {
			return c.unidentified(client, err)
		}
		c.identify(client)
		c.W.Header()["Cache-Control"] = web.NoStore
		return h(c)
	}
}

// deciding has h called for requests that are answered with a decision.
func deciding(h handler) handler {
	return func(c *call) error {
		c.admission = true
		return h(c)
	}
}

// identified is caller for requests that need the store. Meanwhile the caller's limits are read for
// the answer's fields, unless they are known from a moment ago.
func (s *Server) identified(h handler) handler {
	return s.caller(func(c *call) error {
		if !s.Store.Healthy() {
			return web.StoreError(web.ErrUnhealthy)
		}
		c.peek(recallStatus)
		return h(c)
	})
}

// identify notes who asks. The answer speaks of the limits of all of the caller's requests, until an
// operation is known.
func (c *call) identify(client identity.Client) {
	c.client = client
	if !client.Anonymous {
		if c.s.Overrides != nil {
			c.override = c.s.Overrides(client.ID)
		}
		c.newUntil = c.grace()
	}
	c.plan = c.planOf("")
}

// ended is a context for what may be looked up in memory alone.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// grace is until when the client counts as new; zero: it doesn't.
func (c *call) grace() time.Time {
	g := c.s.Tiers[c.client.Tier].Grace
	if g.Factor == 0 || c.s.Newcomers == nil {
		return time.Time{}
	}
	ctx := c.Ctx
	if !c.s.Store.Healthy() {
		ctx = ended
	}
	until, err := c.s.Newcomers.Until(ctx, c.client.ID, g.Period)
	if err != nil {
		c.s.Web.StoreLog.Do(func() {
			c.s.Web.Log.Warn("not known whether a client is new", "request_id", c.RequestID, "error", err)
		})
		return time.Time{}
	}
	return until
}

// planOf is what applies to the caller's requests for an operation; "": to calls that name none.
func (c *call) planOf(operation string) *plan {
	return c.s.planner.plan(planKey{tier: c.client.Tier, operation: operation, country: c.client.Country,
		override: c.override, grace: !c.newUntil.IsZero(), check: c.check})
}

// readsPlan is what applies to the caller's lists. It is the same for new clients.
func (c *call) readsPlan() *plan {
	return c.s.planner.plan(planKey{tier: c.client.Tier, country: c.client.Country, reads: true})
}

// subject is the subject that limits count when a client asks for an operation.
func subject(client identity.Client, operation string) limits.Subject {
	s := limits.Subject{Client: client.ID, Address: client.Address, Operation: operation,
		Tier: client.Tier, Country: client.Country}
	if s.Country == "" {
		s.Country = unknownCountry
	}
	return s
}

// decide has a plan's limits decide on a request, and keeps the books on what each of them said.
func (c *call) decide(by Decider, p *plan, r limits.Request) (limits.Verdict, error) {
	r.Rules = p.rules
	v, err := by.Decide(c.Ctx, r)
	if err == nil {
		c.note(p, r, v)
	}
	return v, err
}

// note keeps the books on what a plan's limits said to a request.
func (c *call) note(p *plan, r limits.Request, v limits.Verdict) {
	if c.s.Store.Healthy() && !p.reads { // else it may be word of this process alone
		c.s.heard.decision(p, r, v)
	}
	for i, s := range v.Standings {
		if s.Rule.Limit().Shadow {
			// A request that was refused anyway doesn't show what a trial would change.
			if v.Allowed && p.counts[i].shadow(s.Violated) && c.s.Shadows != nil {
				c.s.Shadows.Note(s.Rule.Limit().Name, r.Subject.Client, r.Subject.Operation)
			}
			continue
		}
		p.counts[i].enforced(v.Allowed, s.Violated)
	}
}

// charged is the answer to an identified caller whose request says nothing that could be decided on.
// The request spends 1 and its body's bytes of the limits of all of the caller's requests, or bodies
// without end could be sent for nothing. A body that the process has no room for is free.
func (c *call) charged(refusal error) error {
	var p *api.Problem
	if !errors.As(refusal, &p) || p.Status >= http.StatusInternalServerError || !c.s.Store.Healthy() {
		return refusal
	}
	// As of a gateway's check: nothing holds a place of a limit on jobs at one time.
	free := c.s.planner.plan(planKey{tier: c.client.Tier, country: c.client.Country, override: c.override,
		grace: !c.newUntil.IsZero(), check: true})
	if len(free.rules) == 0 {
		return refusal
	}
	request := limits.Request{Subject: subject(c.client, ""), Cost: 1, Bytes: c.bodyBytes, Recall: true}
	v, err := c.decide(c.s.Limiter, free, request)
	if err != nil {
		return refusal // what is wrong with the request is wrong without the store too
	}
	c.plan, c.verdict = free, &v
	if !v.Allowed {
		return free.overLimit(v, request)
	}
	return refusal
}

// unidentified is the answer to a caller that can't be identified. Such calls spend the address's
// limits, so that keys can't be guessed at leisure, and no other limits.
func (c *call) unidentified(client identity.Client, reason error) error {
	p := c.s.planner.plan(planKey{country: client.Country})
	// A page of another site can make a browser ask without a key, and guesses none by it.
	free := errors.Is(reason, identity.ErrNoKey) && c.crossSite()
	if len(p.rules) > 0 && !free && client.Address != "" && c.s.Store.Healthy() {
		request := limits.Request{Subject: subject(client, ""), Cost: 1, Recall: true}
		v, err := c.decide(c.s.Limiter, p, request)
		if err == nil {
			c.plan, c.verdict = p, &v // the answer tells of the limits that were charged
			if !v.Allowed {
				return p.overLimit(v, request)
			}
		}
	}
	switch {
	case errors.Is(reason, identity.ErrTwoKeys), errors.Is(reason, identity.ErrKeyTooLong),
		errors.Is(reason, identity.ErrNoAddress):
		return web.Problem(http.StatusBadRequest, api.CodeInvalidCredentials, web.Sentence(reason))
	case errors.Is(reason, identity.ErrNoKey), errors.Is(reason, identity.ErrUnknownScheme):
		// RFC 6750, section 3.1: who presented no key learns of no error.
		c.W.Header().Set("WWW-Authenticate", `Bearer realm="forebay"`)
	default:
		c.W.Header().Set("WWW-Authenticate", `Bearer realm="forebay", error="invalid_token"`)
	}
	return web.Problem(http.StatusUnauthorized, api.CodeInvalidCredentials, web.Sentence(reason))
}

// peek begins to read what the caller's limits hold, unless that was heard not longer ago than within.
func (c *call) peek(within time.Duration) {
	if c.plan == nil || len(c.plan.rules) == 0 {
		return
	}
	request := limits.Request{Rules: c.plan.rules, Cost: 1, Subject: subject(c.client, c.operation)}
	if c.verdict = c.s.heard.recall(c.plan, request.Subject, within); c.verdict != nil {
		return
	}
	c.peeked = make(chan *limits.Verdict, 1)
	ctx, peeked, plan, s := c.Ctx, c.peeked, c.plan, c.s
	go func() {
		asked := time.Now()
		v, err := s.Limiter.Peek(ctx, request)
		if err != nil {
			peeked <- nil // an answer without the fields is better than none
			return
		}
		s.heard.peek(plan, request.Subject, v, asked)
		peeked <- &v
	}()
}

// standings is what the caller's limits hold: after the decision, or as peeked; nil where that isn't
// known.
func (c *call) standings() *limits.Verdict {
	if c.verdict == nil && !c.StoreLost && c.client.ID != "" {
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

// reserve takes the room for the call's answer until the call ends: see unread.reserve. Where it is
// called again the answer is another one. Answers to unknown callers are small, and aren't counted.
func (c *call) reserve(body []byte, n int) (err error) {
	if c.free != nil {
		c.free()
		c.free = nil
	}
	if n > smallAnswer && c.client.ID != "" {
		c.free, err = c.s.unread.reserve(c.client, body, n)
	}
	return err
}

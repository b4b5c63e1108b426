package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/transfer"
)

// call is one request on its way to its answer. One goroutine has it, but for what peek begins.
type call struct {
	s         *Server
	w         http.ResponseWriter
	r         *http.Request
	ctx       context.Context // for the store: ends after storeTime and what the body adds to it, not with the connection
	cancel    context.CancelFunc
	began     time.Time
	route     string
	requestID string

	client    identity.Client // ID "": not identified
	bodyBytes int64           // of the request's body; 0: it has none, or wasn't read to its end
	newUntil  time.Time       // the client's grace ends then; zero: it has none
	override  *Override       // the client's; nil: none
	check     bool            // a gateway asks; see planKey
	plan      *plan           // the limits that the answer's fields speak of; nil: none

	verdict *limits.Verdict      // what the limits said, once known
	peeked  chan *limits.Verdict // what peek will know; nil: it wasn't asked
	noStore bool                 // the store has failed this call: don't ask it for the fields too

	admission bool // the answer is a decision:
	decision  string
	reason    string
	operation string // "": not known
	jobID     string

	held   time.Duration // how long the answer was held back for a client that prefers to wait
	status int           // 0: nothing written yet
	free   func()        // gives back the room that the answer takes; nil: it takes none
}

func (s *Server) begin(w http.ResponseWriter, r *http.Request, rt route) *call {
	c := &call{s: s, w: w, r: r, began: time.Now(), route: rt.path, admission: rt.admission, requestID: requestID(r.Header)}
	c.renew(0)
	w.Header()[api.HeaderRequestID] = []string{c.requestID}
	return c
}

// renew gives the call its time for the store, again after a body was read or an answer was held back. It is longer where many
// bytes are to go there.
func (c *call) renew(bytes int) {
	if c.cancel != nil {
		c.cancel()
	}
	c.ctx, c.cancel = context.WithTimeout(context.WithoutCancel(c.r.Context()), storeTime+transfer.Time(bytes))
}

// end closes the books on a call: a panic becomes a 500, and what was answered is counted and logged.
func (c *call) end() {
	if v := recover(); v != nil {
		c.s.Log.Error("panic", "route", c.route, "request_id", c.requestID, "panic", v, "stack", string(debug.Stack()))
		if c.status == 0 {
			c.fail(internalError())
		}
	}
	c.cancel()
	if c.free != nil {
		c.free()
	}
	c.s.metrics.answered(c)
	if c.decision != "" {
		c.logDecision()
	}
}

// logDecision writes one line a decision: of an accepted job at debug level, since its end is logged by whoever runs it; of one that was
// not accepted at info level, at most maxLogged a second, so that a flood doesn't fill the disk. Metrics count them all. A caller's
// address is personal, and whatever else a client sent may be secret: neither is logged.
func (c *call) logDecision() {
	level := slog.LevelInfo
	if c.decision == api.Accepted {
		level = slog.LevelDebug
	}
	if !c.s.Log.Enabled(c.ctx, level) || level == slog.LevelInfo && !c.s.decisionLog.allow(c.began) {
		return
	}
	client := c.client.Name
	if client == "" {
		client = "anonymous"
		if c.client.ID == "" {
			client = "unknown"
		}
	}
	c.s.Log.LogAttrs(c.ctx, level, c.decision,
		slog.String("reason", c.reason), slog.String("operation", c.operation), slog.String("job_id", c.jobID),
		slog.String("client", client), slog.String("request_id", c.requestID), slog.Int("status", c.status),
		slog.Duration("took", time.Since(c.began)))
}

// caller has h called for identified callers alone.
func (s *Server) caller(h handler) handler {
	return func(c *call) error {
		client, err := s.Identity.Identify(c.r)
		if err != nil {
			return c.unidentified(client, err)
		}
		c.identify(client)
		c.w.Header()["Cache-Control"] = noStore
		return h(c)
	}
}

// undecided has h called for what asks for no job, at a path where others do.
func undecided(h handler) handler {
	return func(c *call) error {
		c.admission = false
		return h(c)
	}
}

// identified is caller for what needs the store; meanwhile what the caller's limits hold is being read for the answer's fields, unless it
// was heard a moment ago.
func (s *Server) identified(h handler) handler {
	return s.caller(func(c *call) error {
		if !s.Store.Healthy() {
			return storeError{errUnhealthy}
		}
		c.peek(recallStatus)
		return h(c)
	})
}

// identify notes who asks. The answer speaks of the limits of all of the caller's requests, until an operation is known.
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

// ended is the context of what may only be looked up in memory.
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
	ctx := c.ctx
	if !c.s.Store.Healthy() {
		ctx = ended
	}
	until, err := c.s.Newcomers.Until(ctx, c.client.ID, g.Period)
	if err != nil {
		c.s.storeLog.do(func() { c.s.Log.Warn("not known whether a client is new", "request_id", c.requestID, "error", err) })
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

// subject is whom limits count when a client asks for an operation.
func subject(client identity.Client, operation string) limits.Subject {
	s := limits.Subject{Client: client.ID, Address: client.Address, Operation: operation, Tier: client.Tier, Country: client.Country}
	if s.Country == "" {
		s.Country = unknownCountry
	}
	return s
}

// decide has a plan's limits decide on a request, and keeps the books on what each of them said.
func (c *call) decide(by Decider, p *plan, r limits.Request) (limits.Verdict, error) {
	r.Rules = p.rules
	v, err := by.Decide(c.ctx, r)
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
			// A request that was refused anyway tells nothing of what a trial would change.
			if v.Allowed && p.counts[i].shadow(s.Violated) && c.s.Shadows != nil {
				c.s.Shadows.Note(s.Rule.Limit().Name, r.Subject.Client, r.Subject.Operation)
			}
			continue
		}
		p.counts[i].enforced(v.Allowed, s.Violated)
	}
}

// charged is the answer to an identified caller whose request says nothing that could be decided on. It
// spends 1 and its body's bytes of the limits of all of the caller's requests, or bodies without end could be sent for nothing.
// What the process itself has no room for is free.
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

// unidentified is the answer to a caller who isn't who it should be. Such calls spend the address's limits, so that keys can't be
// guessed at leisure, and nobody else's.
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
	case errors.Is(reason, identity.ErrTwoKeys), errors.Is(reason, identity.ErrKeyTooLong), errors.Is(reason, identity.ErrNoAddress):
		return problem(http.StatusBadRequest, api.CodeInvalidCredentials, sentence(reason))
	case errors.Is(reason, identity.ErrNoKey), errors.Is(reason, identity.ErrUnknownScheme):
		// RFC 6750, section 3.1: who presented no key learns of no error.
		c.w.Header().Set("WWW-Authenticate", `Bearer realm="forebay"`)
	default:
		c.w.Header().Set("WWW-Authenticate", `Bearer realm="forebay", error="invalid_token"`)
	}
	return problem(http.StatusUnauthorized, api.CodeInvalidCredentials, sentence(reason))
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
	ctx, peeked, plan, s := c.ctx, c.peeked, c.plan, c.s
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

// standings is what the caller's limits hold: after the decision, or as peeked; nil where nobody knows.
func (c *call) standings() *limits.Verdict {
	if c.verdict == nil && !c.noStore && c.client.ID != "" {
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
		c.peeked, c.noStore = nil, true
	}
	return c.verdict
}

var (
	noStore = []string{"no-store"}
	closing = []string{"close"}
)

// head writes the status and the fields that all answers have.
func (c *call) head(status int) {
	h := c.w.Header()
	if v := c.standings(); v != nil {
		c.plan.write(h, v, c.s.Legacy)
	}
	if c.decision != "" {
		h[api.HeaderDecision] = []string{decisionField(c.decision, c.reason)}
	}
	if c.s.leaving.Load() {
		h["Connection"] = closing
	}
	c.status = status
	c.w.WriteHeader(status)
}

func decisionField(decision, reason string) string {
	if decision == api.Accepted && reason != api.CodeStore {
		return decision
	}
	return decision + `;reason="` + reason + `"`
}

// json answers with a body of this API's own.
func (c *call) json(status int, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	if err := c.reserve(nil, len(text)); err != nil {
		return err
	}
	c.bytes(status, "application/json", append(text, '\n'))
	return nil
}

// reserve takes the room for the call's answer until the call ends: see unread.reserve. Where it is
// called again the answer is another one. Operators' answers aren't counted, since operators must see
// what is wrong when there is no room, nor are those to unknown callers, which are small.
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

// bytes answers with body as it is. A HEAD gets the fields alone.
func (c *call) bytes(status int, contentType string, body []byte) {
	if c.headOf(status, contentType, len(body)) {
		c.w.Write(body) // an error is the client's going away
	}
}

// headOf writes what comes before a body of n bytes, and reports whether the body is to follow.
func (c *call) headOf(status int, contentType string, n int) bool {
	h := c.w.Header()
	h["Content-Type"] = nil // without one net/http would guess from the bytes
	if contentType != "" {
		h["Content-Type"] = []string{contentType}
	}
	if status != http.StatusNoContent {
		h["Content-Length"] = []string{strconv.Itoa(n)}
	}
	c.head(status)
	return c.r.Method != http.MethodHead
}

// fail is where every error becomes an answer.
func (c *call) fail(err error) {
	p := c.problemOf(err)
	answer := *p
	answer.RequestID = c.requestID
	if c.admission {
		c.decision, c.reason = api.Rejected, p.Reason
		if c.reason == "" {
			c.reason = p.Code
		}
	}
	h := c.w.Header()
	h["Cache-Control"] = noStore
	if p.RetryAfter > 0 {
		h["Retry-After"] = []string{strconv.Itoa(p.RetryAfter)}
	}
	text, _ := json.Marshal(&answer) // of strings and numbers alone: it can't fail
	c.bytes(p.Status, "application/problem+json", append(text, '\n'))
}

func (c *call) problemOf(err error) *api.Problem {
	var p *api.Problem
	var store storeError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &store):
		c.noStore = true
		c.s.storeLog.do(func() {
			c.s.Log.Warn("the store fails", "route", c.route, "request_id", c.requestID, "error", store.err)
		})
		return storeUnavailable()
	}
	c.s.Log.Error("internal error", "route", c.route, "request_id", c.requestID, "error", err)
	return internalError()
}

// maxLogged is how many refused and degraded answers a second are logged one by one.
const maxLogged = 100

// atMost allows maxLogged things in each second of the clock.
type atMost struct {
	mu     sync.Mutex
	second int64 // guarded by mu
	count  int   // guarded by mu: allowed in that second
}

func (a *atMost) allow(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := now.Unix(); s != a.second {
		a.second, a.count = s, 0
	}
	a.count++
	return a.count <= maxLogged
}

// sometimes does at most one thing a second: during an outage every request has the same to say.
type sometimes struct{ last atomic.Int64 }

func (s *sometimes) do(f func()) {
	now, last := time.Now().Unix(), s.last.Load()
	if now != last && s.last.CompareAndSwap(last, now) {
		f()
	}
}

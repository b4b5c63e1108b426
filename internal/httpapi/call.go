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
	"github.com/forebay/forebay/internal/admission"
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

	caller    admission.Caller // ID "": not identified
	bodyBytes int64            // of the request's body; 0: it has none, or wasn't read to its end
	payload   []byte           // of the request for a job, until drop; nil: none
	drop      func()           // lets go of the body, which is no longer needed
	plan      *admission.Plan  // the limits that the answer's fields speak of; nil: none

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
	client := c.caller.Name
	if client == "" {
		client = "anonymous"
		if c.caller.ID == "" {
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

// identify notes who asks. The answer speaks of the limits on all of the caller's requests until an
// operation is known.
func (c *call) identify(client identity.Client) {
	var err error
	if c.caller, err = c.s.Admission.Caller(c.ctx, client); err != nil {
		c.s.storeLog.do(func() { c.s.Log.Warn("not known whether a client is new", "request_id", c.requestID, "error", err) })
	}
	c.plan = c.s.Admission.Plan(c.caller, "")
}

// charged is the answer to an identified caller whose request says nothing that could be decided on.
// It costs what Admission.Charge says. What the process itself has no room for is free.
func (c *call) charged(refusal error) error {
	var p *api.Problem
	if !errors.As(refusal, &p) || p.Status >= http.StatusInternalServerError {
		return refusal
	}
	if over := c.overCharge(c.s.Admission.Charge(c.ctx, c.caller, c.bodyBytes)); over != nil {
		return over
	}
	return refusal
}

// overCharge is the refusal of a caller that has no room for what it was to be charged. The answer's
// fields speak of the limits that were asked.
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

// unidentified is the answer to a caller that isn't who it should be. Such calls spend the limits on
// its address, so that keys can't be guessed at leisure.
func (c *call) unidentified(client identity.Client, reason error) error {
	// A page of another site can make a browser ask without a key, and guesses none by it.
	free := errors.Is(reason, identity.ErrNoKey) && c.crossSite()
	if !free && client.Address != "" {
		if over := c.overCharge(c.s.Admission.ChargeUnknown(c.ctx, client)); over != nil {
			return over
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

// peek begins to read where the caller's limits stand, unless that is known from within the given
// time.
func (c *call) peek(within time.Duration) {
	if c.plan == nil || len(c.plan.Rules) == 0 {
		return
	}
	subject := admission.Subject(c.caller.Client, c.operation)
	if c.verdict = c.s.Admission.Recent(c.plan, subject, within); c.verdict != nil {
		return
	}
	c.peeked = make(chan *limits.Verdict, 1)
	ctx, peeked, plan, s := c.ctx, c.peeked, c.plan, c.s
	go func() {
		v, err := s.Admission.Peek(ctx, plan, subject)
		if err != nil {
			peeked <- nil // an answer without the fields is better than none
			return
		}
		peeked <- &v
	}()
}

// How old the recent limits may be that an answer tells of.
const (
	recallDecision = time.Second            // a decision that no limit made: a fresh answer, a duplicate
	recallStatus   = 200 * time.Millisecond // what clients poll
)

// standings is what the caller's limits hold: after the decision, or as peeked; nil where nobody knows.
func (c *call) standings() *limits.Verdict {
	if c.verdict == nil && !c.noStore && c.caller.ID != "" {
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
		writeRateLimits(h, c.plan, v, c.s.Legacy)
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
	if n > smallAnswer && c.caller.ID != "" {
		c.free, err = c.s.unread.reserve(c.caller.Client, body, n)
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

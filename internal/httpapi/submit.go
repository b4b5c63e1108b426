package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/transfer"
)

// posted is a POST /v1/jobs as read.
type posted struct {
	operation   string
	payload     []byte // byte for byte
	priority    jobs.Priority
	startWithin time.Duration // 0: any time
	callback    string        // URL that is notified of the job's end; "": none was asked for
	body        []byte        // the whole request, for its fingerprint
}

// submit answers POST /v1/jobs: it reads the request, has admission decide, and renders the outcome.
func (s *Server) submit(c *call) error {
	// Who asks comes before what is asked: a body takes memory, and its sender must answer for it.
	client, unknown := s.Identity.Identify(c.r)
	if unknown != nil {
		return c.unidentified(client, unknown)
	}
	c.identify(client)
	sub, release, err := s.readSubmission(c)
	defer release()
	if err != nil {
		return c.charged(err)
	}
	r, err := s.requestOf(c, sub)
	if err != nil {
		return c.charged(err)
	}
	if s.refusing.Load() {
		return shuttingDown()
	}
	outcome, err := s.Admission.Submit(c.ctx, r)
	if err != nil {
		return err
	}
	c.payload, c.drop = r.Payload, func() {
		sub, r, c.payload = posted{}, admission.Request{}, nil
		release()
	}
	return c.render(outcome)
}

// requestOf is what was posted, as a request of the caller that admission can decide on.
func (s *Server) requestOf(c *call, sub posted) (r admission.Request, err error) {
	if r.Operation, err = s.operationFor(c, sub.operation); err != nil {
		return r, err
	}
	if r.Cost, err = r.Operation.Cost.Of(sub.payload); err != nil {
		wrong, _ := errors.AsType[*admission.CostError](err)
		return r, wrongCost(wrong)
	}
	if r.Callback, err = s.callbackFor(c.caller.ID, sub.callback); err != nil {
		return r, err
	}
	if r.Key, err = idempotencyKey(c.r.Header); err != nil {
		return r, err
	}
	h := c.r.Header
	r.ID, r.Caller, r.Payload, r.Body, r.Priority, r.StartWithin = c.requestID, c.caller, sub.payload, sub.body, sub.priority, sub.startWithin
	r.Traceparent, r.Wish = traceparent(h), degrade.ParseCacheControl(h["Cache-Control"])
	r.Waits = preferredWait(h[api.HeaderPrefer]) > 0
	return r, nil
}

// callbackFor is the URL that the end of a client's job is told to; "": it is told to nobody.
func (s *Server) callbackFor(client, asked string) (string, error) {
	refused := func(why string) error { return fieldErrors{{Detail: why, Pointer: pointer(fieldCallback)}}.err() }
	if s.Callbacks == nil {
		if asked != "" {
			return "", refused("This service tells no URL of jobs' ends.")
		}
		return "", nil
	}
	url, err := s.Callbacks.For(client, asked)
	if err != nil {
		return "", refused(sentence(err))
	}
	return url, nil
}

// readSubmission reads the body. release gives back its place among those that are held in memory.
func (s *Server) readSubmission(c *call) (sub posted, release func(), err error) {
	body, release, err := s.bodies.read(c.w, c.r, s.MaxBody)
	if err == nil {
		c.bodyBytes = int64(len(body))
		sub, err = s.parse(c.r.Context(), body)
		c.renew(len(body)) // a slow sender's time, and that for a turn, isn't the store's
	}
	return sub, release, err
}

// parse is parseSubmission, of large bodies on half of the processors at most: each takes one for
// milliseconds, and a small request, which needs one for microseconds at many moments, must find
// one. Others wait their turn, as long as the client does.
func (s *Server) parse(ctx context.Context, body []byte) (posted, error) {
	if len(body) > transfer.Small {
		select {
		case s.parsing <- struct{}{}:
			defer func() { <-s.parsing }()
		case <-ctx.Done():
			return posted{}, invalidRequest("The request ended early.")
		}
	}
	return parseSubmission(body)
}

const (
	fieldCallback = "callback_url"
	maxCallback   = 512 // bytes: the URL is kept in each job's record, among the words that every look reads
)

// parseSubmission reads the body of a POST /v1/jobs.
func parseSubmission(body []byte) (posted, error) {
	fields, err := members(body)
	if err != nil {
		return posted{}, err
	}
	sub := posted{priority: jobs.Normal, body: body}
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
		case fieldCallback:
			sub.callback = wrong.optionalText(m)
			if string(m.value) == `""` || len(sub.callback) > maxCallback {
				wrong.add(m.name, fmt.Sprintf("Must be a URL of 1 to %d bytes.", maxCallback))
			}
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
func (s *Server) operationFor(c *call, name string) (*admission.Operation, error) {
	o := s.Admission.Operation(name)
	if o == nil {
		p := problem(http.StatusNotFound, api.CodeUnknownOperation, "There is no operation "+brief(name)+".")
		p.Operations = s.Admission.Open(c.caller.Tier)
		return nil, p
	}
	c.operation = o.Name
	if !o.Open(c.caller.Tier) {
		c.w.Header().Set("WWW-Authenticate", `Bearer realm="forebay", error="insufficient_scope"`)
		p := problem(http.StatusForbidden, api.CodeNotAllowed, "Operation "+o.Name+" isn't open to your tier.")
		p.Operations = s.Admission.Open(c.caller.Tier)
		return nil, p
	}
	c.plan = s.Admission.Plan(c.caller, o.Name)
	return o, nil
}

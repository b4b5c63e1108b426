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
	"github.com/forebay/forebay/internal/web"
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

// submit answers POST /v1/jobs: it reads the request, lets admission decide, and renders the
// outcome.
func (s *Server) submit(c *call) error {
	// The client is identified before the body is read: a body takes memory, and its sender must be
	// known.
	if err := c.readCaller(); err != nil {
		return err
	}
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
		return web.ShuttingDown()
	}
	outcome, err := s.Admission.Submit(c.Ctx, r)
	if err != nil {
		return err
	}
	c.payload, c.drop = r.Payload, func() {
		sub, r, c.payload = posted{}, admission.Request{}, nil
		release()
	}
	return c.render(outcome)
}

// requestOf turns the posted request into one on which admission can decide.
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
	if r.Key, err = idempotencyKey(c.R.Header); err != nil {
		return r, err
	}
	h := c.R.Header
	r.ID, r.Caller, r.Payload, r.Body = c.RequestID, c.caller, sub.payload, sub.body
	r.Priority, r.StartWithin = sub.priority, sub.startWithin
	r.Traceparent, r.Wish = web.Traceparent(h), degrade.ParseCacheControl(h["Cache-Control"])
	r.Waits = preferredWait(h[api.HeaderPrefer]) > 0
	return r, nil
}

// callbackFor returns the URL to notify of the end of a client's job; "": none.
func (s *Server) callbackFor(client, asked string) (string, error) {
	refused := func(why string) error {
		return web.FieldErrors{{Detail: why, Pointer: web.Pointer(fieldCallback)}}.Err()
	}
	if s.Callbacks == nil {
		if asked != "" {
			return "", refused("This service tells no URL of jobs' ends.")
		}
		return "", nil
	}
	url, err := s.Callbacks.For(client, asked)
	if err != nil {
		return "", refused(web.Sentence(err))
	}
	return url, nil
}

// readSubmission reads the body. release gives back the memory that is reserved for it.
func (s *Server) readSubmission(c *call) (sub posted, release func(), err error) {
	body, release, err := s.bodies.Read(c.W, c.R, s.MaxBody)
	if err == nil {
		c.bodyBytes = int64(len(body))
		sub, err = s.parse(c.R.Context(), body)
		c.Renew(len(body)) // the time of a slow sender, or of parsing, isn't the store's
	}
	return sub, release, err
}

// parse is parseSubmission, with large bodies on at most half of the processors. A large body takes
// a processor for milliseconds, and small requests, which need one for microseconds, must find one
// free. Other large bodies wait, as long as their clients do.
func (s *Server) parse(ctx context.Context, body []byte) (posted, error) {
	if len(body) > transfer.Small {
		select {
		case s.parsing <- struct{}{}:
			defer func() { <-s.parsing }()
		case <-ctx.Done():
			return posted{}, web.InvalidRequest("The request ended early.")
		}
	}
	return parseSubmission(body)
}

const (
	fieldCallback = "callback_url"
	// maxCallback bounds the URL in bytes: it is in each job's record, and every look reads it.
	maxCallback = 512
)

// parseSubmission reads the body of a POST /v1/jobs.
func parseSubmission(body []byte) (posted, error) {
	fields, err := web.Members(body)
	if err != nil {
		return posted{}, err
	}
	sub := posted{priority: jobs.Normal, body: body}
	var wrong web.FieldErrors
	named := false
	for _, m := range fields {
		switch m.Name {
		case "operation":
			sub.operation, named = wrong.Text(m), true
		case "payload":
			sub.payload = m.Value
		case "priority":
			if word := wrong.OptionalText(m); word != "" || string(m.Value) == `""` {
				sub.priority = jobs.Priority(word)
			}
			if sub.priority.Weight() == 0 {
				wrong.Add(m.Name, `Must be "high", "normal" or "low".`)
			}
		case "start_within":
			sub.startWithin = wrong.Duration(m)
		case fieldCallback:
			sub.callback = wrong.OptionalText(m)
			if string(m.Value) == `""` || len(sub.callback) > maxCallback {
				wrong.Add(m.Name, fmt.Sprintf("Must be a URL of 1 to %d bytes.", maxCallback))
			}
		default:
			wrong.Unknown(m)
		}
	}
	if !named {
		wrong.Add("operation", "Is required.")
	}
	if sub.payload == nil {
		wrong.Add("payload", "Is required; null, where the operation needs none.")
	}
	return sub, wrong.Err()
}

// operationFor returns the operation that the caller asks for, if it is open to the caller, and
// notes it.
func (s *Server) operationFor(c *call, name string) (*admission.Operation, error) {
	o := s.Admission.Operation(name)
	if o == nil {
		p := web.Problem(http.StatusNotFound, api.CodeUnknownOperation,
			"There is no operation "+web.Brief(name)+".")
		p.Operations = s.Admission.Open(c.caller.Tier)
		return nil, p
	}
	c.operation = o.Name
	if !o.Open(c.caller.Tier) {
		c.W.Header().Set("WWW-Authenticate",
			`Bearer realm="forebay", error="insufficient_scope"`)
		p := web.Problem(http.StatusForbidden, api.CodeNotAllowed,
			"Operation "+o.Name+" isn't open to your tier.")
		p.Operations = s.Admission.Open(c.caller.Tier)
		return nil, p
	}
	c.plan = s.Admission.Plan(c.caller, o.Name)
	return o, nil
}

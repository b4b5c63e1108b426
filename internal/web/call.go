package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gorilla/mux"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/transfer"
)

// StoreTime bounds how long one request may wait for the store. Many bytes add to it (Call.Renew).
const StoreTime = 600 * time.Millisecond

// Call is one request on its way to its answer. It isn't safe for concurrent use.
type Call struct {
	W         http.ResponseWriter
	R         *http.Request
	Ctx       context.Context // for the store: it doesn't end with the connection; see Renew
	Began     time.Time
	Route     string // the path's template
	RequestID string
	Status    int           // of the answer; 0: nothing is written yet
	Held      time.Duration // how long the answer was held back because its client asked for that
	StoreLost bool          // the store has failed in this call: it isn't called again

	server *Server
	hooks  Hooks
	store  *storeContext // is Ctx
}

// Hooks are what a server adds to the answers of its calls. A Call's own do nothing; a type that
// embeds Call defines those that it needs. They are called on the goroutine that answers.
type Hooks interface {
	// AddFields adds to the header of an answer, just before its status is written.
	AddFields(h http.Header)
	// Reserve reserves room for an answer of n bytes until the call ends, in place of what the call
	// had reserved before. An error becomes the answer.
	Reserve(n int) error
	// Refused is called with a problem before it becomes the answer.
	Refused(p *api.Problem)
	// Ended is called once, at the end, also after a panic. took is how long the call took, except
	// for the time that its answer was held back.
	Ended(took time.Duration)
}

// Caller is implemented by *Call and by types that embed it.
type Caller interface {
	Hooks
	base() *Call
}

func (c *Call) base() *Call { return c }

// AddFields adds nothing.
func (c *Call) AddFields(http.Header) {}

// Reserve reserves nothing.
func (c *Call) Reserve(int) error { return nil }

// Refused does nothing.
func (c *Call) Refused(*api.Problem) {}

// Ended does nothing.
func (c *Call) Ended(time.Duration) {}

// begin makes a call of a request.
func (c *Call) begin(s *Server, hooks Hooks, w http.ResponseWriter, r *http.Request, route string) {
	c.server, c.hooks = s, hooks
	c.W, c.R, c.Began, c.Route, c.RequestID = w, r, time.Now(), route, requestID(r.Header)
	c.Renew(0)
	w.Header()[api.HeaderRequestID] = []string{c.RequestID}
}

// Renew gives the call its whole time for the store, at its start and again after a body was read
// or an answer was held back. The time is longer if many bytes are sent to the store.
func (c *Call) Renew(bytes int) {
	if c.store != nil {
		c.store.end()
	}
	c.store = &storeContext{request: c.R.Context(),
		deadline: time.Now().Add(StoreTime + transfer.Time(bytes))}
	c.Ctx = c.store
}

// end closes a call: a panic becomes a 500, and the answer is counted.
func (c *Call) end() {
	if v := recover(); v != nil {
		c.server.Log.Error("panic", "route", c.Route, "request_id", c.RequestID, "panic", v,
			"stack", string(debug.Stack()))
		if c.Status == 0 {
			c.Fail(InternalError())
		}
	}
	c.store.end()
	took := time.Since(c.Began) - c.Held
	c.server.answered(c, took)
	c.hooks.Ended(took)
}

// Var returns a variable of the route's path, as the request has it.
func (c *Call) Var(name string) string { return mux.Vars(c.R)[name] }

// Values of header fields. They are shared, and must not be changed.
var (
	NoStore = []string{"no-store"}
	closing = []string{"close"}
)

// Head writes the status, and the fields that all answers have.
func (c *Call) Head(status int) {
	h := c.W.Header()
	c.hooks.AddFields(h)
	if c.server.Leaving() {
		h["Connection"] = closing
	}
	c.Status = status
	c.W.WriteHeader(status)
}

// JSON answers with a body in JSON.
func (c *Call) JSON(status int, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	if err := c.hooks.Reserve(len(text)); err != nil {
		return err
	}
	c.Bytes(status, "application/json", append(text, '\n'))
	return nil
}

// Bytes answers with a body as it is. A HEAD gets only the fields.
func (c *Call) Bytes(status int, contentType string, body []byte) {
	if c.HeadOf(status, contentType, len(body)) {
		c.W.Write(body) // an error means that the client left
	}
}

// HeadOf writes the status and the fields of an answer with a body of n bytes, and reports whether
// the body must follow.
func (c *Call) HeadOf(status int, contentType string, n int) bool {
	h := c.W.Header()
	h["Content-Type"] = nil // without one net/http would guess from the bytes
	if contentType != "" {
		h["Content-Type"] = []string{contentType}
	}
	if status != http.StatusNoContent {
		h["Content-Length"] = []string{strconv.Itoa(n)}
	}
	c.Head(status)
	return c.R.Method != http.MethodHead
}

// Serve lets h answer, and notes the status. Of the fields of other answers, the answer has only
// the request's id.
func (c *Call) Serve(h http.Handler) {
	h.ServeHTTP(&statusRecorder{ResponseWriter: c.W, status: &c.Status}, c.R)
}

// statusRecorder notes the status of an answer that isn't written by Call.
type statusRecorder struct {
	http.ResponseWriter
	status *int
}

func (w *statusRecorder) WriteHeader(status int) {
	*w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusRecorder) Write(b []byte) (int, error) {
	if *w.status == 0 {
		*w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Fail answers with a problem. Every error becomes an answer here: an *api.Problem is the answer
// itself, a StoreError becomes a 503, and any other error a 500, whose cause is logged and never
// served.
func (c *Call) Fail(err error) {
	p := c.problemOf(err)
	answer := *p
	answer.RequestID = c.RequestID
	c.hooks.Refused(p)
	h := c.W.Header()
	h["Cache-Control"] = NoStore
	if p.RetryAfter > 0 {
		h["Retry-After"] = []string{strconv.Itoa(p.RetryAfter)}
	}
	text, _ := json.Marshal(&answer) // of strings and numbers alone: it can't fail
	c.Bytes(p.Status, "application/problem+json", append(text, '\n'))
}

// StoreFailed notes and logs that the store failed, and returns the problem to answer with if there
// is no better answer.
func (c *Call) StoreFailed(err error) error {
	return c.problemOf(StoreError(err))
}

func (c *Call) problemOf(err error) *api.Problem {
	var p *api.Problem
	var store storeError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &store):
		c.StoreLost = true
		c.server.StoreLog.Do(func() {
			c.server.Log.Warn("the store fails", "route", c.Route, "request_id", c.RequestID,
				"error", store.err)
		})
		return StoreUnavailable()
	}
	c.server.Log.Error("internal error", "route", c.Route, "request_id", c.RequestID, "error", err)
	return InternalError()
}

// Livez answers GET /livez: the process runs.
func Livez(c *Call) error {
	c.W.Header()["Cache-Control"] = NoStore
	return c.JSON(http.StatusOK, api.Health{Status: "alive"})
}

// WithStore reports whether a probe also asks about the store: ?store=1.
func WithStore(r *http.Request) bool { return r.URL.Query().Get("store") == "1" }

package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// A stream sends a job's states as they change, as server-sent events (WHATWG HTML, section 9.2).
// Each event is a whole state and its id is the standing's version. A client that resumes with the
// last id that it saw misses no state that still matters.

// Types of the events of a stream.
const (
	eventStatus = "status"
	eventDone   = "done" // the job's final state; nothing follows
)

// stream answers a status with a stream of states, which ends with the job. Thousands of requests
// wait here. To keep their stacks at the smallest size, the functions that handle whole states
// return before the wait.
func (s *Server) stream(c *call) error {
	t, err := s.beginStream(c)
	if t == nil || err != nil {
		return err
	}
	defer t.end()
	for {
		more, err := t.tell()
		if err != nil {
			return nil // the client has left
		}
		if more == toTell {
			more, err = t.quiet()
		}
		switch {
		case err != nil || more == nothing:
			return nil
		case more == later:
			_ = t.ComeBack()
			return nil
		}
	}
}

// telling is an open stream.
type telling struct {
	web.EventStream
	watch *jobWatch
	beat  *time.Ticker
	leave func()
	began time.Time

	seen   int64 // the version that the client got last
	knows  bool  // the client has got one
	looked bool  // since the stream began
}

// further is what a stream does next.
type further int

const (
	toTell  further = iota // look again
	nothing                // end: the job has ended, or the client left
	later                  // end for now: the client should reconnect
)

// beginStream writes the head of a stream. It returns nil if the answer is complete with that.
func (s *Server) beginStream(c *call) (*telling, error) {
	line, look, err := s.ownJob(c)
	if err != nil {
		return nil, err
	}
	seen, resumed := lastEventID(c.R.Header)
	h := c.W.Header()
	h["Vary"] = varyByCaller
	if resumed && done(look) && seen >= look.Standing.Version {
		c.Head(http.StatusNoContent) // the client doesn't reconnect after this
		return nil, nil
	}
	leave, ok := s.waits.enter(heldStream, c.caller.Client)
	if !ok {
		return nil, tooManyHeld()
	}
	events, more := c.BeginEvents()
	t := &telling{
		EventStream: events,
		watch:       s.watchJob(c, line, look, s.life),
		beat:        time.NewTicker(s.beat),
		leave:       leave,
		began:       time.Now(),
		seen:        seen,
		knows:       resumed,
	}
	if !more {
		t.end()
		return nil, nil
	}
	return t, nil
}

func (t *telling) end() {
	t.beat.Stop()
	t.watch.end()
	t.leave()
	t.watch.c.Held = time.Since(t.began)
}

// tell looks up where the job stands, and writes the state if it is new to the client. An error
// means that the client left.
func (t *telling) tell() (further, error) {
	look, err := t.watch.look()
	if err != nil {
		if !errors.Is(err, leaky.ErrUnknownJob) {
			_ = t.watch.c.StoreFailed(err) // it is logged
		}
		return later, nil
	}
	// Versions only grow, unless Redis lost its last writes: then a client that saw a later one
	// gets the older state again.
	version := look.Standing.Version
	if !t.knows || version > t.seen || t.looked && version != t.seen {
		if err := t.event(look); err != nil {
			return nothing, err
		}
		t.seen, t.knows = version, true
		t.beat.Reset(t.watch.s.beat)
	}
	t.looked = true
	if done(look) {
		return nothing, nil
	}
	return toTell, nil
}

// quiet waits for the job's next move. An error means that the client left.
func (t *telling) quiet() (further, error) {
	for {
		switch t.watch.next(t.beat.C) {
		case jobMoved:
			return toTell, nil
		case beatDue:
			if err := t.Comment(); err != nil {
				return nothing, err
			}
		case callerGone:
			return nothing, nil
		default:
			return later, nil
		}
	}
}

func (t *telling) event(look leaky.Look) error {
	name := eventStatus
	if done(look) {
		name = eventDone
	}
	text, err := json.Marshal(jobview.ForClient(look, time.Now())) // of one line
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return t.Send(strconv.FormatInt(look.Standing.Version, 10), name, text)
}

// lastEventID returns the version that a returning client saw last. An id that no stream sends
// counts as none.
func lastEventID(h http.Header) (version int64, ok bool) {
	version, err := strconv.ParseInt(h.Get("Last-Event-ID"), 10, 64)
	return version, err == nil && version >= 0
}

func tooManyHeld() *api.Problem {
	return web.TooManyStreams("Too many answers are held back already: for you, for your " +
		"network, or for all clients together. " +
		"Ask for the status without a stream and without Prefer: wait.")
}

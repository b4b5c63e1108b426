package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// A stream tells a job's states as they come, as server-sent events (WHATWG HTML, section 9.2). Each event is a whole state and its id is
// the standing's version, so whoever comes back with the last id it saw misses nothing that still matters.

const (
	// heartbeat is how often a silent stream says that it is there. Proxies cut silent connections from 60 s on.
	heartbeat = 15 * time.Second
	// streamLife is after how long a stream is ended, so that clients spread over processes again. They come back by themselves.
	streamLife = 10 * time.Minute
	// streamWrite is how long a client may take to make room for one event.
	streamWrite = 10 * time.Second
	// comeBack is when a client whose stream broke may come again.
	comeBack = 3 * time.Second
	// Those whose streams the service ended come again between these, and not all at once.
	comeBackFrom = time.Second
	comeBackTo   = 5 * time.Second
	// Whoever has too many streams is told to try again between these: they last up to streamLife.
	fewerFrom = 10 // seconds
	fewerTo   = 20
)

// Types of the events of a stream.
const (
	eventStatus = "status"
	eventDone   = "done" // the job's final state; nothing follows
)

// stream answers a status with a stream of states, which ends with the job. Thousands wait here: what is on the stack while they do should
// fit into its smallest sizes, so whatever has whole states in hand has returned by then.
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
			_ = t.retry(comeBackFrom + rand.N(comeBackTo-comeBackFrom))
			return nil
		}
	}
}

// telling is an open stream.
type telling struct {
	eventWriter
	vigil *vigil
	beat  *time.Ticker
	leave func()
	began time.Time

	seen   int64 // the version that the client was told of last
	knows  bool  // it was told of one
	looked bool  // since the stream began
}

// further is what a stream has to tell after what it has told.
type further int

const (
	toTell  further = iota
	nothing         // that was the job's end, or nobody listens
	later           // for now: the client should come back
)

// beginStream writes what comes before the first state; nil where that was all.
func (s *Server) beginStream(c *call) (*telling, error) {
	line, look, err := s.ownJob(c)
	if err != nil {
		return nil, err
	}
	seen, resumed := lastEventID(c.R.Header)
	h := c.W.Header()
	h["Vary"] = varyByCaller
	if resumed && done(look) && seen >= look.Standing.Version {
		c.Head(http.StatusNoContent) // which tells the client not to come back
		return nil, nil
	}
	leave, ok := s.waits.enter(heldStream, c.caller.Client)
	if !ok {
		return nil, tooManyHeld()
	}
	h["Content-Type"] = []string{"text/event-stream"}
	h["X-Accel-Buffering"] = []string{"no"} // or nginx would keep events to itself
	c.Head(http.StatusOK)
	t := &telling{eventWriter: eventWriter{w: c.W, control: http.NewResponseController(c.W)}, leave: leave, began: time.Now(),
		vigil: s.keepVigil(c, line, look, s.life), beat: time.NewTicker(s.beat), seen: seen, knows: resumed}
	_ = t.control.SetReadDeadline(time.Time{}) // it would end the stream
	if c.R.Method == http.MethodHead || t.retry(comeBack) != nil {
		t.end()
		return nil, nil
	}
	return t, nil
}

func (t *telling) end() {
	t.beat.Stop()
	t.vigil.end()
	t.leave()
	t.vigil.c.Held = time.Since(t.began)
}

// tell looks where the job stands and writes it, if the client hasn't been told. An error is the client's going away.
func (t *telling) tell() (further, error) {
	look, err := t.vigil.look()
	if err != nil {
		if !errors.Is(err, leaky.ErrUnknownJob) {
			_ = t.vigil.c.StoreFailed(err) // it is logged
		}
		return later, nil
	}
	// Versions only grow; but a Redis that lost its last writes has older ones, and who was told of those should hear it.
	version := look.Standing.Version
	if !t.knows || version > t.seen || t.looked && version != t.seen {
		if err := t.event(look); err != nil {
			return nothing, err
		}
		t.seen, t.knows = version, true
		t.beat.Reset(t.vigil.s.beat)
	}
	t.looked = true
	if done(look) {
		return nothing, nil
	}
	return toTell, nil
}

// quiet waits for the job's next move. An error is the client's going away.
func (t *telling) quiet() (further, error) {
	for {
		switch t.vigil.next(t.beat.C) {
		case jobMoved:
			return toTell, nil
		case beatDue:
			if err := t.comment(); err != nil {
				return nothing, err
			}
		case callerGone:
			return nothing, nil
		default:
			return later, nil
		}
	}
}

// eventWriter writes a stream. Each write is flushed, and has streamWrite; an error is the client's going away.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (e *eventWriter) write(format string, args ...any) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(streamWrite)) // not known to every writer, and the listener's own has none that is shorter
	if _, err := fmt.Fprintf(e.w, format, args...); err != nil {
		return err
	}
	return e.control.Flush()
}

func (e *eventWriter) event(look leaky.Look) error {
	name := eventStatus
	if done(look) {
		name = eventDone
	}
	text, err := json.Marshal(jobview.ForClient(look, time.Now())) // of one line
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return e.write("id: %d\nevent: %s\ndata: %s\n\n", look.Standing.Version, name, text)
}

// retry tells when to come back after the stream's end.
func (e *eventWriter) retry(after time.Duration) error {
	return e.write("retry: %d\n\n", after.Milliseconds())
}

func (e *eventWriter) comment() error { return e.write(": still there\n\n") }

// lastEventID is the version that a client which comes back has seen. What is none of ours is as good as none.
func lastEventID(h http.Header) (version int64, ok bool) {
	version, err := strconv.ParseInt(h.Get("Last-Event-ID"), 10, 64)
	return version, err == nil && version >= 0
}

func tooManyHeld() *api.Problem {
	p := web.Problem(http.StatusTooManyRequests, api.CodeTooManyStreams,
		"Too many answers are held back already: for you, for your network, or for all clients together. "+
			"Ask for the status without a stream and without Prefer: wait.")
	p.RetryAfter = fewerFrom + rand.IntN(fewerTo-fewerFrom+1)
	return p
}

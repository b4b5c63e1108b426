package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"forebay/api"
	"forebay/internal/leaky"
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

// stream answers a status with a stream of states, which ends with the job.
func (s *Server) stream(c *call, line Line, look leaky.Look) error {
	seen, resumed := lastEventID(c.r.Header)
	h := c.w.Header()
	h["Cache-Control"] = noStore
	h["Vary"] = varyByCaller
	if resumed && done(look) && seen >= look.Standing.Version {
		c.head(http.StatusNoContent) // which tells the client not to come back
		return nil
	}
	leave, ok := s.waits.enter(heldStream, c.client.ID)
	if !ok {
		return tooManyStreams()
	}
	defer leave()
	h["Content-Type"] = []string{"text/event-stream"}
	h["X-Accel-Buffering"] = []string{"no"} // or nginx would keep events to itself
	c.head(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	defer func(began time.Time) { c.held = time.Since(began) }(time.Now())
	out := &eventWriter{w: c.w, control: http.NewResponseController(c.w)}
	_ = out.control.SetReadDeadline(time.Time{}) // it would end the stream
	if out.retry(comeBack) != nil {
		return nil
	}
	v := s.keepVigil(c, line, look, streamLife)
	defer v.end()
	if s.tell(v, out, seen, resumed) {
		_ = out.retry(comeBackFrom + rand.N(comeBackTo-comeBackFrom))
	}
	return nil
}

// tell writes the job's states to a stream until the last, and reports whether there is more that the client should come back for.
func (s *Server) tell(v *vigil, out *eventWriter, seen int64, resumed bool) (more bool) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for first := true; ; first = false {
		look, err := v.look()
		if err != nil {
			if !errors.Is(err, leaky.ErrUnknownJob) {
				_ = v.c.storeFailed(err) // it is logged
			}
			return true
		}
		version := look.Standing.Version
		if news := !resumed || version > seen || !first && version != seen; news {
			if out.event(look) != nil {
				return false
			}
			seen, resumed = version, true
			beat.Reset(heartbeat)
		}
		if done(look) {
			return false
		}
		for waiting := true; waiting; {
			switch v.next(beat.C) {
			case jobMoved:
				waiting = false
			case beatDue:
				if out.comment() != nil {
					return false
				}
			case callerGone:
				return false
			default:
				return true
			}
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
	text, err := json.Marshal(jobView(look, time.Now())) // of one line
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

func tooManyStreams() *api.Problem {
	p := problem(http.StatusTooManyRequests, api.CodeTooManyStreams,
		"You have as many answers held back as one client may, or all clients together have. Ask for the status without a stream.")
	p.RetryAfter = fewerFrom + rand.IntN(fewerTo-fewerFrom+1)
	return p
}

package web

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/forebay/forebay/api"
)

const (
	// Heartbeat is how often a silent stream sends a comment. Proxies cut silent connections from
	// 60 s on.
	Heartbeat = 15 * time.Second
	// StreamLife is how long a stream lasts at most, so that clients spread over processes again.
	// They reconnect by themselves.
	StreamLife = 10 * time.Minute
	// streamWrite is how long a client may take to make room for one event.
	streamWrite = 10 * time.Second
	// comeBack is how long a client waits before it reconnects after its stream broke.
	comeBack = 3 * time.Second
	// Clients whose streams the service ended reconnect between these, not all at once.
	comeBackFrom = time.Second
	comeBackTo   = 5 * time.Second
	// A client with too many streams may try again between these seconds: streams last up to
	// StreamLife.
	FewerFrom, FewerTo = 10, 20
)

// EventStream writes server-sent events (WHATWG HTML, section 9.2). Each write is flushed, and has
// 10 s; an error means that the client left. Not safe for concurrent use.
type EventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// BeginEvents writes the head of a stream. more is false if the answer is complete with that: it is
// to a HEAD, or the client left.
func (c *Call) BeginEvents() (e EventStream, more bool) {
	h := c.W.Header()
	h["Content-Type"] = []string{"text/event-stream"}
	h["X-Accel-Buffering"] = []string{"no"} // or nginx would keep events to itself
	c.Head(http.StatusOK)
	e = EventStream{c.W, http.NewResponseController(c.W)}
	_ = e.control.SetReadDeadline(time.Time{}) // it would end the stream
	return e, c.R.Method != http.MethodHead && e.retry(comeBack) == nil
}

// Send writes an event. Its parts have no line breaks.
func (e *EventStream) Send(id, event string, data []byte) error {
	return e.write("id: %s\nevent: %s\ndata: %s\n\n", id, event, data)
}

// Comment writes what the client ignores, so that the connection isn't silent.
func (e *EventStream) Comment() error { return e.write(": still there\n\n") }

// ComeBack asks the client to reconnect soon after the stream's end.
func (e *EventStream) ComeBack() error {
	return e.retry(comeBackFrom + rand.N(comeBackTo-comeBackFrom))
}

// retry says when to reconnect after the stream's end.
func (e *EventStream) retry(after time.Duration) error {
	return e.write("retry: %d\n\n", after.Milliseconds())
}

func (e *EventStream) write(format string, args ...any) error {
	// Not every writer has deadlines; the listener's has none that is shorter.
	_ = e.control.SetWriteDeadline(time.Now().Add(streamWrite))
	if _, err := fmt.Fprintf(e.w, format, args...); err != nil {
		return err
	}
	return e.control.Flush()
}

// TooManyStreams returns the problem of a request for an answer that would be held back, or be a
// stream, where there are too many of them.
func TooManyStreams(detail string) *api.Problem {
	p := Problem(http.StatusTooManyRequests, api.CodeTooManyStreams, detail)
	p.RetryAfter = FewerFrom + rand.IntN(FewerTo-FewerFrom+1)
	return p
}

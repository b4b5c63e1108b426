package client

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"time"

	"github.com/forebay/forebay/api"
)

const (
	// firstWord is how soon a stream must have its first event or, when resumed, its first byte. A
	// server sends the state at once. If nothing has come in this time, a proxy buffers the answer
	// until it is complete, or changes it.
	firstWord = 5 * time.Second

	// longestSilence of a stream is two missed heartbeats, which come every 15 s, and some time in
	// transit.
	longestSilence = 40 * time.Second

	// lastWords is how long a stream may take to end after the event of the job's end. The client
	// waits for it because a connection is reused only after its answer was read to the end.
	lastWords = 250 * time.Millisecond
)

var errSilent = errors.New("the stream is silent")

// stream follows the job's states until it is done, or as long as the stream lasts.
func (w *waiting) stream(ctx context.Context) (*Error, error) {
	began := time.Now()
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(firstWord, func() { cancel(errSilent) })
	defer silence.Stop()

	call := w.call
	// A compressor would hold a short event back until more follows.
	call.fields = [][2]string{{"Accept", "text/event-stream"}, {"Accept-Encoding", "identity"}}
	if w.event != "" {
		call.fields = append(call.fields, [2]string{"Last-Event-ID", w.event})
	}
	res, err := w.send(within, w.streams, call)
	if err != nil {
		if context.Cause(within) == errSilent {
			w.fallBack(true)
			return nil, nil
		}
		return w.refused(ctx, cutOff(ctx, call, err))
	}
	defer res.Body.Close()
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if res.StatusCode != http.StatusOK || kind != "text/event-stream" {
		return w.noStream(ctx, call, res)
	}

	alive, ending := false, false
	begun := w.event != "" // a resumed stream may have no new event
	events := newEvents(readerFunc(func(p []byte) (int, error) {
		n, err := res.Body.Read(p)
		if n > 0 && begun && !ending {
			alive = true
			silence.Reset(longestSilence)
		}
		return n, err
	}), w.maxBody)
	for {
		data, more := events.next()
		if !more {
			break
		}
		if !begun {
			begun, alive = true, true
			silence.Reset(longestSilence)
		}
		w.event = events.id
		var job api.Job
		if json.Unmarshal(data, &job) == nil && job.ID == w.id {
			w.seen = &job
		}
		if w.done() && !ending {
			ending = true
			silence.Reset(lastWords)
		}
	}
	if w.done() {
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, cutOff(ctx, call, context.Cause(ctx))
	}
	if context.Cause(within) == errSilent {
		w.fallBack(!alive)
		return nil, nil
	}
	// A stream that lasted as long as a long poll was as good as one, however it ended.
	if w.early++; time.Since(began) >= longestHold {
		w.early = 1
	}
	if w.early >= shortStreams {
		w.fallBack(false)
	}
	return &Error{Call: call.String(), Status: res.StatusCode, RetryAfter: events.retry,
		Attempts: 1}, nil
}

func (w *waiting) done() bool { return w.seen != nil && w.seen.Done }

// noStream handles an answer that isn't a stream: the job's status from a server without streams,
// an empty answer if there are no more events, or a refusal.
func (w *waiting) noStream(ctx context.Context, call call, res *http.Response) (*Error, error) {
	a, failed := w.read(ctx, call, res)
	if failed != nil {
		return w.refused(ctx, failed)
	}
	_ = w.see(a) // an unreadable answer is ignored: a poll follows
	w.fallBack(a.status == http.StatusOK && !w.done())
	return nil, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

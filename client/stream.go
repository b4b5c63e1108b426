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
	// firstWord is how soon a stream has an event, or, taken up again, anything. A server tells the state at once; where nothing has come by then,
	// something on the way holds the answer up until it is whole, or makes something else of it.
	firstWord = 5 * time.Second

	// longestSilence in a stream is two missed heartbeats, which come each 15 s, and some time on the way.
	longestSilence = 40 * time.Second

	// lastWords is how long a stream may take to end after the job's end was told. It is waited for since a connection whose answer came to its end can be
	// used again.
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
	// Compressed, a short event would wait in the compressor for more.
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
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); res.StatusCode != http.StatusOK || kind != "text/event-stream" {
		return w.noStream(ctx, call, res)
	}

	heard, ending := false, false
	told := w.event != "" // what is taken up again may have nothing new to tell
	events := newEvents(readerFunc(func(p []byte) (int, error) {
		n, err := res.Body.Read(p)
		if n > 0 && told && !ending {
			heard = true
			silence.Reset(longestSilence)
		}
		return n, err
	}), w.maxBody)
	for {
		data, more := events.next()
		if !more {
			break
		}
		if !told {
			told, heard = true, true
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
		w.fallBack(!heard)
		return nil, nil
	}
	// One that lived as long as a long poll was as good as that, whoever ended it.
	if w.early++; time.Since(began) >= longestHold {
		w.early = 1
	}
	if w.early >= shortStreams {
		w.fallBack(false)
	}
	return &Error{Call: call.String(), Status: res.StatusCode, RetryAfter: events.retry, Attempts: 1}, nil
}

func (w *waiting) done() bool { return w.seen != nil && w.seen.Done }

// noStream takes an answer that isn't a stream: the job's status where the server doesn't know streams, nothing where there is no more to tell of the job, or
// a refusal.
func (w *waiting) noStream(ctx context.Context, call call, res *http.Response) (*Error, error) {
	a, failed := w.read(ctx, call, res)
	if failed != nil {
		return w.refused(ctx, failed)
	}
	_ = w.see(a) // what can't be understood has no more to say than the poll that comes now
	w.fallBack(a.status == http.StatusOK && !w.done())
	return nil, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

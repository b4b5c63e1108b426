package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"strings"
	"time"

	"forebay/api"
)

const (
	// firstWord is how soon a stream says something. A server does at once; where nothing has come by then, something on the way holds the
	// answer up until it is whole.
	firstWord = 5 * time.Second

	// longestSilence in a stream is two missed heartbeats, which come each 15 s, and some time on the way.
	longestSilence = 40 * time.Second

	// lastWords is how long a stream may take to end after the job's end was told. It is waited for since a connection whose answer came to its end can be
	// used again.
	lastWords = 100 * time.Millisecond
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

	heard := false
	events := newEvents(readerFunc(func(p []byte) (int, error) {
		n, err := res.Body.Read(p)
		if n > 0 && !w.done() {
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
		w.event = events.id
		var job api.Job
		if json.Unmarshal(data, &job) == nil && job.ID == w.id {
			w.seen = &job
		}
		if w.done() {
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

// events reads server-sent events.
type events struct {
	lines *bufio.Scanner
	most  int64 // bytes of one event's data

	id    string        // of the last event that had one
	retry time.Duration // how long to wait before coming back, as last told
}

func newEvents(r io.Reader, most int64) *events {
	e := &events{lines: bufio.NewScanner(r), most: most}
	e.lines.Buffer(nil, int(min(most, math.MaxInt32)))
	e.lines.Split(splitLines())
	return e
}

// next returns the data of the next event that has any, and false at the stream's end. An event that the end cuts off is none.
func (e *events) next() ([]byte, bool) {
	var data []byte
	id := e.id
	for e.lines.Scan() {
		line := e.lines.Bytes()
		if len(line) == 0 {
			e.id = id
			if data != nil {
				return data, true
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":")) // a comment's name is empty
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			if int64(len(data)+len(value)) > e.most {
				return nil, false
			}
			data = append(data, value...)
		case "id":
			// It goes into a header field. Forebay's are numbers.
			if len(value) <= maxEventID && bytes.IndexFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) < 0 {
				id = string(value)
			}
		case "retry":
			if text := string(value); text != "" && strings.Trim(text, "0123456789") == "" {
				e.retry = seconds(text) / 1000 // it is in milliseconds
			}
		}
	}
	return nil, false
}

// maxEventID is far above any that Forebay gives.
const maxEventID = 255

// splitLines ends a line at \n, \r\n or \r, and after a \r doesn't wait for what follows. A line that the end cuts off is none.
func splitLines() bufio.SplitFunc {
	afterCR := false
	return func(data []byte, _ bool) (int, []byte, error) {
		from := 0
		if afterCR && len(data) > 0 {
			afterCR = false
			if data[0] == '\n' {
				from = 1
			}
		}
		end := bytes.IndexAny(data[from:], "\r\n")
		if end < 0 {
			return from, nil, nil
		}
		afterCR = data[from+end] == '\r'
		return from + end + 1, data[from : from+end], nil
	}
}

package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/forebay/forebay/api"
)

const (
	// longestHold is the longest time for which a server holds an answer back.
	longestHold = 30 * time.Second

	// shortStreams is how many streams in a row, each shorter than a long poll, show that streams
	// don't work here.
	shortStreams = 3

	// pollsFor is how long a Wait polls after its streams failed, and how long a Client does if
	// streams don't get through. Proxies and servers rarely change, and trying again costs a
	// request and up to firstWord.
	pollsFor = 10 * time.Minute
)

// hold returns the wait to request, in whole seconds, within the bounds of the server and of the
// HTTP client.
func (c *Client) hold(wait time.Duration) time.Duration {
	wait = min(wait, longestHold)
	if c.http.Timeout > 0 {
		wait = min(wait, c.http.Timeout/2)
	}
	return max(wait, 0).Truncate(time.Second)
}

// Wait returns a job once it is done, with any final Status. It follows the job's states by a
// stream (server-sent events), which it resumes if it breaks. If streams don't work, because a
// proxy buffers them or the server has none left, it uses long polls, for which the server holds
// its answers back. If the server can't hold any more answers back, it polls at the pace that the
// server sets. Each failed request is tried again as Config says, and only the context bounds the
// whole Wait.
//
// An error comes with the job as last seen, or nil. If the next request would come after the
// context's deadline, Wait fails at once with an *Error with ErrTooLate.
func (c *Client) Wait(ctx context.Context, id string) (*api.Job, error) {
	path, err := jobPath(id)
	if err != nil {
		return nil, err
	}
	w := waiting{Client: c, id: id, call: call{method: "GET", path: path},
		until: time.Unix(0, c.streamsFrom.Load())}
	for {
		look := w.stream
		if time.Now().Before(w.until) {
			look = w.poll
		}
		pause, err := look(ctx)
		switch {
		case err != nil:
			return w.seen, err
		case w.seen != nil && w.seen.Done:
			return w.seen, nil
		case pause == nil:
			continue
		}
		var last time.Time
		if pause.Status/100 != 2 {
			last = c.lastTry()
		}
		if !c.pause(ctx, w.early, pause, last) {
			return w.seen, pause
		}
	}
}

// waiting is one Wait. Its methods stream and poll return the failure after which to pause before
// the next look; nil means no pause.
type waiting struct {
	*Client
	id   string
	call call

	seen  *api.Job  // the job as last seen; nil: not yet
	event string    // id of the last event
	until time.Time // polls until then, streams afterwards
	early int       // looks in a row that ended early
}

// poll requests the job's status, held back for as long as possible.
func (w *waiting) poll(ctx context.Context) (*Error, error) {
	call := w.call
	call.wait = longestHold
	if deadline, bound := ctx.Deadline(); bound {
		call.wait = time.Until(deadline)
	}
	call.wait = w.hold(call.wait)
	a, err := w.do(ctx, call)
	if failed, ok := errors.AsType[*Error](err); ok && failed.Code == api.CodeTooManyStreams {
		call.wait = 0 // the server can hold no more answers back
		a, err = w.do(ctx, call)
	}
	if err != nil {
		return nil, err
	}
	if err := w.see(a); err != nil {
		return nil, err
	}
	if call.wait > 0 && a.took >= call.wait/2 {
		w.early = 0
		return nil, nil // it was held back: no pause is needed
	}
	w.early++
	pause := &Error{Call: call.String(), Status: a.status, Attempts: a.attempts,
		RetryAfter: retryAfter(a.header, time.Now())}
	if pause.RetryAfter > 0 {
		w.early = 1 // the server sets the pace
	}
	return pause, nil
}

// see parses the job in an answer.
func (w *waiting) see(a answer) error {
	job, err := a.job(w.call)
	if err == nil {
		w.seen = job
	}
	return err
}

// fallBack makes this Wait poll from now on, for a while. With all, the whole Client does, since
// the cause isn't this job's.
func (w *waiting) fallBack(all bool) {
	w.until = time.Now().Add(pollsFor)
	if all {
		w.streamsFrom.Store(w.until.UnixNano())
	}
}

// refused decides what to do about an error, or an answer that isn't a stream.
func (w *waiting) refused(ctx context.Context, failed *Error) (*Error, error) {
	failed.Attempts = 1
	w.fallBack(failed.Status == http.StatusNotAcceptable)
	switch {
	case failed.Status != 0 && !worthAnother(ctx, failed):
		return nil, nil // a poll may succeed, or fails alike
	case worthAnother(ctx, failed):
		w.early = max(w.early, 1)
		return failed, nil
	}
	return nil, failed
}

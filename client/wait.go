package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/forebay/forebay/api"
)

const (
	// longestHold is how long a server holds an answer back at most.
	longestHold = 30 * time.Second

	// shortStreams in a row, each of a shorter life than a long poll, are a way that streams don't survive.
	shortStreams = 3

	// pollsFor is how long a Wait that was failed by streams polls, and a Client whose streams don't get through. Proxies and servers are seldom changed, and
	// trying costs a request and up to firstWord.
	pollsFor = 10 * time.Minute
)

// hold is the wait to ask for in whole seconds, so that neither the server's bound nor the HTTP client's is in its way.
func (c *Client) hold(wait time.Duration) time.Duration {
	wait = min(wait, longestHold)
	if c.http.Timeout > 0 {
		wait = min(wait, c.http.Timeout/2)
	}
	return max(wait, 0).Truncate(time.Second)
}

// Wait returns a job once it is done, however it ended: see its Status. It is told of the job's states by a stream (server-sent events), taken up
// again where it broke off. Where streams don't get through, as a proxy holds them up or the server has no more of them to give, the server is asked to
// hold its answers back (long polls); where it can't, as many wait already, it is asked at the pace that it wishes. A status that can't be had is tried again
// as Config says, each by itself, so only the context bounds the whole.
//
// With an error comes the job as it was last seen, if it was. Where the time until asking again is worth it passes the context's deadline, that is an
// *Error with ErrTooLate at once.
func (c *Client) Wait(ctx context.Context, id string) (*api.Job, error) {
	path, err := jobPath(id)
	if err != nil {
		return nil, err
	}
	w := waiting{Client: c, id: id, call: call{method: "GET", path: path}, until: time.Unix(0, c.streamsFrom.Load())}
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

// waiting is one Wait. Its looks (stream, poll) tell what to pause for until the next one; nil: nothing.
type waiting struct {
	*Client
	id   string
	call call

	seen  *api.Job  // as the job was last seen; nil: it wasn't yet
	event string    // id of the last event
	until time.Time // polls until then, streams afterwards
	early int       // looks that came to their end early, in a row
}

// poll asks for the job's status, held back as long as may be.
func (w *waiting) poll(ctx context.Context) (*Error, error) {
	call := w.call
	call.wait = longestHold
	if deadline, bound := ctx.Deadline(); bound {
		call.wait = time.Until(deadline)
	}
	call.wait = w.hold(call.wait)
	a, err := w.do(ctx, call)
	if failed, ok := errors.AsType[*Error](err); ok && failed.Code == api.CodeTooManyStreams {
		call.wait = 0 // the server holds no more answers back
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
		return nil, nil // it was held back: nothing is too soon
	}
	w.early++
	pause := &Error{Call: call.String(), Status: a.status, RetryAfter: retryAfter(a.header, time.Now()), Attempts: a.attempts}
	if pause.RetryAfter > 0 {
		w.early = 1 // the server sets the pace
	}
	return pause, nil
}

// see takes the job out of an answer.
func (w *waiting) see(a answer) error {
	job, err := a.job(w.call)
	if err == nil {
		w.seen = job
	}
	return err
}

// fallBack has the job polled from now on, for a while. Where the cause isn't this job's, that goes for the whole Client.
func (w *waiting) fallBack(all bool) {
	w.until = time.Now().Add(pollsFor)
	if all {
		w.streamsFrom.Store(w.until.UnixNano())
	}
}

// refused is what to do where there is an answer instead of a stream, or none.
func (w *waiting) refused(ctx context.Context, failed *Error) (*Error, error) {
	failed.Attempts = 1
	w.fallBack(failed.Status == http.StatusNotAcceptable)
	switch {
	case failed.Status != 0 && !worthAnother(ctx, failed):
		return nil, nil // a poll may go well, or has the same to say
	case worthAnother(ctx, failed):
		w.early = max(w.early, 1)
		return failed, nil
	}
	return nil, failed
}

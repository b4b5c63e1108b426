package client

import (
	"context"
	"time"

	"forebay/api"
)

// Result is a backend's answer.
type Result struct {
	Status      int // of the 200s
	ContentType string
	Body        []byte // byte for byte
}

func (a answer) result() *Result {
	return &Result{Status: a.status, ContentType: a.header.Get("Content-Type"), Body: a.body}
}

// Status tells where a job stands. Another client's job is one that isn't there: an *Error with api.CodeUnknownJob.
func (c *Client) Status(ctx context.Context, id string) (*api.Job, error) {
	job, _, err := c.status(ctx, id, 0)
	return job, err
}

func (c *Client) status(ctx context.Context, id string, wait time.Duration) (*api.Job, answer, error) {
	path, err := jobPath(id)
	if err != nil {
		return nil, answer{}, err
	}
	call := call{method: "GET", path: path, wait: wait}
	a, err := c.do(ctx, call)
	if err != nil {
		return nil, a, err
	}
	job, err := a.job(call)
	return job, a, err
}

// longestHold is how long a server holds an answer back at most.
const longestHold = 30 * time.Second

// hold is the wait to ask for in whole seconds, so that neither the server's bound nor the HTTP client's is in its way.
func (c *Client) hold(wait time.Duration) time.Duration {
	wait = min(wait, longestHold)
	if c.http.Timeout > 0 {
		wait = min(wait, c.http.Timeout/2)
	}
	return max(wait, 0).Truncate(time.Second)
}

// Wait returns a job once it is done, however it ended: see its Status. The server holds its answers back until then (long polls); where it can't,
// as many wait already, it is asked at the pace that it wishes. A status that can't be had is tried again as Config says, each by itself, so only
// the context bounds the whole.
//
// With an error comes the job as it was last seen, if it was. Where the time until asking again is worth it passes the context's deadline, that is an
// *Error with ErrTooLate at once.
func (c *Client) Wait(ctx context.Context, id string) (*api.Job, error) {
	var seen *api.Job
	for early := 1; ; early++ { // answers that came early, in a row
		wait := longestHold
		if deadline, bound := ctx.Deadline(); bound {
			wait = time.Until(deadline)
		}
		wait = c.hold(wait)
		job, a, err := c.status(ctx, id, wait)
		if err != nil {
			return seen, err
		}
		if seen = job; job.Done {
			return job, nil
		}
		if wait > 0 && a.took >= wait/2 {
			early = 0
			continue // it was held back: nothing is too soon
		}
		asked := retryAfter(a.header, time.Now())
		if asked > 0 {
			early = 1 // the server sets the pace
		}
		delay := c.backoff.Delay(early, asked, c.rand())
		failed := &Error{Call: "GET " + jobsPath + "/" + id, Status: a.status, RetryAfter: asked, Attempts: a.attempts}
		if tooLate(ctx, delay) {
			failed.GaveUp = ErrTooLate
			return seen, failed
		}
		if failed.Err = sleep(ctx, delay); failed.Err != nil {
			return seen, failed
		}
	}
}

// Result returns a succeeded job's result. For a job that has none it is an *Error: api.CodeNotFinished (with RetryAfter), api.CodeCanceled,
// api.CodeResultGone, or a failed job's own problem, which holds what the backend answered.
func (c *Client) Result(ctx context.Context, id string) (*Result, error) {
	path, err := jobPath(id)
	if err != nil {
		return nil, err
	}
	a, err := c.do(ctx, call{method: "GET", path: path + "/result"})
	if err != nil {
		return nil, err
	}
	return a.result(), nil
}

// Cancel cancels a job. It is canceled when it returns, or, where the job runs, its call is being aborted: Job.Done tells, and Wait waits for its end.
// A job that has ended otherwise is an *Error with api.CodeFinished.
func (c *Client) Cancel(ctx context.Context, id string) (*api.Job, error) {
	path, err := jobPath(id)
	if err != nil {
		return nil, err
	}
	call := call{method: "DELETE", path: path}
	a, err := c.do(ctx, call)
	if err != nil {
		return nil, err
	}
	return a.job(call)
}

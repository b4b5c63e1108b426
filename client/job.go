package client

import (
	"context"
	"errors"
	"net/http"

	"github.com/forebay/forebay/api"
)

// Result is a backend's answer.
type Result struct {
	Status      int // of the 200s
	ContentType string
	Header      http.Header // of the answer that it came in: Content-Disposition, Content-Encoding and the like
	Body        []byte      // byte for byte
}

func (a answer) result() *Result {
	return &Result{Status: a.status, ContentType: a.header.Get("Content-Type"), Header: a.header, Body: a.body}
}

// Status tells where a job stands. Another client's job is one that isn't there: an *Error with api.CodeUnknownJob.
func (c *Client) Status(ctx context.Context, id string) (*api.Job, error) {
	return c.job(ctx, "GET", id)
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
	return c.job(ctx, "DELETE", id)
}

// job makes a call of a job that answers with it.
func (c *Client) job(ctx context.Context, method, id string) (*api.Job, error) {
	path, err := jobPath(id)
	if err != nil {
		return nil, err
	}
	call := call{method: method, path: path}
	a, err := c.do(ctx, call)
	if err != nil {
		return nil, err
	}
	return a.job(call)
}

// Purge has the server forget a job that has ended, with its payload and result, and the stored answer to the same request: for what must not be kept
// until its time is over. Some processes of the server may serve the stored answer for about a second longer. Later calls for the job are
// an *Error with api.CodeJobGone for a while, and then as for a job that never was. A job that hasn't ended is an *Error with api.CodeNotFinished:
// cancel it first.
func (c *Client) Purge(ctx context.Context, id string) error {
	path, err := jobPath(id)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, call{method: "DELETE", path: path + "?purge=1"})
	if e, failed := errors.AsType[*Error](err); failed && e.Code == api.CodeJobGone && e.Attempts > 1 {
		return nil // an earlier try did it, and its answer was lost
	}
	return err
}

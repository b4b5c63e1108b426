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
	Header      http.Header // of the answer: Content-Disposition, Content-Encoding and others
	Body        []byte      // byte for byte
}

func (a answer) result() *Result {
	return &Result{Status: a.status, ContentType: a.header.Get("Content-Type"),
		Header: a.header, Body: a.body}
}

// Status returns the state of a job. Another client's job counts as unknown: an *Error with
// api.CodeUnknownJob.
func (c *Client) Status(ctx context.Context, id string) (*api.Job, error) {
	return c.job(ctx, "GET", id)
}

// Result returns a succeeded job's result. For a job without one, the *Error has
// api.CodeNotFinished (with RetryAfter), api.CodeCanceled, api.CodeResultGone, or a failed job's
// own problem with the backend's answer.
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

// Cancel cancels a job. When it returns, a waiting job is canceled. The call of a running job is
// being aborted: then Job.Done is false, and Wait waits for its end. For a job that has ended in
// another way, Cancel returns an *Error with api.CodeFinished.
func (c *Client) Cancel(ctx context.Context, id string) (*api.Job, error) {
	return c.job(ctx, "DELETE", id)
}

// job makes a call that is answered with a job.
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

// Purge makes the server forget a job that has ended, with its payload and result, and the stored
// answer to the same request. It is for data that must not be kept until it expires. Other
// processes of the server may serve the stored answer for about a second longer. Later calls for
// the job return an *Error with api.CodeJobGone for a while, and then as for an unknown job. For a
// job that hasn't ended, Purge returns an *Error with api.CodeNotFinished: cancel it first.
func (c *Client) Purge(ctx context.Context, id string) error {
	path, err := jobPath(id)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, call{method: "DELETE", path: path + "?purge=1"})
	if e, failed := errors.AsType[*Error](err); failed && e.Code == api.CodeJobGone &&
		e.Attempts > 1 {
		return nil // an earlier try did it, but its answer got lost
	}
	return err
}

package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/forebay/forebay/api"
)

// call is a call of the server, the same for each try.
type call struct {
	method string
	path   string // below the base URL
	fields [][2]string
	body   []byte
	wait   time.Duration // how long the answer may be held back
}

func (c call) String() string { return c.method + " " + c.path }

// answer is a whole answer with a status of 200 to 299.
type answer struct {
	status   int
	header   http.Header
	body     []byte
	took     time.Duration // length of the try that got it
	attempts int           // tries made, including that one
}

// do makes the call, with as many tries as needed and allowed. Its error is an *Error.
func (c *Client) do(ctx context.Context, call call) (answer, error) {
	var last time.Time // when the last try may begin; zero: no bound
	for n := 1; ; n++ {
		a, failed := c.try(ctx, call)
		if failed == nil {
			a.attempts = n
			return a, nil
		}
		failed.Attempts = n
		if !worthAnother(ctx, failed) {
			return answer{}, failed
		}
		if n == 1 {
			last = c.lastTry()
		}
		if c.maxAttempts > 0 && n >= c.maxAttempts {
			failed.GaveUp = ErrTooOften
			return answer{}, failed
		}
		if !c.pause(ctx, n, failed, last) {
			return answer{}, failed
		}
	}
}

// lastTry returns when the last try may begin of a call that has now failed for the first time;
// zero means no bound.
func (c *Client) lastTry() time.Time {
	if c.maxElapsed <= 0 {
		return time.Time{}
	}
	return time.Now().Add(c.maxElapsed)
}

// pause waits after the n-th try failed, and reports whether the next one may begin. It returns
// false if the context ends, and failed then has the reason. It returns false at once if the wait
// would pass the context's deadline or last (zero: no bound).
func (c *Client) pause(ctx context.Context, n int, failed *Error, last time.Time) bool {
	delay := c.backoff.Delay(n, failed.RetryAfter, c.rand())
	deadline, bound := ctx.Deadline()
	if !last.IsZero() && delay > time.Until(last) || bound && delay >= time.Until(deadline) {
		failed.GaveUp = ErrTooLate
		return false
	}
	failed.Err = sleep(ctx, delay)
	return failed.Err == nil
}

// sleep waits. Its error is the cause if the context ended first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// worthAnother reports whether the same call may succeed later.
func worthAnother(ctx context.Context, failed *Error) bool {
	switch failed.Code {
	case api.CodeNotCached: // the final answer to Request.OnlyIfCached, though a 504
		return false
	case api.CodeTooManyStreams: // the same call without a wait may succeed at once
		return false
	}
	switch failed.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return true
	case 0:
		_, untrusted := errors.AsType[*tls.CertificateVerificationError](failed.Err)
		return ctx.Err() == nil && !untrusted && !errors.Is(failed.Err, http.ErrSchemeMismatch)
	}
	// A CDN's 520 to 524 count as 500 (RFC 9110, section 15).
	return failed.Status >= 500 && http.StatusText(failed.Status) == ""
}

// try makes one try of the call.
func (c *Client) try(ctx context.Context, call call) (answer, *Error) {
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, c.timeout+call.wait)
	defer cancel()
	res, err := c.send(within, c.http, call)
	if err != nil {
		return answer{}, cutOff(ctx, call, err)
	}
	defer res.Body.Close()
	a, failed := c.read(ctx, call, res)
	a.took = time.Since(began)
	return a, failed
}

// send sends the call's request.
func (c *Client) send(ctx context.Context, by *http.Client, call call) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, call.method, c.base+call.path,
		bytes.NewReader(call.body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "forebay-go")
	for _, f := range call.fields {
		r.Header.Set(f[0], f[1])
	}
	if call.wait > 0 {
		r.Header.Set(api.HeaderPrefer, "wait="+strconv.FormatInt(int64(call.wait/time.Second), 10))
	}
	c.authorize(r.Header)
	return by.Do(r)
}

// read reads a whole answer.
func (c *Client) read(ctx context.Context, call call, res *http.Response) (answer, *Error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, res.Body, c.maxBody))
	if res.StatusCode/100 != 2 {
		return answer{}, refusal(call, res, body)
	}
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return answer{}, &Error{Call: call.String(), Status: res.StatusCode, Err: errTooLarge}
	}
	if err != nil { // the connection broke in the middle
		return answer{}, cutOff(ctx, call, err)
	}
	return answer{status: res.StatusCode, header: res.Header, body: body}, nil
}

// cutOff returns the error of a try that got no whole answer: its context ended, or the connection
// failed.
func cutOff(ctx context.Context, call call, err error) *Error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return &Error{Call: call.String(), Err: err}
}

var (
	errTooLarge = errors.New("the answer is longer than MaxBody")
	errRedirect = errors.New("a redirect that isn't followed with the key: " +
		"use the URL that it leads to, if you trust that")
	errForeign = errors.New("not an answer of Forebay's")
)

// refusal returns the error of an answer outside of 200 to 299. A body that isn't a problem, or is
// cut off, is ignored.
func refusal(call call, res *http.Response, body []byte) *Error {
	e := &Error{Call: call.String(), Status: res.StatusCode,
		RetryAfter: retryAfter(res.Header, time.Now())}
	if res.StatusCode/100 == 3 {
		e.Err = errRedirect
	}
	var p api.Problem
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind != "application/problem+json" || json.Unmarshal(body, &p) != nil {
		return e
	}
	e.Problem, e.Code, e.Reason = &p, p.Code, p.Reason
	if e.RetryAfter == 0 && p.RetryAfter > 0 && res.Header.Get("Retry-After") == "" {
		e.RetryAfter = seconds(strconv.Itoa(p.RetryAfter))
	}
	return e
}

// foreign returns the error for an answer of 200 to 299 that isn't Forebay's.
func (a answer) foreign(call call) *Error {
	return &Error{Call: call.String(), Status: a.status, Attempts: a.attempts, Err: errForeign}
}

// job parses an answer's job.
func (a answer) job(call call) (*api.Job, error) {
	var job api.Job
	if err := json.Unmarshal(a.body, &job); err != nil || job.ID == "" {
		return nil, a.foreign(call)
	}
	return &job, nil
}

package worker

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/jobs"
)

// Bounds of what a backend may make this process keep.
const (
	maxHeader      = 64 << 10        // of an answer's head
	maxContentType = 255             // longer ones name no type that a client could use
	idleConns      = 256             // kept open between calls: enough for 256 calls in flight without new connections
	idleTime       = 4 * time.Second // under the 5 s after which common servers close idle connections themselves
	connectTime    = 10 * time.Second
)

// answer is what a backend said.
type answer struct {
	Status      int
	ContentType string
	Fields      jobs.Fields
	Left        []string      // names of fields that aren't kept though such are
	RetryAfter  time.Duration // 0: none, or none that lies ahead
	Storing     string        // as jobs.Meta has it
	Body        []byte        // nil where Whole is false
	Whole       bool          // Body is the answer's every byte; else it was over the bound, or broke off
	TooLarge    bool          // it was over the bound
}

// caller calls one backend. Safe for concurrent use.
type caller struct {
	client  *http.Client
	headers http.Header
}

func newCaller(headers http.Header) *caller {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // closing the connection is how every HTTP/1 server learns that a call was aborted
	return &caller{
		headers: headers,
		client: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				Proxy:                  nil, // the backend's address is in the config, and nowhere else
				DialContext:            (&net.Dialer{Timeout: connectTime}).DialContext,
				TLSHandshakeTimeout:    connectTime,
				DisableCompression:     true, // decode does that, within max_result
				MaxIdleConnsPerHost:    idleConns,
				MaxConnsPerHost:        jobs.MaxConcurrency, // the line's concurrency is what bounds them
				IdleConnTimeout:        idleTime,
				MaxResponseHeaderBytes: maxHeader,
				Protocols:              protocols,
			},
		},
	}
}

// close gives the idle connections up.
func (c *caller) close() { c.client.CloseIdleConnections() }

// operation is an Operation, ready to be called.
type operation struct {
	method    string
	url       *url.URL
	maxResult int64
}

// do makes one call for an attempt and reads the answer. An error means that there is none: no connection, or it
// broke before the answer's head (or within a good answer's body), or ctx ended. The backend gets at most one request.
func (c *caller) do(ctx context.Context, op operation, job jobs.Job, attempt int) (answer, error) {
	// A reader of its own for each attempt, over bytes that nobody changes. It is hidden from net/http, which would
	// else send the request again by itself when a kept connection breaks: the Idempotency-Key tells it that it may,
	// but a second request has no slot.
	body := struct{ io.Reader }{bytes.NewReader(job.Payload)}
	req, err := http.NewRequestWithContext(ctx, op.method, op.url.String(), body)
	if err != nil {
		return answer{}, fmt.Errorf("build the request: %w", err)
	}
	req.ContentLength = int64(len(job.Payload))
	if req.ContentLength == 0 {
		req.Body = http.NoBody
	}
	c.setHeaders(req, job, attempt)
	resp, err := c.client.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return answer{}, failed.Err // its text has the URL, which may have a secret
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 { // nobody asked for 101, which no answer follows; under 100 it isn't HTTP
		return answer{}, fmt.Errorf("status %d is no answer's", resp.StatusCode)
	}
	a := answer{Status: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"), RetryAfter: retryAfter(resp.Header, time.Now()),
		Storing: degrade.Storing(resp.Header["Cache-Control"])}
	if len(a.ContentType) > maxContentType {
		a.ContentType = "application/octet-stream"
	}
	if resp.ContentLength > op.maxResult {
		a.TooLarge = true
		return a, nil
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, op.maxResult+1))
	switch {
	case int64(len(data)) > op.maxResult:
		a.TooLarge = true
	case err == nil:
		a.Body, a.Whole = data, true
		a.decode(resp.Header, op.maxResult)
	case good(a.Status):
		return answer{}, fmt.Errorf("read the answer: %w", err)
	}
	a.Fields, a.Left = jobs.FieldsOf(resp.Header)
	return a, nil
}

func (c *caller) setHeaders(req *http.Request, job jobs.Job, attempt int) {
	h := req.Header
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "forebay")
	h.Set("Accept-Encoding", "identity") // not every client of ours could read another; see decode
	for name, values := range c.headers {
		h[http.CanonicalHeaderKey(name)] = values
	}
	if host := h.Get("Host"); host != "" {
		req.Host = host
		h.Del("Host")
	}
	h.Set("Idempotency-Key", `"`+job.ID+`"`)
	h.Set("Forebay-Job-Id", job.ID)
	h.Set("Forebay-Attempt", strconv.Itoa(attempt))
	if parent := childOf(job.Traceparent); parent != "" {
		h.Set("Traceparent", parent)
	}
}

func good(status int) bool { return status >= 200 && status <= 299 }

// maxRetryAfter is the longest that a backend is left alone for its asking: a wrong date must not stop a drain for a year.
const maxRetryAfter = 5 * time.Minute

// retryAfter reads a Retry-After of seconds or a date, at most maxRetryAfter. A date counts from the answer's own
// Date, since the backend's clock made both. 0 stands for none, for one in the past, and for one that can't be read.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) { // err: more digits than fit
			return maxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// childOf returns a traceparent of the same trace with a new parent id (W3C Trace Context), or "" where the given one
// is none.
func childOf(traceparent string) string {
	parts := strings.Split(traceparent, "-")
	if len(parts) < 4 || len(parts[0]) != 2 || len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 {
		return ""
	}
	version, trace, parent, flags := parts[0], parts[1], parts[2], parts[3]
	if version == "ff" || (version == "00" && len(parts) != 4) || zero(trace) || zero(parent) {
		return ""
	}
	if strings.Trim(version+trace+parent+flags, "0123456789abcdef") != "" {
		return ""
	}
	var id [8]byte
	for id == [8]byte{} {
		rand.Read(id[:]) // never fails since Go 1.24
	}
	return "00-" + trace + "-" + hex.EncodeToString(id[:]) + "-" + flags
}

func zero(digits string) bool { return strings.Trim(digits, "0") == "" }

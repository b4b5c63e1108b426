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

// Bounds of the memory and connections that a backend may take up in this process.
const (
	maxHeader      = 64 << 10        // bytes of an answer's header
	maxContentType = 255             // no usable type is longer
	idleConns      = 256             // kept open between calls
	idleTime       = 4 * time.Second // common servers close idle connections after 5 s
	connectTime    = 10 * time.Second
)

// answer is the answer of a backend.
type answer struct {
	Status      int
	ContentType string
	Fields      jobs.Fields
	Left        []string      // names of fields that should be kept but can't
	RetryAfter  time.Duration // 0: none, or in the past
	Storing     string        // as in jobs.Meta
	Body        []byte        // nil if Whole is false
	Whole       bool          // Body is complete; otherwise it was too large or broke off
	TooLarge    bool          // it was over the operation's max_result
}

// caller calls one backend. Safe for concurrent use.
type caller struct {
	client  *http.Client
	headers http.Header
}

func newCaller(headers http.Header) *caller {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // an HTTP/1 server notices an aborted call by its closed connection
	return &caller{
		headers: headers,
		client: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
			Transport: &http.Transport{
				Proxy:                  nil, // only the config sets the backend's address
				DialContext:            (&net.Dialer{Timeout: connectTime}).DialContext,
				TLSHandshakeTimeout:    connectTime,
				DisableCompression:     true, // decode decompresses, within max_result
				MaxIdleConnsPerHost:    idleConns,
				MaxConnsPerHost:        jobs.MaxConcurrency, // the line bounds them
				IdleConnTimeout:        idleTime,
				MaxResponseHeaderBytes: maxHeader,
				Protocols:              protocols,
			},
		},
	}
}

// close closes the idle connections.
func (c *caller) close() { c.client.CloseIdleConnections() }

// operation is an Operation that is ready to be called.
type operation struct {
	method    string
	url       *url.URL
	maxResult int64
}

// do makes one call for an attempt and reads the answer. An error means that there is no answer:
// there was no connection, or it broke before the end of the header (or within a good answer's
// body), or ctx ended. The backend gets at most one request.
func (c *caller) do(ctx context.Context, op operation, job jobs.Job, attempt int) (answer, error) {
	// The type hides the reader from net/http, which would otherwise repeat the request when a kept
	// connection breaks, because it has an Idempotency-Key. A second request has no slot.
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
		return answer{}, failed.Err // without the URL, which may contain a secret
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 { // 101 was not asked for, and under 100 it isn't HTTP
		return answer{}, fmt.Errorf("status %d is no answer's", resp.StatusCode)
	}
	a := answer{Status: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"),
		RetryAfter: retryAfter(resp.Header, time.Now()),
		Storing:    degrade.Storing(resp.Header["Cache-Control"])}
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
	h.Set("Accept-Encoding", "identity") // not every client can read another; see decode
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

// maxRetryAfter bounds how long a backend can stop its calls: a wrong date must not stop a drain
// for a year.
const maxRetryAfter = 5 * time.Minute

// retryAfter reads a Retry-After of seconds or a date, at most maxRetryAfter. A date counts from
// the Date of the answer, because both are from the backend's clock. retryAfter returns 0 if there
// is none, or it is in the past or malformed.
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

// childOf returns a traceparent of the same trace with a new parent id (W3C Trace Context), or ""
// if the given one is invalid.
func childOf(traceparent string) string {
	parts := strings.Split(traceparent, "-")
	if len(parts) < 4 || len(parts[0]) != 2 || len(parts[1]) != 32 || len(parts[2]) != 16 ||
		len(parts[3]) != 2 {
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

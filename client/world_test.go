package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const testKey = "fb_test_secret_0123456789"

// seen is a request as the server got it, with the time.
type seen struct {
	*http.Request
	body string
	at   time.Time
}

// stub is a server without a network, so that a test can run in a bubble. answer gives the answer
// to the n-th request (from 1).
type stub struct {
	answer func(n int, r *http.Request) (*http.Response, error)

	mu   sync.Mutex
	seen []seen // guarded by mu
}

func (s *stub) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
	}
	s.mu.Lock()
	s.seen = append(s.seen, seen{r, string(body), time.Now()})
	n := len(s.seen)
	s.mu.Unlock()
	res, err := s.answer(n, r)
	if res != nil {
		res.Request = r
	}
	return res, err
}

// gaps returns the times between the requests.
func (s *stub) gaps() (gaps []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.seen[1:] {
		gaps = append(gaps, s.seen[i+1].at.Sub(s.seen[i].at))
	}
	return gaps
}

// reply returns an answer with fields "Name: value".
func reply(status int, body string, fields ...string) *http.Response {
	h := http.Header{}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		h.Add(name, value)
	}
	return &http.Response{StatusCode: status, Header: h,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}

// script returns a stub that answers with the statuses in order, and repeats the last one. Statuses
// of 200 to 299 come with a job.
func script(statuses ...int) *stub {
	return &stub{answer: func(n int, _ *http.Request) (*http.Response, error) {
		status := statuses[min(n, len(statuses))-1]
		if status/100 == 2 {
			return reply(status, queued("reports-1")), nil
		}
		return refuse(status, "some_code", ""), nil
	}}
}

// refuse returns a problem; after is its Retry-After.
func refuse(status int, code, after string) *http.Response {
	r := reply(status, fmt.Sprintf(`{"type":"about:blank","title":"T","status":%d,"detail":"D.",`+
		`"code":%q,"reason":"per-minute"}`, status, code),
		"Content-Type: application/problem+json")
	if after != "" {
		r.Header.Set("Retry-After", after)
	}
	return r
}

func queued(id string) string {
	return fmt.Sprintf(`{"job_id":%q,"status_url":"/v1/jobs/%s","operation":"report",`+
		`"status":"queued","done":false,"attempts":0,"created_at":"2026-11-30T07:34:49.120Z",`+
		`"expires_at":null,"links":{"self":"/v1/jobs/%s"}}`, id, id, id)
}

func done(id string) string {
	return strings.Replace(queued(id), `"status":"queued","done":false`,
		`"status":"succeeded","done":true`, 1)
}

// over returns a client of the stub.
func over(t testing.TB, s http.RoundTripper, c Config) *Client {
	t.Helper()
	c.HTTPClient = &http.Client{Transport: s}
	if c.Key == "" {
		c.Key = testKey
	}
	client, err := New("http://forebay.test", c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// bubble runs a test with time of its own: no sleep takes real time, and each wait takes exactly
// its length.
func bubble(t *testing.T, test func(t *testing.T, ctx context.Context)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		test(t, t.Context())
		time.Sleep(time.Hour) // writers of abandoned streams notice by then
	})
}

// endless returns a body of n bytes, which is never held in memory.
func endless(n int64) io.ReadCloser {
	return io.NopCloser(io.LimitReader(zeros{}, n))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("0"), len(p))), nil }

// live returns a stream with what send writes. It ends when send returns or, as on a real
// connection, when the request ends.
func live(r *http.Request, send func(w io.Writer)) *http.Response {
	body, w := io.Pipe()
	ended := context.AfterFunc(r.Context(), func() { body.CloseWithError(r.Context().Err()) })
	go func() {
		send(w)
		ended()
		w.Close()
	}()
	res := reply(200, "", "Content-Type: text/event-stream")
	res.Body, res.ContentLength = body, -1
	return res
}

// wantsStream reports whether a request asks for a stream.
func wantsStream(r *http.Request) bool { return r.Header.Get("Accept") == "text/event-stream" }

// event returns an event of a stream, as the server writes it.
func event(kind string, id int, job string) string {
	return fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", id, kind, job)
}

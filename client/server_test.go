package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/testforebay"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// front is the real server with a real Redis. The test plays the worker: ten starts a second.
// operation has stale answers, and a line of one place.
type front struct {
	*Client
	testing.TB
	line      *leaky.Line
	cache     *cache.Cache
	operation string
	transport *transport
}

// transport is the transport to the real server. It records how a job's status was requested.
type transport struct {
	http.RoundTripper
	streaming chan struct{} // receives once per stream that has begun
	gaveUp    chan struct{} // receives once per request that was given up

	mu    sync.Mutex
	looks []string // guarded by mu
}

func (w *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := w.RoundTripper.RoundTrip(r)
	if err != nil {
		w.gaveUp <- struct{}{}
		return nil, err
	}
	if r.Method != "GET" {
		return res, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case res.Header.Get("Content-Type") == "text/event-stream":
		w.looks = append(w.looks, "stream")
		w.streaming <- struct{}{}
	case r.Header.Get("Prefer") != "":
		w.looks = append(w.looks, r.Header.Get("Prefer"))
	}
	return res, nil
}

// setup describes how a front differs from the default.
type setup struct {
	limits   []limits.Limit
	capacity int                             // of its line; 0 means 1
	change   func(*admission.Config)         // may be nil
	proxy    func(http.Handler) http.Handler // in front of it; may be nil
}

// buffering is a proxy that holds each answer until it is complete, as nginx does by default.
func buffering(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		whole := httptest.NewRecorder()
		h.ServeHTTP(whole, r)
		for name, values := range whole.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(whole.Code)
		w.Write(whole.Body.Bytes())
	})
}

func newFront(t *testing.T, given ...limits.Limit) front {
	t.Helper()
	return setup{limits: given}.start(t)
}

func (s setup) start(t *testing.T) front {
	t.Helper()
	w := testforebay.New(t, func(su *testforebay.Setup) {
		su.Line.Capacity, su.Pro, su.NoAnonymous = max(s.capacity, 1), s.limits, true
		su.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Enter.Operations = []admission.Operation{*c.Operation(w.Shared)}
			if s.change != nil {
				s.change(&c.Enter)
			}
		}
	})
	f := front{TB: t, operation: w.Shared, line: w.Line, cache: w.Cache}
	handler := http.StripPrefix("/forebay", w.Server.Public())
	if s.proxy != nil {
		handler = s.proxy(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	f.transport = &transport{RoundTripper: server.Client().Transport,
		streaming: make(chan struct{}, 100), gaveUp: make(chan struct{}, 100)}
	var err error
	f.Client, err = New(server.URL+"/forebay",
		Config{Key: testforebay.KeyA, HTTPClient: &http.Client{Transport: f.transport}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// work runs the next job as a worker would, once its slot has come. The test runs it in a
// goroutine.
func (f front) work(contentType, body string) {
	for ctx := f.Context(); ctx.Err() == nil; {
		r, err := f.line.Release(ctx)
		if err != nil {
			return // the test has ended
		}
		for _, ticket := range r.Tickets {
			started, err := f.line.Start(ctx, ticket, "test")
			if err != nil || started.Outcome != leaky.Go {
				f.Errorf("start: %+v, %v", started, err)
				return
			}
			outcome, _, err := f.line.Settle(ctx, leaky.Settlement{Ticket: ticket, Owner: "test",
				To: jobs.Succeeded, Took: time.Millisecond, Body: []byte(body),
				Result: jobs.Meta{Status: 200, ContentType: contentType, Size: int64(len(body))}})
			if err != nil || outcome != leaky.Settled {
				f.Errorf("settle: %s, %v", outcome, err)
			}
			return
		}
		if sleep(ctx, 5*time.Millisecond) != nil { // until the next slot
			return
		}
	}
}

// A whole job behind a prefix: submitted, replayed, waited for, fetched, and too late to cancel.
func TestAWholeJobOfTheRealServer(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r := Request{Operation: f.operation, Payload: []byte(`{"month": "2026-11", "text": "<&>"}`),
		StartWithin: time.Minute, IdempotencyKey: `my "key"`}
	sub, err := f.Submit(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.Submit(ctx, r)
	if err != nil || again.JobID != sub.JobID || !again.Replayed || sub.Replayed ||
		sub.Job.Queue.Position != 1 || sub.RetryAfter < time.Second {
		t.Errorf("%+v, then %+v, %v", sub, again, err)
	}
	payload, err := f.line.Payload(ctx, sub.JobID)
	if err != nil || string(payload) != string(r.Payload) {
		t.Errorf("the payload is %s, %v", payload, err)
	}
	var e *Error
	if _, err := f.Result(ctx, sub.JobID); !errors.As(err, &e) || e.Code != api.CodeNotFinished {
		t.Errorf("a result before the end: %v", err)
	}
	go f.work("application/pdf", "\x00pdf\xff")
	job, err := f.Wait(ctx, sub.JobID)
	if err != nil || job.Status != api.Succeeded || job.FinishedAt == nil {
		t.Fatalf("%+v, %v", job, err)
	}
	result, err := f.Result(ctx, sub.JobID)
	if err != nil || string(result.Body) != "\x00pdf\xff" ||
		result.ContentType != "application/pdf" {
		t.Errorf("%+v, %v", result, err)
	}
	if _, err := f.Cancel(ctx, sub.JobID); !errors.As(err, &e) || e.Status != 409 ||
		e.Code != api.CodeFinished {
		t.Errorf("a cancel after the end: %v", err)
	}
	_, err = f.Status(ctx, "reports-0197c3a0-8a44-7c0e-b1a4-1f6f0c1f2a55")
	if !errors.As(err, &e) || e.Code != api.CodeUnknownJob {
		t.Errorf("an unknown job: %v", err)
	}
}

// A full line answers with the last good result if there is one and the client accepts it, and
// otherwise with a wait that is too long for the client.
func TestAFullLineOfTheRealServer(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	known := Request{Operation: f.operation, Payload: []byte(`1`), Wait: 15 * time.Second}
	go f.work("text/plain", "one")
	sub, err := f.Submit(ctx, known)
	if err != nil || sub.Result == nil || string(sub.Result.Body) != "one" || sub.Degraded ||
		sub.JobID == "" {
		t.Fatalf("%+v, %v", sub, err)
	}
	a := cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("one"), Age: time.Minute}
	key := cache.Key(f.operation, "", known.Payload)
	if err := f.cache.Put(ctx, key, a, time.Hour, cache.Owner{}); err != nil {
		t.Fatal(err) // as the worker does
	}
	holder, err := f.Submit(ctx, Request{Operation: f.operation, Payload: []byte(`2`)})
	if err != nil {
		t.Fatal(err)
	}
	sub, err = f.Submit(ctx, known)
	if err != nil || !sub.Degraded || sub.Reason != "line_full" || sub.Age < time.Minute ||
		sub.Age > 2*time.Minute || string(sub.Result.Body) != "one" || sub.JobID != "" {
		t.Errorf("%+v, %v", sub, err)
	}
	soon, stop := context.WithTimeout(ctx, 500*time.Millisecond)
	defer stop()
	known.NoStale, known.Wait = true, 0
	var e *Error
	_, err = f.Submit(soon, known)
	if !errors.As(err, &e) || e.Code != api.CodeLineFull || !errors.Is(err, ErrTooLate) ||
		e.RetryAfter < time.Second {
		t.Errorf("%v", err)
	}
	if job, err := f.Cancel(ctx, holder.JobID); err != nil || job.Status != api.Canceled {
		t.Errorf("%+v, %v", job, err)
	}
	if _, err := f.Result(ctx, holder.JobID); !errors.As(err, &e) || e.Code != api.CodeCanceled {
		t.Errorf("%v", err)
	}
}

// A client that waits for the Retry-After of a limit is accepted at its second try.
func TestALimitsWaitIsEnoughForTheClient(t *testing.T) {
	t.Parallel()
	f := newFront(t, limits.Limit{Name: "slow", Algorithm: limits.TokenBucket,
		Per: limits.PerClient, Amount: 1, Window: time.Second, Burst: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i := range 2 {
		began := time.Now()
		sub, err := f.Submit(ctx, Request{Operation: f.operation, Payload: []byte(`1`)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Cancel(ctx, sub.JobID); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); i == 1 && took < 900*time.Millisecond {
			t.Errorf("the second job was accepted after %v, before its limit allows", took)
		}
	}
}

// workOnce runs the next job once start has a value. wait returns when it has ended.
func (f *front) workOnce(ctx context.Context, start <-chan struct{}) (wait func()) {
	var all sync.WaitGroup
	all.Go(func() {
		select {
		case <-start:
			f.work("text/plain", "one")
		case <-ctx.Done():
		}
	})
	return all.Wait
}

// A Wait follows the job by one stream, from the line to its end.
func TestAWaitIsOneStreamOfTheRealServers(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	sub, err := f.Submit(ctx, Request{Operation: f.operation, Payload: []byte(`1`)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.workOnce(ctx, f.transport.streaming)()
	job, err := f.Wait(ctx, sub.JobID)
	if err != nil || job.Status != api.Succeeded ||
		!slices.Equal(f.transport.looks, []string{"stream"}) {
		t.Errorf("%q: %+v, %v", f.transport.looks, job, err)
	}
	// A job that is done already returns at once.
	if job, err := f.Wait(ctx, sub.JobID); err != nil || !job.Done || job.FinishedAt == nil {
		t.Errorf("%+v, %v", job, err)
	}
	if _, err := f.Wait(ctx, "reports-0197c3a0-8a44-7c0e-b1a4-1f6f0c1f2a55"); err == nil {
		t.Error("no error for an unknown job")
	}
}

// Behind a proxy that buffers streams, the end comes by a long poll.
func TestAWaitBehindABufferingProxyIsALongPoll(t *testing.T) {
	t.Parallel()
	f := setup{proxy: buffering}.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sub, err := f.Submit(ctx, Request{Operation: f.operation, Payload: []byte(`1`)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.workOnce(ctx, f.transport.gaveUp)()
	job, err := f.Wait(ctx, sub.JobID)
	if err != nil || job.Status != api.Succeeded ||
		!slices.Equal(f.transport.looks, []string{"wait=30"}) {
		t.Errorf("%q: %+v, %v", f.transport.looks, job, err)
	}
}

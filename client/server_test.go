package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// front is the real server over a real Redis. Its drain is worked by hand: ten starts a second. operation has stale answers, and a line of
// one place.
type front struct {
	*Client
	testing.TB
	line      *leaky.Line
	cache     *cache.Cache
	operation string
	way       *way
}

// way is the transport to the real server. It tells how a job's status was asked for.
type way struct {
	http.RoundTripper
	streaming chan struct{} // one for each stream that there is
	gaveUp    chan struct{} // one for each request that was given up

	mu    sync.Mutex
	looks []string // guarded by mu
}

func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
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

// setup is how a front differs from the usual one.
type setup struct {
	limits   []limits.Limit
	capacity int                             // of its line; 0: 1
	change   func(*httpapi.Config)           // may be nil
	proxy    func(http.Handler) http.Handler // stands before it; nil: nothing does
}

// buffering holds each answer up until it is whole, as nginx does unless told otherwise.
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

type healthy struct{}

func (healthy) Healthy() bool      { return true }
func (healthy) Writable() bool     { return true }
func (healthy) Embedded() bool     { return false }
func (healthy) Warnings() []string { return nil }

func (healthy) Lost() <-chan struct{} { return nil }

func newFront(t *testing.T, given ...limits.Limit) front {
	t.Helper()
	return setup{limits: given}.start(t)
}

func (s setup) start(t *testing.T) front {
	t.Helper()
	rdb, backend := redistest.Client(t), redistest.Name(t, "b")
	rate, err := leaky.ParseRate("10/s")
	if err != nil {
		t.Fatal(err)
	}
	f := front{TB: t, operation: redistest.Name(t, "report"), line: leaky.New(rdb, leaky.Settings{Backend: backend, Rate: rate, Burst: 1, Concurrency: 10,
		Capacity: max(s.capacity, 1), MaxWait: time.Hour, ClientShare: 1, Attempts: 3, KeepFailed: time.Hour}).Limited(limits.Script{})}
	f.cache = cache.New(rdb)
	finals := leaky.Listen(rdb, []string{backend})
	t.Cleanup(func() {
		finals.Close()
		redistest.CheckBooks(t, rdb, backend)
	})
	var rules []httpapi.Limit
	for _, l := range s.limits {
		l.Owner = backend
		rule, err := limits.Compile(l)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, httpapi.Limit{Rule: rule})
	}
	config := httpapi.Config{
		Identity: identity.New(identity.Config{Clients: []identity.Registered{
			{Name: redistest.Name(t, "a"), Tier: "pro", Keys: []identity.Digest{sha256.Sum256([]byte(testKey))}}}}),
		Limiter: limits.New(rdb, false), Degrader: degrade.New(f.cache), Store: healthy{}, Finals: finals,
		Lines: map[string]httpapi.Line{backend: f.line}, Tiers: map[string]httpapi.Tier{"pro": {Weight: 1, Limits: rules}},
		Operations: []httpapi.Operation{{Name: f.operation, Backend: backend, Cost: httpapi.Cost{Fixed: 1}, Keep: time.Hour, MaxAge: time.Hour,
			Overload: degrade.Policy{Steps: []degrade.Step{{Kind: degrade.Stale}, {Kind: degrade.Reject}}, StaleFor: time.Hour, Share: degrade.ShareAll}}},
		MaxBody: 1 << 20, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	}
	if s.change != nil {
		s.change(&config)
	}
	handler := http.StripPrefix("/forebay", httpapi.New(config).Public())
	if s.proxy != nil {
		handler = s.proxy(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	f.way = &way{RoundTripper: server.Client().Transport, streaming: make(chan struct{}, 100), gaveUp: make(chan struct{}, 100)}
	if f.Client, err = New(server.URL+"/forebay", Config{Key: testKey, HTTPClient: &http.Client{Transport: f.way}}); err != nil {
		t.Fatal(err)
	}
	return f
}

// work runs the next job as a worker would, once its slot has come. It is called beside the test.
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
			verdict, _, err := f.line.Settle(ctx, leaky.Settlement{Ticket: ticket, Owner: "test", To: jobs.Succeeded, Took: time.Millisecond,
				Result: jobs.Meta{Status: 200, ContentType: contentType, Size: int64(len(body))}, Body: []byte(body)})
			if err != nil || verdict != leaky.Settled {
				f.Errorf("settle: %s, %v", verdict, err)
			}
			return
		}
		if sleep(ctx, 5*time.Millisecond) != nil { // until the next slot
			return
		}
	}
}

// A job's whole way, behind a prefix: submitted, replayed, waited for, fetched, and too late to cancel.
func TestAJobsWayThroughTheRealServer(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r := Request{Operation: f.operation, Payload: []byte(`{"month": "2026-11", "text": "<&>"}`), StartWithin: time.Minute, IdempotencyKey: `my "key"`}
	sub, err := f.Submit(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.Submit(ctx, r)
	if err != nil || again.JobID != sub.JobID || !again.Replayed || sub.Replayed || sub.Job.Queue.Position != 1 || sub.RetryAfter < time.Second {
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
	if result, err := f.Result(ctx, sub.JobID); err != nil || string(result.Body) != "\x00pdf\xff" || result.ContentType != "application/pdf" {
		t.Errorf("%+v, %v", result, err)
	}
	if _, err := f.Cancel(ctx, sub.JobID); !errors.As(err, &e) || e.Status != 409 || e.Code != api.CodeFinished {
		t.Errorf("a cancel after the end: %v", err)
	}
	if _, err := f.Status(ctx, "reports-0197c3a0-8a44-7c0e-b1a4-1f6f0c1f2a55"); !errors.As(err, &e) || e.Code != api.CodeUnknownJob {
		t.Errorf("a job that isn't there: %v", err)
	}
}

// A full line answers with the last good result where there is one and it is wished for, and else with a wait that the client gives up on.
func TestAFullLineAsTheClientTellsIt(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	known := Request{Operation: f.operation, Payload: []byte(`1`), Wait: 15 * time.Second}
	go f.work("text/plain", "one")
	sub, err := f.Submit(ctx, known)
	if err != nil || sub.Result == nil || string(sub.Result.Body) != "one" || sub.Degraded || sub.JobID == "" {
		t.Fatalf("%+v, %v", sub, err)
	}
	if err := f.cache.Put(ctx, cache.Key(f.operation, "", known.Payload), cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("one"), Age: time.Minute}, time.Hour, cache.Owner{}); err != nil {
		t.Fatal(err) // as the worker does
	}
	holder, err := f.Submit(ctx, Request{Operation: f.operation, Payload: []byte(`2`)})
	if err != nil {
		t.Fatal(err)
	}
	sub, err = f.Submit(ctx, known)
	if err != nil || !sub.Degraded || sub.Reason != "line_full" || sub.Age < time.Minute || sub.Age > 2*time.Minute || string(sub.Result.Body) != "one" || sub.JobID != "" {
		t.Errorf("%+v, %v", sub, err)
	}
	soon, stop := context.WithTimeout(ctx, 500*time.Millisecond)
	defer stop()
	known.NoStale, known.Wait = true, 0
	var e *Error
	if _, err := f.Submit(soon, known); !errors.As(err, &e) || e.Code != api.CodeLineFull || !errors.Is(err, ErrTooLate) || e.RetryAfter < time.Second {
		t.Errorf("%v", err)
	}
	if job, err := f.Cancel(ctx, holder.JobID); err != nil || job.Status != api.Canceled {
		t.Errorf("%+v, %v", job, err)
	}
	if _, err := f.Result(ctx, holder.JobID); !errors.As(err, &e) || e.Code != api.CodeCanceled {
		t.Errorf("%v", err)
	}
}

// A client that waits what a limit says is let in at its second try.
func TestALimitsWaitIsEnoughForTheClient(t *testing.T) {
	t.Parallel()
	f := newFront(t, limits.Limit{Name: "slow", Algorithm: limits.TokenBucket, Per: limits.PerClient, Amount: 1, Window: time.Second, Burst: 1})
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
			t.Errorf("the second job was taken after %v: its limit didn't hold it back", took)
		}
	}
}

// A job that is waited for is told of by one stream, from the line to its end.
// workOnce does the next job when there is word, and returns what waits until it has.
func (f *front) workOnce(ctx context.Context, word <-chan struct{}) (wait func()) {
	var all sync.WaitGroup
	all.Go(func() {
		select {
		case <-word:
			f.work("text/plain", "one")
		case <-ctx.Done():
		}
	})
	return all.Wait
}

func TestAWaitIsOneStreamOfTheRealServers(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	sub, err := f.Submit(ctx, Request{Operation: f.operation, Payload: []byte(`1`)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.workOnce(ctx, f.way.streaming)()
	job, err := f.Wait(ctx, sub.JobID)
	if err != nil || job.Status != api.Succeeded || !slices.Equal(f.way.looks, []string{"stream"}) {
		t.Errorf("%q: %+v, %v", f.way.looks, job, err)
	}
	// One that is done already says so at once.
	if job, err := f.Wait(ctx, sub.JobID); err != nil || !job.Done || job.FinishedAt == nil {
		t.Errorf("%+v, %v", job, err)
	}
	if _, err := f.Wait(ctx, "reports-0197c3a0-8a44-7c0e-b1a4-1f6f0c1f2a55"); err == nil {
		t.Error("a job that isn't there was waited for")
	}
}

// Behind a proxy that holds streams up, the end is told by a long poll.
func TestAWaitBehindABufferingProxyIsALongPoll(t *testing.T) {
	t.Parallel()
	f := setup{proxy: buffering}.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sub, err := f.Submit(ctx, Request{Operation: f.operation, Payload: []byte(`1`)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.workOnce(ctx, f.way.gaveUp)()
	job, err := f.Wait(ctx, sub.JobID)
	if err != nil || job.Status != api.Succeeded || !slices.Equal(f.way.looks, []string{"wait=30"}) {
		t.Errorf("%q: %+v, %v", f.way.looks, job, err)
	}
}

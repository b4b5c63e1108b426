package worker_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/worker"
)

// site is one backend with its line, and any number of workers that drain it.
type site struct {
	t        *testing.T
	rdb      redis.UniversalClient
	settings leaky.Settings
	line     *leaky.Line // used as by a client of the service
	backend  *recorder
	worker.Backend
	config worker.Config
}

// newSite returns a site for one test: failed attempts are repeated at once, and the rate is
// unlimited.
func newSite(t *testing.T, h handler) *site {
	t.Helper()
	s := &site{
		t:       t,
		rdb:     redistest.Client(t),
		backend: newRecorder(t, h),
		settings: leaky.Settings{
			Backend:    redistest.Name(t, "b"),
			Drain:      leaky.Drain{Rate: leaky.Unlimited, Burst: 1, Concurrency: 50},
			Room:       leaky.Room{Capacity: 1000, MaxWait: time.Hour, ClientShare: 1},
			Attempts:   4,
			KeepFailed: 24 * time.Hour,
			Feedback:   true,
		},
	}
	s.Backend = worker.Backend{
		URL: s.backend.URL, Timeout: 10 * time.Second,
		Retry: worker.Retry{Base: time.Millisecond, Cap: 5 * time.Millisecond,
			On: []int{408, 425, 500, 502, 504, 507}, Rest: []int{429, 503, 529}},
		Operations: map[string]worker.Operation{"report": {Method: "POST", Path: "/render", MaxResult: 1 << 20}},
	}
	s.config = worker.Config{Grace: 10 * time.Second, Log: slog.New(slog.DiscardHandler)}
	s.open()
	return s
}

// open makes a new line, after a change of the settings.
func (s *site) open() { s.line = leaky.New(s.rdb, s.settings) }

func rate(t *testing.T, text string) leaky.Rate {
	t.Helper()
	r, err := leaky.ParseRate(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// running is a running worker.
type running struct {
	stop    context.CancelFunc
	ended   chan error // receives what Run returned
	metrics *prometheus.Registry
}

// start runs a worker on a client of Redis until the test ends.
func (s *site) start(rdb redis.UniversalClient) *running {
	s.t.Helper()
	listener := leaky.Listen(rdb, []string{s.settings.Backend})
	r := &running{ended: make(chan error, 1), metrics: newRegistry()}
	c, b := s.config, s.Backend
	c.Metrics = r.metrics
	if c.Listener == nil {
		c.Listener = listener
	}
	b.Line = leaky.New(rdb, s.settings)
	if b.Queue == nil {
		b.Queue = jobs.NewQueue(rdb, s.settings.Backend, c.Log)
	}
	c.Backends = append(slices.Clone(c.Backends), b)
	w, err := worker.New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	var all sync.WaitGroup
	all.Go(func() { r.ended <- w.Run(ctx) })
	s.t.Cleanup(func() {
		stop()
		s.backend.release()
		all.Wait()
		if err := listener.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return r
}

func newRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

// sum adds up the counters with this name that have the label value; "" is any.
func (r *running) sum(t *testing.T, name, value string) (total float64) {
	t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if value == "" || l.GetValue() == value {
					total += m.GetCounter().GetValue()
					break
				}
			}
		}
	}
	return total
}

// finish stops the worker and waits for its end.
func (r *running) finish(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	r.stop()
	select {
	case err := <-r.ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("Run doesn't end")
	}
	return time.Since(began)
}

// offer puts a job into the line and returns its id.
func (s *site) offer(change func(*leaky.Offer)) string {
	s.t.Helper()
	o := leaky.Offer{
		Job: jobs.Job{ID: jobs.NewID(s.settings.Backend), Operation: "report", Client: "acme",
			Tier: "free", Priority: jobs.Normal, Payload: []byte(`{"n": 616581622363398142}`)},
		Weight: 1, MaxAge: time.Hour, Keep: time.Hour,
	}
	if change != nil {
		change(&o)
	}
	place, err := s.line.Offer(s.t.Context(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	if place.Outcome != leaky.Accepted {
		s.t.Fatalf("the line says %s", place.Outcome)
	}
	return o.Job.ID
}

// look repeats Look until it succeeds: on a busy machine an answer may take longer than the
// client's timeout.
func (s *site) look(id string) jobs.Standing {
	s.t.Helper()
	var look leaky.Look
	var err error
	for range 10 {
		if look, err = s.line.Look(s.t.Context(), id); err == nil {
			return look.Standing
		}
	}
	s.t.Fatal(err)
	return jobs.Standing{}
}

// await waits for the job's final state.
func (s *site) await(id string) jobs.Standing {
	s.t.Helper()
	var standing jobs.Standing
	s.until("the job doesn't end", func() bool {
		standing = s.look(id)
		return standing.State.Final()
	})
	return standing
}

func (s *site) result(id string) []byte {
	s.t.Helper()
	body, err := s.line.Result(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return body
}

// check checks the books, once no job moves any more.
func (s *site) check() {
	s.t.Helper()
	redistest.CheckBooks(s.t, s.rdb, s.settings.Backend)
}

func (s *site) until(otherwise string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal(otherwise)
		}
	}
}

// handler is how a backend answers.
type handler func(b *recorder, w http.ResponseWriter, r *http.Request)

// recorder is a backend that records its calls.
type recorder struct {
	*httptest.Server
	free chan struct{} // closed by release

	mu    sync.Mutex
	calls []call // guarded by mu
}

type call struct {
	at     time.Time
	job    string
	header http.Header
	body   []byte
}

func newRecorder(t *testing.T, h handler) *recorder {
	r := &recorder{free: make(chan struct{})}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		at := time.Now()
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		r.mu.Lock()
		r.calls = append(r.calls,
			call{at, req.Header.Get("Forebay-Job-Id"), req.Header.Clone(), body})
		r.mu.Unlock()
		req.Body = io.NopCloser(bytes.NewReader(body))
		h(r, w, req)
	}))
	t.Cleanup(r.Close)
	return r
}

// hang blocks a call until the test ends or its caller leaves, and reports whether the caller left.
func (r *recorder) hang(req *http.Request) (aborted bool) {
	select {
	case <-req.Context().Done():
		return true
	case <-r.free:
		return false
	}
}

func (r *recorder) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.free:
	default:
		close(r.free)
	}
}

func (r *recorder) all() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func (r *recorder) of(job string) []call {
	return slices.DeleteFunc(r.all(), func(c call) bool { return c.job != job })
}

// lines is a log that tests can read.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) count(part string) int { return strings.Count(l.String(), part) }

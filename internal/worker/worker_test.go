package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/worker"
)

func ok(_ *recorder, w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"ok":true}`) }

func hang(b *recorder, _ http.ResponseWriter, r *http.Request) { b.hang(r) }

// Cases C95 and C97.
//
// The backend gets the bytes of the payload, and the client those of the answer, binary ones too.
func TestAJobIsCalledOnceAndItsResultKept(t *testing.T) {
	t.Parallel()
	png := []byte("\x89PNG\r\n\x1a\n\x00\xff\xfe")
	s := newSite(t, func(b *recorder, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/png")
		w.WriteHeader(http.StatusCreated)
		w.Write(png)
	})
	w := s.start(redistest.Client(t))
	id := s.offer(nil)
	standing := s.await(id)
	if standing.State != jobs.Succeeded || standing.Attempts != 1 ||
		standing.Result != (jobs.Meta{Status: 201, ContentType: "image/png",
			Size: int64(len(png))}) {
		t.Fatalf("%+v", standing)
	}
	if got := s.result(id); !bytes.Equal(got, png) {
		t.Errorf("result %q", got)
	}
	calls := s.backend.all()
	if len(calls) != 1 || string(calls[0].body) != `{"n": 616581622363398142}` ||
		calls[0].header.Get("Idempotency-Key") != `"`+id+`"` ||
		calls[0].header.Get("Forebay-Attempt") != "1" {
		t.Errorf("calls: %+v", calls)
	}
	w.finish(t)
	s.check()
	const want = `
# HELP forebay_job_attempts_total Attempts of this worker, by how they ended.
# TYPE forebay_job_attempts_total counter
`
	if err := testutil.GatherAndCompare(w.metrics,
		strings.NewReader(want+attemptLines("report", "succeeded", 1)+attemptLines("unknown", "",
			0)), "forebay_job_attempts_total"); err != nil {
		t.Error(err)
	}
}

// attemptLines returns an operation's attempts as /metrics shows them: n with one outcome, and 0
// for all others.
func attemptLines(operation, outcome string, n int) string {
	var b strings.Builder
	for _, word := range []string{"backend_status", "backend_timeout", "backend_unreachable",
		"canceled", "deadline_exceeded",
		"given_back", "lost", "result_too_large", "succeeded", "throttled", "unknown_operation"} {
		count := 0
		if word == outcome {
			count = n
		}
		fmt.Fprintf(&b, "forebay_job_attempts_total{operation=%q,outcome=%q} %d\n", operation, word,
			count)
	}
	return b.String()
}

// Cases C58 and C78.
//
// The body of each attempt is complete, however much the backend read of the one before. A
// throttled call uses up no attempt.
func TestEveryAttemptSendsTheSameBody(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	s := newSite(t, func(b *recorder, w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			ok(b, w, r)
		}
	})
	s.start(redistest.Client(t))
	id := s.offer(nil)
	if standing := s.await(id); standing.State != jobs.Succeeded || standing.Attempts != 2 {
		t.Fatalf("%+v", standing)
	}
	calls := s.backend.all()
	if len(calls) != 3 {
		t.Fatalf("%d calls", len(calls))
	}
	for i, c := range calls {
		first := calls[0]
		if !bytes.Equal(c.body, first.body) || len(c.body) == 0 ||
			c.header.Get("Content-Length") != first.header.Get("Content-Length") ||
			c.header.Get("Content-Type") != first.header.Get("Content-Type") ||
			c.header.Get("Idempotency-Key") != first.header.Get("Idempotency-Key") {
			t.Errorf("call %d differs: %+v, %+v", i+1, c, first)
		}
		if want := []string{"1", "2", "2"}[i]; c.header.Get("Forebay-Attempt") != want {
			t.Errorf("call %d is attempt %s, want %s", i+1, c.header.Get("Forebay-Attempt"), want)
		}
	}
}

// asked answers with the status that the payload asks for.
func asked(_ *recorder, w http.ResponseWriter, r *http.Request) {
	status := 0
	fmt.Fscanf(r.Body, `{"status":%d}`, &status)
	w.WriteHeader(status)
}

func asking(status int) func(*leaky.Offer) {
	return func(o *leaky.Offer) { o.Job.Payload = fmt.Appendf(nil, `{"status":%d}`, status) }
}

// Case C59.
//
// A job with a permanent failure is called once. One whose failure may pass is called up to the
// number of attempts.
func TestHowOftenABackendIsCalled(t *testing.T) {
	t.Parallel()
	s := newSite(t, asked)
	s.settings.Attempts = 3
	s.open()
	s.start(redistest.Client(t))
	calls := map[int]int{400: 1, 401: 1, 404: 1, 409: 1, 422: 1, 302: 1, 501: 1, 408: 3, 425: 3,
		500: 3, 502: 3, 504: 3}
	ids := map[int]string{}
	for status := range calls {
		ids[status] = s.offer(asking(status))
	}
	for status, want := range calls {
		standing := s.await(ids[status])
		if standing.State != jobs.Failed || standing.Failure.Code != jobs.CodeBackendStatus ||
			standing.Result.Status != status || standing.Attempts != want {
			t.Errorf("%d: %+v", status, standing)
		}
		if got := len(s.backend.of(ids[status])); got != want {
			t.Errorf("%d: %d calls, want %d", status, got, want)
		}
	}
}

func TestABackendThatRefusesConnectionsIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, ok)
	s.backend.Close()
	s.start(redistest.Client(t))
	standing := s.await(s.offer(nil))
	if standing.State != jobs.Failed || standing.Failure.Code != jobs.CodeBackendDown ||
		standing.Attempts != s.settings.Attempts || standing.Result.Status != 0 {
		t.Fatalf("%+v", standing)
	}
	if strings.Contains(standing.Failure.Detail, "127.0.0.1") {
		t.Errorf("the client learns the backend's address: %s", standing.Failure.Detail)
	}
}

func TestACallEndsAtItsTimeout(t *testing.T) {
	t.Parallel()
	s := newSite(t, hang)
	s.Timeout = 50 * time.Millisecond
	s.settings.Attempts = 2
	s.open()
	s.start(redistest.Client(t))
	standing := s.await(s.offer(nil))
	if standing.State != jobs.Failed || standing.Failure.Code != jobs.CodeBackendTimeout ||
		standing.Attempts != 2 {
		t.Fatalf("%+v", standing)
	}
}

func TestACallDoesNotOutliveItsJob(t *testing.T) {
	t.Parallel()
	s := newSite(t, hang)
	s.start(redistest.Client(t))
	began := time.Now()
	standing := s.await(s.offer(func(o *leaky.Offer) { o.MaxAge = 500 * time.Millisecond }))
	if standing.State != jobs.Failed || standing.Failure.Code != jobs.CodeDeadline ||
		time.Since(began) > 5*time.Second {
		t.Fatalf("%+v after %v", standing, time.Since(began))
	}
}

func TestAJobThatIsTooLateIsNotCalled(t *testing.T) {
	t.Parallel()
	s := newSite(t, ok)
	id := s.offer(func(o *leaky.Offer) { o.MaxAge = 10 * time.Millisecond })
	<-time.After(20 * time.Millisecond) // no worker drains meanwhile
	w := s.start(redistest.Client(t))
	if standing := s.await(id); standing.State != jobs.Expired || len(s.backend.all()) != 0 {
		t.Fatalf("%+v after %d calls", standing, len(s.backend.all()))
	}
	w.finish(t)
	if n := w.sum(t, "forebay_jobs_finished_total", "expired"); n != 1 {
		t.Errorf("%v jobs are counted as expired", n)
	}
}

func TestAResultOverItsBoundFailsTheJob(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(b *recorder, w http.ResponseWriter, _ *http.Request) {
		w.Write(make([]byte, 101))
	})
	s.Operations["report"] = worker.Operation{Method: "POST", Path: "/render", MaxResult: 100}
	s.start(redistest.Client(t))
	id := s.offer(nil)
	standing := s.await(id)
	if standing.State != jobs.Failed || standing.Failure.Code != jobs.CodeResultTooLarge ||
		standing.Attempts != 1 {
		t.Fatalf("%+v", standing)
	}
	if _, err := s.line.Result(t.Context(), id); !errors.Is(err, leaky.ErrNoResult) {
		t.Errorf("result: %v, want none", err)
	}
}

func TestAnOperationThatTheWorkerDoesNotKnowFailsItsJob(t *testing.T) {
	t.Parallel()
	s := newSite(t, ok)
	w := s.start(redistest.Client(t))
	standing := s.await(s.offer(func(o *leaky.Offer) { o.Job.Operation = "gone" }))
	if standing.State != jobs.Failed || standing.Failure.Code != jobs.CodeUnknownOperation ||
		len(s.backend.all()) != 0 {
		t.Fatalf("%+v after %d calls", standing, len(s.backend.all()))
	}
	w.finish(t)
	// There is no series with a name that isn't in the config.
	if n, err := testutil.GatherAndCount(w.metrics, "forebay_jobs_finished_total"); err != nil ||
		n != 8 {
		t.Errorf("%d series, %v; want 4 outcomes of report and of unknown", n, err)
	}
}

// kept is a Stale that records its calls, and fails if set to.
type kept struct {
	mu   sync.Mutex
	err  error
	jobs []jobs.Job // guarded by mu
	meta []jobs.Meta
	body [][]byte
}

func (k *kept) Learn(_ context.Context, job jobs.Job, meta jobs.Meta, body []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.jobs, k.meta, k.body = append(k.jobs, job), append(k.meta, meta), append(k.body, body)
	return k.err
}

// The keeper learns the backend's last answer to each job, good or not. That changes nothing for
// the job.
func TestStoredAnswersFollowTheBackendsLastAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(_ *recorder, w http.ResponseWriter, r *http.Request) {
		switch body, _ := io.ReadAll(r.Body); string(body) {
		case `"broken"`:
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusGone)
		case `"large"`:
			_, _ = w.Write(make([]byte, 2<<20))
		case `"gone"`:
			w.WriteHeader(http.StatusNotFound)
		case `"good"`:
			w.WriteHeader(http.StatusAccepted)
		}
	})
	s.Operations["report"] = worker.Operation{Method: "POST", Path: "/", MaxResult: 1 << 20}
	var log lines
	stale := &kept{err: errors.New("no room")}
	s.config.Stale, s.config.Log = stale, slog.New(slog.NewTextHandler(&log, nil))
	w := s.start(redistest.Client(t))
	for _, step := range []struct {
		payload string
		to      jobs.State
		learns  int // the status
	}{{`"gone"`, jobs.Failed, 404}, {`"broken"`, jobs.Failed, 410}, {`"large"`, jobs.Failed, 0},
		{`"good"`, jobs.Succeeded, 202}} {
		stale.mu.Lock()
		before := len(stale.jobs)
		stale.mu.Unlock()
		id := s.offer(func(o *leaky.Offer) { o.Job.Payload = []byte(step.payload) })
		if standing := s.await(id); standing.State != step.to {
			t.Fatalf("%s: %+v", step.payload, standing)
		}
		stale.mu.Lock()
		switch learnt := stale.jobs[before:]; {
		case step.learns == 0 && len(learnt) == 0:
		case len(learnt) != 1 || learnt[0].ID != id || string(learnt[0].Payload) != step.payload ||
			stale.meta[before].Status != step.learns:
			t.Errorf("%s: learnt %+v, %+v", step.payload, learnt, stale.meta[before:])
		}
		stale.mu.Unlock()
	}
	w.finish(t)
	if log.count("no room") != 3 {
		t.Errorf("log: %s", log.String())
	}
}

// keeping is a Stale that looks at the job while it stores the answer.
type keeping struct {
	line  *leaky.Line
	mu    sync.Mutex
	saw   []jobs.State // guarded by mu
	rules []string     // guarded by mu: Meta.Storing
}

func (k *keeping) Learn(ctx context.Context, job jobs.Job, meta jobs.Meta, _ []byte) error {
	look, err := k.line.Look(ctx, job.ID)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.saw, k.rules = append(k.saw, look.Standing.State), append(k.rules, meta.Storing)
	return err
}

// The answer is stored before its job ends, so a client that sees the end finds it. The keeper gets
// the backend's restriction on storing.
func TestAnAnswerIsKeptBeforeItsJobIsDone(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(_ *recorder, w http.ResponseWriter, _ *http.Request) {
		w.Header()["Cache-Control"] = []string{"max-age=60", "private"}
	})
	keeper := &keeping{line: s.line}
	s.config.Stale = keeper
	w := s.start(redistest.Client(t))
	if standing := s.await(s.offer(asking(200))); standing.State != jobs.Succeeded {
		t.Fatalf("%+v", standing)
	}
	w.finish(t)
	if len(keeper.saw) != 1 || keeper.saw[0] != jobs.Running || keeper.rules[0] != jobs.Private {
		t.Errorf("kept while %q, as %q; want while running, as private", keeper.saw, keeper.rules)
	}
}

// An answer that the backend marks as private is for one caller, even if callers share a job: each
// gets an answer of its own. If a backend in trouble fails the job, all callers' jobs fail, without
// its answer.
func TestAPrivateAnswerIsForOneCaller(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		control string
		status  int
		calls   int
	}{{"no-store", 200, 3}, {"private, max-age=5", 200, 3}, {"no-store", 403, 3},
		{"no-store", 500, 1}, {"max-age=5", 200, 1}} {
		var calls atomic.Int64
		s := newSite(t, func(_ *recorder, w http.ResponseWriter, _ *http.Request) {
			w.Header()["Cache-Control"] = []string{c.control}
			w.WriteHeader(c.status)
			_, _ = fmt.Fprintf(w, "answer %d", calls.Add(1))
		})
		s.settings.Attempts = 1
		s.open()
		var ids []string
		for _, client := range []string{"acme", "bolt", "core"} {
			o := leaky.Offer{Job: jobs.Job{ID: jobs.NewID(s.settings.Backend), Operation: "report",
				Client: client, Priority: jobs.Normal, Payload: []byte("1")},
				Weight: 1, MaxAge: time.Hour, Keep: time.Hour, Join: "x"}
			if place, err := s.line.Offer(t.Context(), o); err != nil ||
				place.Outcome != leaky.Accepted && place.Outcome != leaky.Joined {
				t.Fatalf("%+v, %v", place, err)
			}
			ids = append(ids, o.Job.ID)
		}
		w := s.start(redistest.Client(t))
		answers := map[string]bool{}
		for _, id := range ids {
			s.await(id)
			look, err := s.line.Look(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := s.line.Result(t.Context(), look.Job.Source()); err == nil {
				answers[string(body)] = true
			}
		}
		w.finish(t)
		want := c.calls
		if c.status == 500 {
			want = 0
		}
		if int(calls.Load()) != c.calls || len(answers) != want {
			t.Errorf("%d with %s: %d calls, answers %v; want %d calls", c.status, c.control,
				calls.Load(), answers, c.calls)
		}
	}
}

func TestEveryEndOfAJobIsOneLineWithoutItsPayload(t *testing.T) {
	t.Parallel()
	s := newSite(t, asked)
	var log lines
	s.config.Log = slog.New(slog.NewTextHandler(&log, nil))
	s.settings.Attempts = 2
	s.open()
	w := s.start(redistest.Client(t))
	good, bad := s.offer(asking(200)), s.offer(asking(500))
	s.await(good)
	s.await(bad)
	w.finish(t)
	for id, want := range map[string]int{good: 1, bad: 2} {
		if got := log.count("job_id=" + id); got != want {
			t.Errorf("%d lines of job %s, want %d:\n%s", got, id, want, log.String())
		}
	}
	if log.count("status\\\":") > 0 || log.count(`"status"`) > 0 {
		t.Errorf("a payload in the log:\n%s", log.String())
	}
}

func TestAConfigThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*site){
		"Timeout": func(s *site) { s.Timeout = 0 },
		"Base":    func(s *site) { s.Retry.Base = 0 },
		"MaxResult": func(s *site) {
			s.Operations["report"] = worker.Operation{Method: "POST", Path: "/"}
		},
		"http": func(s *site) { s.URL = "reports:9000" },
	} {
		s := newSite(t, ok)
		c := worker.Config{Listener: deaf{}, Log: s.config.Log, Metrics: newRegistry()}
		spoil(s)
		s.Line, s.Queue = s.line, jobs.NewQueue(s.rdb, s.settings.Backend, c.Log)
		c.Backends = []worker.Backend{s.Backend}
		if _, err := worker.New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := worker.New(worker.Config{}); err == nil {
		t.Error("an empty config is accepted")
	}
}

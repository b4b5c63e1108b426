package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
)

// one returns a stub that gives every request the same answer.
func one(status int, body string, fields ...string) *stub {
	return &stub{answer: func(int, *http.Request) (*http.Response, error) {
		return reply(status, body, fields...), nil
	}}
}

func TestASubmissionIsAJobAResultOrAStoredAnswer(t *testing.T) {
	t.Parallel()
	const accepted, replayed = "Forebay-Decision: accepted", "Idempotent-Replayed: true"
	const status = "Content-Location: /v1/jobs/reports-1"
	const result = status + "/result"
	other := strings.Replace(queued("sums-1"), `"operation":"report"`,
		`"operation":"summary","degraded":true`, 1)
	for name, c := range map[string]struct {
		answer *stub
		want   Submission
		body   string // of the Result
		job    string // status of the Job
	}{
		"a job": {answer: one(202, queued("reports-1"), accepted, "Retry-After: 3", status),
			want: Submission{JobID: "reports-1", RetryAfter: 3 * time.Second}, job: api.Queued},
		"a job that others requested too": {answer: one(202, queued("reports-1"), accepted,
			"Cache-Status: forebay; fwd=miss; collapsed", status),
			want: Submission{JobID: "reports-1"}, job: api.Queued},
		"an existing job": {answer: one(200, done("reports-1"), accepted, replayed, status),
			want: Submission{JobID: "reports-1", Replayed: true}, job: api.Succeeded},
		"a result": {answer: one(200, "\xff\x00", accepted,
			"Location: /forebay/v1/jobs/reports-1", result),
			want: Submission{JobID: "reports-1"}, body: "\xff\x00"},
		// These bodies look like jobs, but are returned as results.
		"a fresh answer": {answer: one(200, done("reports-1"), accepted, "Age: 12",
			"Cache-Status: forebay; hit; ttl=48"),
			want: Submission{Fresh: true, Age: 12 * time.Second}, body: done("reports-1")},
		"a fresh answer, through another cache": {answer: one(200, "x", accepted, "Age: 0",
			`Cache-Status: "forebay";ttl=60;hit=?1`, "Cache-Status: cdn; fwd=bypass"),
			want: Submission{Fresh: true}, body: "x"},
		"a stale answer": {answer: one(200, done("reports-1"),
			`Forebay-Decision: degraded;reason="line_full"`, "Age: 1012",
			"Cache-Status: forebay; hit; ttl=-412; detail=degraded"),
			want: Submission{Degraded: true, Reason: "line_full", Age: 1012 * time.Second},
			body: done("reports-1")},
		"a stale answer, in another spelling": {answer: one(200, "x",
			`Forebay-Decision: degraded; stale-for=7; reason=per-minute`, "Age: -3"),
			want: Submission{Degraded: true, Reason: "per-minute"}, body: "x"},
		"a fixed answer": {answer: one(200, `{"later":true}`,
			`Forebay-Decision: degraded;reason="per-minute"`),
			want: Submission{Degraded: true, Reason: "per-minute"}, body: `{"later":true}`},
		"a fallback operation's job": {answer: one(202, other,
			`Forebay-Decision: degraded;reason="line_full"`, "Retry-After: 2",
			"Content-Location: /v1/jobs/sums-1"),
			want: Submission{JobID: "sums-1", Degraded: true, Reason: "line_full",
				RetryAfter: 2 * time.Second}, job: api.Queued},
		"a fallback operation's existing job": {answer: one(200,
			strings.Replace(other, `"queued","done":false`, `"succeeded","done":true`, 1),
			`Forebay-Decision: degraded;reason="line_full"`, replayed,
			"Content-Location: /v1/jobs/sums-1"),
			want: Submission{JobID: "sums-1", Degraded: true, Reason: "line_full", Replayed: true},
			job:  api.Succeeded},
		"a fallback operation's result": {answer: one(200, "sum",
			`Forebay-Decision: degraded;reason="line_full"`, "Location: /v1/jobs/sums-1",
			"Content-Location: /v1/jobs/sums-1/result"),
			want: Submission{JobID: "sums-1", Degraded: true, Reason: "line_full"}, body: "sum"},
	} {
		got, err := over(t, c.answer, Config{}).Submit(t.Context(), anyJob)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		job, result := got.Job, got.Result
		if c.job != "" && (job == nil || job.Status != c.job || job.ID != c.want.JobID ||
			job.Degraded != c.want.Degraded) || c.job == "" && job != nil {
			t.Errorf("%s: job %+v", name, job)
		}
		if c.body != "" && (result == nil || string(result.Body) != c.body ||
			result.Status != 200) || c.body == "" && result != nil {
			t.Errorf("%s: result %+v", name, result)
		}
		if got.Job, got.Result = nil, nil; *got != c.want {
			t.Errorf("%s: %+v, want %+v", name, *got, c.want)
		}
	}
}

// A 200 that names neither a job nor a stored answer isn't taken for either.
func TestAnAnswerWithoutAnOriginIsForeign(t *testing.T) {
	t.Parallel()
	for _, field := range []string{
		"X: y", "Cache-Status: cdn; hit; ttl=3", "Cache-Status: forebay; fwd=stale",
		"Cache-Status: forebayx; hit",
	} {
		c := over(t, one(200, "x", "Forebay-Decision: accepted", field), Config{})
		if sub, err := c.Submit(t.Context(), anyJob); !errors.Is(err, errForeign) {
			t.Errorf("%s: %+v, %v", field, sub, err)
		}
	}
}

// OnlyIfCached: a miss is returned at once, without another try.
func TestAMissIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	s := &stub{answer: func(int, *http.Request) (*http.Response, error) {
		return refuse(504, api.CodeNotCached, ""), nil
	}}
	var e *Error
	_, err := over(t, s, Config{}).Submit(t.Context(),
		Request{Operation: "report", OnlyIfCached: true})
	if !errors.As(err, &e) || e.Code != api.CodeNotCached || len(s.seen) != 1 {
		t.Errorf("%d requests: %v", len(s.seen), err)
	}
}

func TestARequestIsSentAsGiven(t *testing.T) {
	t.Parallel()
	s := script(202)
	c := over(t, s, Config{})
	for _, r := range []Request{
		{Operation: `re"port`},
		{Operation: "report", Payload: []byte(" [1 , 2.50e1]\n"), Priority: api.High,
			StartWithin: 90 * time.Second, IdempotencyKey: `a "b\c`, Wait: 7900 * time.Millisecond,
			NoStale: true},
		{Operation: "report", Wait: time.Hour, MaxStale: 90 * time.Second,
			CallbackURL: "https://example.com/hook?a=1&b=<2>"},
		{Operation: "report", MaxStale: time.Minute, OnlyIfCached: true},
	} {
		if _, err := c.Submit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []struct{ body, key, prefer, cache string }{
		{`{"operation":"re\"port","payload":null}`, "", "", ""},
		{`{"operation":"report","payload": [1 , 2.50e1]` + "\n" +
			`,"priority":"high","start_within":"1m30s"}`, `"a \"b\\c"`, "wait=7", "no-cache"},
		{`{"operation":"report","payload":null,` +
			`"callback_url":"https://example.com/hook?a=1\u0026b=\u003c2\u003e"}`,
			"", "wait=30", "max-stale=90"},
		{`{"operation":"report","payload":null}`, "", "", "max-stale=60, only-if-cached"},
	} {
		r := s.seen[i]
		h := r.Header
		if r.body != want.body || want.key != "" && h.Get("Idempotency-Key") != want.key ||
			h.Get("Prefer") != want.prefer || h.Get("Cache-Control") != want.cache {
			t.Errorf("%s %v", r.body, h)
		}
	}
	key := func(i int) string { return s.seen[i].Header.Get("Idempotency-Key") }
	if a, b := key(0), key(2); a == b || a == "" {
		t.Errorf("two Submits have the keys %s and %s", a, b)
	}
}

func TestAnInvalidRequestIsNotSent(t *testing.T) {
	t.Parallel()
	s := script(202)
	for _, r := range []Request{
		{Payload: []byte("")}, {Payload: []byte(`1,"priority":"high"`)}, {Payload: []byte(`{"a":`)},
		{StartWithin: -1}, {StartWithin: time.Microsecond},
		{IdempotencyKey: strings.Repeat("k", 256)}, {IdempotencyKey: "ä"}, {IdempotencyKey: "a\nb"},
		{NoStale: true, OnlyIfCached: true},
	} {
		if _, err := over(t, s, Config{}).Submit(t.Context(), r); err == nil {
			t.Errorf("%+v: no error", r)
		}
	}
	if len(s.seen) != 0 {
		t.Errorf("%d requests", len(s.seen))
	}
}

func TestAResultIsTheBackendsBytes(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "\x00\xff", `{"n":12345678901234567890}`,
		strings.Repeat("x", 1<<20)} {
		c := over(t, one(201, body, "Content-Type: application/x-y"), Config{})
		result, err := c.Result(t.Context(), "reports-1")
		if err != nil || result.Status != 201 || result.ContentType != "application/x-y" ||
			string(result.Body) != body {
			t.Errorf("%d bytes: %v", len(body), err)
		}
	}
}

func TestAMissingResultHasAReason(t *testing.T) {
	t.Parallel()
	s := one(424, `{"type":"about:blank","title":"Failed Dependency","status":424,`+
		`"code":"backend_status","backend_answer":{"status":422,"body":"no such month"}}`,
		"Content-Type: application/problem+json")
	var e *Error
	_, err := over(t, s, Config{}).Result(t.Context(), "reports-1")
	if !errors.As(err, &e) || e.Code != "backend_status" ||
		e.Problem.BackendAnswer.Body != "no such month" {
		t.Errorf("%+v", e)
	}
	s = &stub{answer: func(int, *http.Request) (*http.Response, error) {
		return refuse(409, api.CodeNotFinished, "4"), nil
	}}
	_, err = over(t, s, Config{}).Result(t.Context(), "reports-1")
	if !errors.As(err, &e) || e.Code != api.CodeNotFinished || e.RetryAfter != 4*time.Second ||
		len(s.seen) != 1 {
		t.Errorf("%+v", e)
	}
}

func TestACancelIsTriedAgainAndReturnsItsOutcome(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := script(503, 202)
		job, err := over(t, s, Config{}).Cancel(ctx, "reports-1")
		if err != nil || job.Done || len(s.seen) != 2 || s.seen[1].Method != "DELETE" {
			t.Errorf("%+v, %v", job, err)
		}
		var e *Error
		s = &stub{answer: func(int, *http.Request) (*http.Response, error) {
			return refuse(409, api.CodeFinished, ""), nil
		}}
		_, err = over(t, s, Config{}).Cancel(ctx, "reports-1")
		if !errors.As(err, &e) || e.Code != api.CodeFinished {
			t.Errorf("%v", err)
		}
	})
}

func TestAPurgeIsOfOneJob(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := one(204, "")
		err := over(t, s, Config{}).Purge(ctx, "reports-1")
		if err != nil || s.seen[0].Method != "DELETE" ||
			s.seen[0].URL.String() != "http://forebay.test/v1/jobs/reports-1?purge=1" {
			t.Errorf("%s %s, %v", s.seen[0].Method, s.seen[0].URL, err)
		}
		var e *Error
		for code, status := range map[string]int{
			api.CodeNotFinished: 409, api.CodeJobGone: 410, api.CodeUnknownJob: 404,
		} {
			s = &stub{answer: func(int, *http.Request) (*http.Response, error) {
				return refuse(status, code, ""), nil
			}}
			err := over(t, s, Config{}).Purge(ctx, "reports-1")
			if !errors.As(err, &e) || e.Code != code || len(s.seen) != 1 {
				t.Errorf("%s: %v", code, err)
			}
		}
		// The first try's answer got lost, and the job is gone: the purge succeeded.
		s = &stub{answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return nil, io.ErrUnexpectedEOF
			}
			return refuse(410, api.CodeJobGone, ""), nil
		}}
		if err := over(t, s, Config{}).Purge(ctx, "reports-1"); err != nil {
			t.Error(err)
		}
	})
}

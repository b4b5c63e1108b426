package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"forebay/api"
)

// one answers every request with the same.
func one(status int, body string, fields ...string) *stub {
	return &stub{answer: func(int, *http.Request) (*http.Response, error) { return reply(status, body, fields...), nil }}
}

func TestASubmissionIsAJobAResultOrAStaleAnswer(t *testing.T) {
	t.Parallel()
	submit := func(s *stub) *Submission {
		t.Helper()
		sub, err := over(t, s, Config{}).Submit(t.Context(), anyJob)
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}

	sub := submit(one(202, queued("reports-1"), "Forebay-Decision: accepted", "Retry-After: 3", "Content-Location: /v1/jobs/reports-1"))
	if sub.JobID != "reports-1" || sub.Job.Status != api.Queued || sub.Degraded || sub.Result != nil || sub.RetryAfter != 3*time.Second || sub.Replayed {
		t.Errorf("a job: %+v", sub)
	}
	sub = submit(one(200, done("reports-1"), "Forebay-Decision: accepted", "Idempotent-Replayed: true", "Content-Location: /v1/jobs/reports-1"))
	if !sub.Job.Done || !sub.Replayed || sub.Result != nil {
		t.Errorf("a job that was there: %+v", sub)
	}
	sub = submit(one(200, "\xff\x00", "Forebay-Decision: accepted", "Location: /v1/jobs/reports-1", "Content-Location: /v1/jobs/reports-1/result", "Content-Type: image/png"))
	if sub.JobID != "reports-1" || sub.Job != nil || sub.Degraded || string(sub.Result.Body) != "\xff\x00" || sub.Result.ContentType != "image/png" {
		t.Errorf("a result: %+v", sub)
	}
	// The body looks like a job, and is told as what it is all the same.
	sub = submit(one(200, done("reports-1"), `Forebay-Decision: degraded;reason="line_full"`, "Age: 1012", "Cache-Status: forebay; hit; ttl=-412; detail=degraded"))
	if !sub.Degraded || sub.Reason != "line_full" || sub.Age != 1012*time.Second || string(sub.Result.Body) != done("reports-1") || sub.JobID != "" || sub.Job != nil {
		t.Errorf("a stale answer: %+v", sub)
	}
	sub = submit(one(200, "x", `Forebay-Decision: degraded; stale-for=7; reason=per-minute`, "Age: -3"))
	if !sub.Degraded || sub.Reason != "per-minute" || sub.Age != 0 {
		t.Errorf("a stale answer, spelled otherwise: %+v", sub)
	}
}

func TestARequestSaysWhatWasMeant(t *testing.T) {
	t.Parallel()
	s := script(202)
	c := over(t, s, Config{})
	for _, r := range []Request{
		{Operation: `re"port`},
		{Operation: "report", Payload: []byte(" [1 , 2.50e1]\n"), Priority: api.High, StartWithin: 90 * time.Second, IdempotencyKey: `a "b\c`, Wait: 7900 * time.Millisecond, NoStale: true},
		{Operation: "report", Wait: time.Hour, MaxStale: 90 * time.Second},
	} {
		if _, err := c.Submit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []struct{ body, key, prefer, cache string }{
		{`{"operation":"re\"port","payload":null}`, "", "", ""},
		{`{"operation":"report","payload": [1 , 2.50e1]` + "\n" + `,"priority":"high","start_within":"1m30s"}`, `"a \"b\\c"`, "wait=7", "no-cache"},
		{`{"operation":"report","payload":null}`, "", "wait=30", "max-stale=90"},
	} {
		r := s.seen[i]
		if r.body != want.body || want.key != "" && r.Header.Get("Idempotency-Key") != want.key || r.Header.Get("Prefer") != want.prefer || r.Header.Get("Cache-Control") != want.cache {
			t.Errorf("%s %v", r.body, r.Header)
		}
	}
	if a, b := s.seen[0].Header.Get("Idempotency-Key"), s.seen[2].Header.Get("Idempotency-Key"); a == b || a == "" {
		t.Errorf("two Submits have the keys %s and %s", a, b)
	}
}

func TestARequestThatCantBeSentIsRefusedHere(t *testing.T) {
	t.Parallel()
	s := script(202)
	for _, r := range []Request{
		{Payload: []byte("")}, {Payload: []byte(`1,"priority":"high"`)}, {Payload: []byte(`{"a":`)}, {StartWithin: -1}, {StartWithin: time.Microsecond},
		{IdempotencyKey: strings.Repeat("k", 256)}, {IdempotencyKey: "ä"}, {IdempotencyKey: "a\nb"},
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
	for _, body := range []string{"", "\x00\xff", `{"n":12345678901234567890}`, strings.Repeat("x", 1<<20)} {
		result, err := over(t, one(201, body, "Content-Type: application/x-y"), Config{}).Result(t.Context(), "reports-1")
		if err != nil || result.Status != 201 || result.ContentType != "application/x-y" || string(result.Body) != body {
			t.Errorf("%d bytes: %v", len(body), err)
		}
	}
}

func TestAJobWithoutAResultSaysWhy(t *testing.T) {
	t.Parallel()
	s := one(424, `{"type":"about:blank","title":"Failed Dependency","status":424,"code":"backend_status","backend_answer":{"status":422,"body":"no such month"}}`, "Content-Type: application/problem+json")
	var e *Error
	if _, err := over(t, s, Config{}).Result(t.Context(), "reports-1"); !errors.As(err, &e) || e.Code != "backend_status" || e.Problem.BackendAnswer.Body != "no such month" {
		t.Errorf("%+v", e)
	}
	s = &stub{answer: func(int, *http.Request) (*http.Response, error) { return refuse(409, api.CodeNotFinished, "4"), nil }}
	if _, err := over(t, s, Config{}).Result(t.Context(), "reports-1"); !errors.As(err, &e) || e.Code != api.CodeNotFinished || e.RetryAfter != 4*time.Second || len(s.seen) != 1 {
		t.Errorf("%+v", e)
	}
}

func TestACancelIsTriedAgainAndSaysHowItWent(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := script(503, 202)
		if job, err := over(t, s, Config{}).Cancel(ctx, "reports-1"); err != nil || job.Done || len(s.seen) != 2 || s.seen[1].Method != "DELETE" {
			t.Errorf("%+v, %v", job, err)
		}
		var e *Error
		s = &stub{answer: func(int, *http.Request) (*http.Response, error) { return refuse(409, api.CodeFinished, ""), nil }}
		if _, err := over(t, s, Config{}).Cancel(ctx, "reports-1"); !errors.As(err, &e) || e.Code != api.CodeFinished {
			t.Errorf("%v", err)
		}
	})
}

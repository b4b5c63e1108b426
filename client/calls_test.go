package client

import (
	"context"
	"errors"
	"io"
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

// holding answers each status after the wait that the request prefers, and with a finished job after the n-th.
func holding(after int) *stub {
	return &stub{answer: func(n int, r *http.Request) (*http.Response, error) {
		if n >= after {
			return reply(200, done("reports-1")), nil
		}
		if wait, err := time.ParseDuration(strings.TrimPrefix(r.Header.Get("Prefer"), "wait=") + "s"); err == nil {
			time.Sleep(wait)
		}
		return reply(200, queued("reports-1"), "Retry-After: 9"), nil
	}}
}

func TestAWaitIsHeldBackByTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := holding(4)
		began := time.Now()
		job, err := over(t, s, Config{MaxElapsed: time.Second}).Wait(ctx, "reports-1") // which is no bound of a wait
		if err != nil || !job.Done || len(s.seen) != 4 || time.Since(began) != 90*time.Second {
			t.Errorf("%d requests within %v: %v", len(s.seen), time.Since(began), err)
		}
		for _, r := range s.seen {
			if r.Header.Get("Prefer") != "wait=30" {
				t.Errorf("Prefer: %s", r.Header.Get("Prefer"))
			}
		}
	})
}

// Where a proxy or a full server doesn't hold answers back, the pace is the server's.
func TestAWaitWithoutHoldingPollsAtTheServersPace(t *testing.T) {
	t.Parallel()
	for after, most := range map[string]time.Duration{"9": 9900 * time.Millisecond, "": DefaultCap} {
		t.Run("Retry-After "+after, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := &stub{answer: func(n int, _ *http.Request) (*http.Response, error) {
					if n == 40 {
						return reply(200, done("reports-1")), nil
					}
					r := reply(200, queued("reports-1"))
					if after != "" {
						r.Header.Set("Retry-After", after)
					}
					return r, nil
				}}
				job, err := over(t, s, Config{}).Wait(ctx, "reports-1")
				if err != nil || !job.Done {
					t.Fatal(err)
				}
				asked, _ := time.ParseDuration(after + "s")
				for _, gap := range s.gaps() {
					if gap <= asked || gap > most {
						t.Errorf("a gap of %v", gap)
					}
				}
			})
		})
	}
}

func TestAWaitSurvivesTroubleOnItsWay(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(n int, r *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				time.Sleep(30 * time.Second)
				return reply(200, queued("reports-1")), nil
			case 2:
				time.Sleep(20 * time.Second) // cut off while it was held
				return nil, io.ErrUnexpectedEOF
			case 3:
				return refuse(503, api.CodeStore, "2"), nil
			}
			return reply(200, done("reports-1")), nil
		}}
		if job, err := over(t, s, Config{}).Wait(ctx, "reports-1"); err != nil || !job.Done || len(s.seen) != 4 {
			t.Errorf("%d requests: %v", len(s.seen), err)
		}
	})
}

// A wait ends with the context, early where asking again would be too late, and tells how the job stood.
func TestAWaitEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 40500*time.Millisecond)
		defer cancel()
		s := holding(100)
		began := time.Now()
		job, err := over(t, s, Config{}).Wait(ctx, "reports-1")
		var e *Error
		if !errors.Is(err, ErrTooLate) || !errors.As(err, &e) || e.RetryAfter != 9*time.Second || job.Status != api.Queued {
			t.Errorf("%+v, %v", job, err)
		}
		// 30 s and 10 s held back, one more look, and half a second is too short for what it asks for.
		if time.Since(began) != 40*time.Second || len(s.seen) != 3 || s.seen[1].Header.Get("Prefer") != "wait=10" || s.seen[2].Header.Get("Prefer") != "" {
			t.Errorf("%d requests within %v", len(s.seen), time.Since(began))
		}
	})
}

func TestAWaitThatIsCanceledEndsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(3*time.Second, cancel)
		began := time.Now()
		job, err := over(t, one(200, queued("reports-1"), "Retry-After: 9"), Config{}).Wait(ctx, "reports-1")
		if !errors.Is(err, context.Canceled) || job == nil || time.Since(began) != 3*time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(began), job, err)
		}
	})
}

// An HTTP client's own timeout isn't met by a long poll.
func TestALongPollFitsTheHTTPClient(t *testing.T) {
	t.Parallel()
	s := one(200, done("reports-1"))
	c, err := New("http://forebay.test", Config{HTTPClient: &http.Client{Transport: s, Timeout: 10 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(t.Context(), "reports-1"); err != nil || s.seen[0].Header.Get("Prefer") != "wait=5" {
		t.Errorf("Prefer %q, %v", s.seen[0].Header.Get("Prefer"), err)
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

package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
)

func TestAnAcceptedJobIsAnsweredWith202(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{perClient("per-minute", 60, time.Minute)}
	})
	a := w.Want(w.Submit(w.Report, `{"month":"2026-11"}`, key(keyA)), http.StatusAccepted)
	job := w.Job(a)
	if !strings.HasPrefix(job.ID, w.Backend+"-") ||
		a.Header.Get("Location") != "/v1/jobs/"+job.ID ||
		a.Header.Get("Content-Location") != job.StatusURL {
		t.Errorf("job %s at %s", job.ID, a.Header.Get("Location"))
	}
	if job.Status != api.Queued || job.Done || job.Queue == nil || job.Queue.Position != 1 ||
		job.Operation != w.Report {
		t.Errorf("job = %s", a.Text)
	}
	for name, want := range map[string]string{
		"Forebay-Decision": "accepted", "Retry-After": "1", "Cache-Control": "no-store",
		"RateLimit-Policy":  `"per-minute";q=60;w=60`,
		"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "59",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if !strings.HasPrefix(a.Header.Get("RateLimit"), `"per-minute";r=59;t=`) {
		t.Errorf("RateLimit: %q", a.Header.Get("RateLimit"))
	}
}

func TestALimitRefusesWithItsNameAndSpendsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{perClient("per-minute", 60, time.Minute)}
		s.Global = []limits.Limit{{Name: "two", Algorithm: limits.TokenBucket,
			Per: limits.PerClient, Amount: 2, Window: time.Minute}}
	})
	w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	w.Want(w.Submit(w.Plain, `2`, key(keyA)), http.StatusAccepted)
	for range 3 {
		a := w.Submit(w.Plain, `3`, key(keyA))
		p := w.Problem(a, http.StatusTooManyRequests, api.CodeRateLimit)
		if p.Type != api.TypeQuotaExceeded || p.Title != "Quota Exceeded" ||
			p.Detail != "Limit two allows 2 requests per minute." || p.Reason != "two" ||
			len(p.ViolatedPolicies) != 1 || p.ViolatedPolicies[0] != "two" {
			t.Errorf("problem = %s", a.Text)
		}
		if got := a.Header.Get("Forebay-Decision"); got != `rejected;reason="two"` {
			t.Errorf("Forebay-Decision: %s", got)
		}
		if got := a.Header.Get("Retry-After"); got != fmt.Sprint(p.RetryAfter) ||
			p.RetryAfter < 28 || p.RetryAfter > 30 {
			t.Errorf("Retry-After: %s, in the body %d; a token comes every 30 s", got, p.RetryAfter)
		}
		// The other limit was not charged for a request that this one refused.
		if got := a.Header.Get("RateLimit"); !strings.HasPrefix(got, `"per-minute";r=58;`) {
			t.Errorf("RateLimit: %s", got)
		}
	}
}

// Case C36.
func TestAnOperationHasOneBucketHoweverItsPathIsSpelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Report = []limits.Limit{{Name: "three", Algorithm: limits.TokenBucket,
			Per: limits.PerOperation, Amount: 3, Window: time.Hour}}
	})
	body := `{"operation":"` + w.Report + `","payload":1}`
	for _, path := range []string{"/v1/jobs?id=1", "/v1/%6Aobs?id=2", "/v1/jobs?"} {
		w.Want(w.Call("POST", w.URL+path, body, key(keyA)), http.StatusAccepted)
	}
	for _, path := range []string{"/v1/jobs?id=4", "/v1/job%73"} {
		w.Problem(w.Call("POST", w.URL+path, body, key(keyB)), http.StatusTooManyRequests,
			api.CodeRateLimit)
	}
	for _, path := range []string{"/v1/jobs/", "/v1//jobs", "/v1/jobs/1"} {
		if a := w.Call("POST", w.URL+path, body, key(keyA)); a.StatusCode != http.StatusNotFound &&
			a.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %s", path, a.Status)
		}
	}
	p := w.Problem(w.Submit("no-such-"+w.Report, `1`, key(keyA)), http.StatusNotFound,
		api.CodeUnknownOperation)
	if strings.Join(p.Operations, " ") != strings.Join(w.Server.Admission.Open("pro"), " ") ||
		len(p.Operations) != 4 {
		t.Errorf("operations = %v", p.Operations)
	}
}

func TestAnOperationOfOtherTiersIsForbiddenAndNotListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	p := w.Problem(w.Submit(w.Inner, `1`, from("192.0.2.1")), http.StatusForbidden,
		api.CodeNotAllowed)
	if len(p.Operations) != 3 || strings.Contains(strings.Join(p.Operations, " "), w.Inner) {
		t.Errorf("operations = %v", p.Operations)
	}
	w.Want(w.Submit(w.Inner, `1`, key(keyA)), http.StatusAccepted)
}

func TestARequestThatCanNeverFitIsNotToldToWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Cost.Fixed = 6
		s.Pro = []limits.Limit{perClient("five", 5, time.Minute)}
	})
	a := w.Submit(w.Report, `1`, key(keyA))
	w.Problem(a, http.StatusUnprocessableEntity, api.CodeCostTooHigh)
	if a.Header.Get("Retry-After") != "" {
		t.Errorf("Retry-After: %s", a.Header.Get("Retry-After"))
	}
}

// Case C90, with one half of the clients on another process.
func TestTheLineTakesExactlyItsCapacity(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Line.Capacity = 10
		s.Pro = []limits.Limit{perClient("per-minute", 100, time.Minute)}
	})
	w.Pause()
	_, second, _ := w.Serve()
	var all sync.WaitGroup
	answers := make([]answer, 50)
	for i := range answers {
		all.Go(func() {
			url := []string{w.URL, second}[i%2]
			var err error
			if answers[i],
				err = w.Try("POST", url+"/v1/jobs",
				`{"operation":"`+w.Plain+`","payload":`+fmt.Sprint(i)+`}`, key(keyA)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	accepted := 0
	for _, a := range answers {
		if a.StatusCode == http.StatusAccepted {
			accepted++
			continue
		}
		p := w.Problem(a, http.StatusTooManyRequests, api.CodeLineFull)
		if p.Type != api.TypeReducedCapacity || p.Reason != "line_full" || p.RetryAfter < 1 ||
			a.Header.Get("Forebay-Decision") != `rejected;reason="line_full"` {
			t.Errorf("problem = %s", a.Text)
		}
	}
	if accepted != 10 {
		t.Errorf("%d accepted, want 10", accepted)
	}
	// The line's refusals cost nothing.
	if got := w.Get("/v1/rate-limits", key(keyA)).Header.Get("X-RateLimit-Remaining"); got != "90" {
		t.Errorf("remaining %s, want 90", got)
	}
}

func TestTheRefundOfARefusedJobShowsInItsAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Line.Capacity = 1
		s.Pro = []limits.Limit{perClient("per-minute", 60, time.Minute)}
	})
	w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	a := w.Submit(w.Plain, `2`, key(keyA))
	w.Problem(a, http.StatusTooManyRequests, api.CodeLineFull)
	if got := a.Header.Get("X-RateLimit-Remaining"); got != "59" {
		t.Errorf("remaining %s, want 59", got)
	}
}

func TestOneClientHoldsNoMoreThanItsShareOfTheLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Line.Capacity, s.Line.ClientShare = 4, 0.5 })
	w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	w.Want(w.Submit(w.Plain, `2`, key(keyA)), http.StatusAccepted)
	a := w.Submit(w.Plain, `3`, key(keyA))
	p := w.Problem(a, http.StatusTooManyRequests, api.CodeClientShare)
	if p.Reason != "client_share" || p.Type != api.TypeQuotaExceeded ||
		a.Header.Get("Forebay-Decision") != `rejected;reason="client_share"` {
		t.Errorf("problem = %s", a.Text)
	}
	w.Want(w.Submit(w.Plain, `3`, key(keyB)), http.StatusAccepted)
}

func TestAJobThatWouldWaitTooLongIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Line.Rate = mustRate(t, "1/m") })
	w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	w.Want(w.Submit(w.Plain, `2`, key(keyA)), http.StatusAccepted)
	body := `{"operation":"` + w.Plain + `","payload":3,"start_within":"30s"}`
	a := w.Call("POST", w.URL+"/v1/jobs", body, key(keyA))
	p := w.Problem(a, http.StatusTooManyRequests, api.CodeWaitTooLong)
	if p.Reason != "wait_too_long" || p.RetryAfter < 30 || p.RetryAfter > 100 {
		t.Errorf("problem = %s", a.Text)
	}
	w.Want(w.Submit(w.Plain, `3`, key(keyA)), http.StatusAccepted)
}

func TestPriorityGoesBeforeInTheLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Pause()
	for range 5 {
		w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	}
	a := w.Call("POST", w.URL+"/v1/jobs",
		`{"operation":"`+w.Plain+`","payload":1,"priority":"high"}`, key(keyA))
	job := w.Job(w.Want(a, http.StatusAccepted))
	if job.Queue.Position != 1 || job.Queue.ETASeconds != nil ||
		job.Queue.WaitingOn != leaky.OnPaused {
		t.Errorf("queue = %s", a.Text)
	}
}

func TestStartWithinOverMaxAgeIsNoLimitOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.Call("POST", w.URL+"/v1/jobs",
		`{"operation":"`+w.Plain+`","payload":1,"start_within":"9000h"}`, key(keyA))
	w.Want(a, http.StatusAccepted)
}

// Case C93, over two processes.
func TestAJobIsThereAsSoonAsItIsAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	_, second, _ := w.Serve()
	const n = 200
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := worker; i < n; i += 4 {
				a, err := w.Persist("POST", w.URL+"/v1/jobs",
					`{"operation":"`+w.Plain+`","payload":`+fmt.Sprint(i)+`}`, key(keyA))
				if err != nil || a.StatusCode != http.StatusAccepted {
					t.Errorf("submit: %v %v", err, a.Response)
					return
				}
				for _, url := range []string{w.URL, second} {
					if look, err := w.Persist("GET", url+a.Header.Get("Location"),
						"", key(keyA)); err != nil || look.StatusCode != http.StatusOK {
						t.Errorf("status after 202: %v %v", err, look.Response)
					}
				}
			}
		})
	}
	all.Wait()
	if w.Accepted() < n { // one whose answer was 503 may be on record all the same
		t.Errorf("%d jobs on record, want %d", w.Accepted(), n)
	}
}

// N06: a poller for long-running operations in general, as SDKs have it, follows Operation-Location
// and reads the status there; without that field it would take the first 200 at Location for the
// finished result.
func TestAGenericPollerWaitsUntilTheJobIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(*setup) {})
	w.Pause()
	a := w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	at := a.Header.Get("Operation-Location")
	if at == "" || at != a.Header.Get("Location") || at != w.Job(a).StatusURL {
		t.Fatalf("Operation-Location is %q", at)
	}
	for range 2 {
		if job := w.Job(w.Want(w.Get(at, key(keyA)), 200)); job.Done || job.Status != api.Queued {
			t.Fatalf("a poller would take %+v for the end", job)
		}
	}
	w.Want(w.Call("DELETE", w.URL+at, "", key(keyA)), 200)
	if job := w.Job(w.Want(w.Get(at, key(keyA)), 200)); !job.Done || job.Status != api.Canceled {
		t.Errorf("the poller would go on: %+v", job)
	}
}

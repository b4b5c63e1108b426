package httpapi_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/testforebay"
)

// summarize lets report's requests be degraded to jobs of plain, and then to a fixed body.
func summarize(w *testforebay.World, c *testforebay.Config) {
	c.Operation(w.Report).Overload.Steps = []degrade.Step{{Kind: degrade.Stale},
		{Kind: degrade.Operation, Operation: w.Plain},
		{Kind: degrade.Body, Body: []byte(`{"try":"later"}`)}, {Kind: degrade.Reject}}
}

// A refused request gets another operation's job, by that one's limits; when that is refused too,
// the fixed answer.
func TestAnotherOperationStandsIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Report = append(s.Report, perClient("one", 1, time.Hour))
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			summarize(w, c)
			c.Operation(w.Plain).Limits = w.Limits("plain",
				[]limits.Limit{perClient("two", 2, time.Hour)})
			c.Operation(w.Plain).Cost = admission.Cost{From: "/pages", Default: 1, Max: 9}
		}
	})
	w.Want(w.Submit(w.Report, `1`, key(keyA)), http.StatusAccepted)

	a := w.Want(w.Submit(w.Report, `2`, key(keyA)), http.StatusAccepted)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="one"`,
		"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "1", "Cache-Status": ""})
	j := w.Job(a)
	if !j.Degraded || j.Operation != w.Plain || j.Status != api.Queued {
		t.Errorf("%+v", j)
	}
	if again := w.Job(w.Want(w.Get(j.StatusURL, key(keyA)), 200)); again.Degraded ||
		again.Operation != w.Plain {
		t.Errorf("its status: %+v", again)
	}
	// Its cost is its own; a cost that it can't afford isn't spent.
	costly := w.Want(w.Submit(w.Report, `{"pages":2}`, key(keyA)), http.StatusOK)
	w.says(costly,
		map[string]string{"Forebay-Decision": `degraded;reason="one"`,
			"Content-Type": "application/json", "Age": "", "Cache-Status": "",
			"Cache-Control": "no-store", "Location": "", "Retry-After": "",
			"X-RateLimit-Limit":     "1",
			"X-RateLimit-Remaining": "0"})
	if string(costly.Text) != `{"try":"later"}` {
		t.Errorf("body %q", costly.Text)
	}
	// A payload that isn't one for it.
	w.Want(w.Submit(w.Report, `{"pages":"x"}`, key(keyA)), http.StatusOK)
	w.Want(w.Submit(w.Report, `3`, key(keyA)), http.StatusAccepted)
	w.Want(w.Submit(w.Report, `4`, key(keyA)), http.StatusOK)

	// The stale answer comes first.
	w.Remember(w.Report, degrade.Policy{}.Scope(w.ClientA(), "pro"), `5`,
		cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("known")})
	if a := w.Want(w.Submit(w.Report, `5`, key(keyA)), 200); string(a.Text) != "known" {
		t.Errorf("body %q", a.Text)
	}
	if got := w.Metric(`forebay_admission_decisions_total{decision="degraded",operation="` +
		w.Report + `",reason="one"}`); got != "6" {
		t.Errorf("degraded: %q", got)
	}
}

func TestAStandInIsOfTheCallersTier(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Line.Capacity = 1
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operation(w.Report).Overload.Steps = []degrade.Step{{Kind: degrade.Operation,
				Operation: w.Inner}, {Kind: degrade.Reject}}
		}
	})
	// inner has a line of its own, with room.
	other := redistest.Name(t, "other")
	settings := w.Line.Settings()
	settings.Backend, settings.Capacity = other, 10
	w.Config.Lines[other] = leaky.New(w.Redis, settings).Limited(limits.Script{})
	w.Config.Operation(w.Inner).Backend = other
	_, w.URL, _ = w.Serve()

	w.Want(w.Submit(w.Plain, `0`, key(keyB)), http.StatusAccepted)
	a := w.Want(w.Submit(w.Report, `1`, key(keyA)), http.StatusAccepted)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="line_full"`})
	if j := w.Job(a); j.Operation != w.Inner {
		t.Errorf("%+v", j)
	}
	w.Problem(w.Submit(w.Report, `1`, from("192.0.2.1")), http.StatusTooManyRequests,
		api.CodeLineFull)
	redistest.CheckBooks(t, w.Redis, other)
}

// An Idempotency-Key names one job, of the operation or of its fallback operation.
func TestAStandInsKeyNamesItsJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Report = append(s.Report, perClient("one", 1, time.Hour))
		s.Adjust = summarize
	})
	w.Want(w.Submit(w.Report, `0`, key(keyA)), http.StatusAccepted)
	first := w.Job(w.Want(w.Submit(w.Report, `1`, key(keyA), idempotent("k")), http.StatusAccepted))
	for range 2 {
		a := w.Want(w.Submit(w.Report, `1`, key(keyA), idempotent("k")), http.StatusAccepted)
		w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="replayed"`,
			"Idempotent-Replayed": "true"})
		if j := w.Job(a); j.ID != first.ID || !j.Degraded {
			t.Errorf("%+v, want job %s", j, first.ID)
		}
	}
	w.Problem(w.Submit(w.Report, `2`, key(keyA), idempotent("k")), http.StatusUnprocessableEntity,
		api.CodeKeyReuse)
	// The same key for that operation itself is another.
	own := w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA), idempotent("k")), http.StatusAccepted))
	if own.ID == first.ID || own.Degraded {
		t.Errorf("%+v", own)
	}
	// And so is another client's.
	if b := w.Job(w.Want(w.Submit(w.Report, `1`, key(keyB), idempotent("k")),
		http.StatusAccepted)); b.Operation != w.Report {
		t.Errorf("%+v", b)
	}
}

// Duplicate requests that come together get one job, not one of each operation, though each
// operation has room for one only.
func TestTwinsShareAStandIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Report = append(s.Report,
			limits.Limit{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient,
				Amount: 1})
		s.Adjust = summarize
	})
	w.Pause()
	for round := range 5 {
		var all sync.WaitGroup
		ids := make([]string, 8)
		for i := range ids {
			all.Go(func() {
				for ids[i] == "" && !t.Failed() {
					a, err := w.Try("POST", w.URL+"/v1/jobs",
						`{"operation":"`+w.Report+`","payload":1}`, key(keyA),
						idempotent(string(rune('a'+round))))
					if err != nil || a.StatusCode != http.StatusAccepted &&
						a.Header.Get("Forebay-Decision") != `degraded;reason="store_unavailable"` {
						// a busy machine may have been too slow for the store: such is asked again
						t.Errorf("%v, %v", a.Response, err)
					}
					ids[i] = a.Header.Get("Location")
				}
			})
		}
		all.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("round %d: jobs %v", round, ids)
			}
		}
	}
	if n := w.Accepted(); n != 5 {
		t.Errorf("%d jobs", n)
	}
}

// A caller may wait for the job of a fallback operation, as for any job.
func TestAStandInsResultIsMarked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Report = append(s.Report, perClient("one", 1, time.Hour))
		s.Adjust = summarize
	})
	first := w.Job(w.Want(w.Submit(w.Report, `0`, key(keyA)), http.StatusAccepted)).ID
	w.Succeed(first, 200, "text/plain", []byte("first"))
	got := make(chan answer)
	go func() {
		a, err := w.Try("POST", w.URL+"/v1/jobs", `{"operation":"`+w.Report+`","payload":1}`,
			key(keyA), field("Prefer", "wait=20"))
		if err != nil {
			t.Error(err)
		}
		got <- a
	}()
	w.Eventually("the stand-in waits", func() bool { return w.Accepted() == 2 })
	page, err := w.Line.List(context.Background(), leaky.ListFilter{Limit: 10})
	if err != nil || len(page.Jobs) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	w.Succeed(page.Jobs[0].Job.ID, 200, "text/plain", []byte("short"))
	a := w.Want(<-got, 200)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="one"`,
		"Content-Location": "/v1/jobs/" + page.Jobs[0].Job.ID + "/result"})
	if string(a.Text) != "short" {
		t.Errorf("body %q", a.Text)
	}
}

func TestWithTheStoreLostAFixedAnswerIsStillThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Adjust = summarize })
	w.Store.Down.Store(true)
	a := w.Want(w.Submit(w.Report, `1`, key(keyA)), 200)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="store_unavailable"`})
	if string(a.Text) != `{"try":"later"}` {
		t.Errorf("body %q", a.Text)
	}
}

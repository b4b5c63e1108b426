package httpapi

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
)

// summarize lets report's requests be degraded to jobs of plain, and then to a fixed body.
func summarize(w *world, c *worldConfig) {
	c.operation(w.report).Overload.Steps = []degrade.Step{{Kind: degrade.Stale}, {Kind: degrade.Operation, Operation: w.plain},
		{Kind: degrade.Body, Body: []byte(`{"try":"later"}`)}, {Kind: degrade.Reject}}
}

// A refused request gets another operation's job, by that one's limits; when that is refused too, the fixed answer.
func TestAnotherOperationStandsIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.report = append(s.report, perClient("one", 1, time.Hour))
		s.adjust = func(w *world, c *worldConfig) {
			summarize(w, c)
			c.operation(w.plain).Limits = w.limits("plain", []limits.Limit{perClient("two", 2, time.Hour)})
			c.operation(w.plain).Cost = admission.Cost{From: "/pages", Default: 1, Max: 9}
		}
	})
	w.want(w.submit(w.report, `1`, key(keyA)), http.StatusAccepted)

	a := w.want(w.submit(w.report, `2`, key(keyA)), http.StatusAccepted)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="one"`, "X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "1", "Cache-Status": ""})
	j := w.job(a)
	if !j.Degraded || j.Operation != w.plain || j.Status != api.Queued {
		t.Errorf("%+v", j)
	}
	if again := w.job(w.want(w.get(j.StatusURL, key(keyA)), 200)); again.Degraded || again.Operation != w.plain {
		t.Errorf("its status: %+v", again)
	}
	// Its cost is its own; what it can't afford isn't spent.
	costly := w.want(w.submit(w.report, `{"pages":2}`, key(keyA)), http.StatusOK)
	w.says(costly, map[string]string{"Forebay-Decision": `degraded;reason="one"`, "Content-Type": "application/json", "Age": "", "Cache-Status": "",
		"Cache-Control": "no-store", "Location": "", "Retry-After": "", "X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0"})
	if string(costly.body) != `{"try":"later"}` {
		t.Errorf("body %q", costly.body)
	}
	// A payload that isn't one for it.
	w.want(w.submit(w.report, `{"pages":"x"}`, key(keyA)), http.StatusOK)
	w.want(w.submit(w.report, `3`, key(keyA)), http.StatusAccepted)
	w.want(w.submit(w.report, `4`, key(keyA)), http.StatusOK)

	// The stale answer comes first.
	w.remember(w.report, degrade.Policy{}.Scope(w.clientA(), "pro"), `5`, cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("known")})
	if a := w.want(w.submit(w.report, `5`, key(keyA)), 200); string(a.body) != "known" {
		t.Errorf("body %q", a.body)
	}
	if got := w.metric(`forebay_admission_decisions_total{decision="degraded",operation="` + w.report + `",reason="one"}`); got != "6" {
		t.Errorf("degraded: %q", got)
	}
}

func TestAStandInIsOfTheCallersTier(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.line.Capacity = 1
		s.adjust = func(w *world, c *worldConfig) {
			c.operation(w.report).Overload.Steps = []degrade.Step{{Kind: degrade.Operation, Operation: w.inner}, {Kind: degrade.Reject}}
		}
	})
	// inner has a line of its own, with room.
	other := redistest.Name(t, "other")
	settings := w.line.Settings()
	settings.Backend, settings.Capacity = other, 10
	w.config.Lines[other] = leaky.New(w.rdb, settings).Limited(limits.Script{})
	w.config.operation(w.inner).Backend = other
	_, w.url, _ = w.serve()

	w.want(w.submit(w.plain, `0`, key(keyB)), http.StatusAccepted)
	a := w.want(w.submit(w.report, `1`, key(keyA)), http.StatusAccepted)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="line_full"`})
	if j := w.job(a); j.Operation != w.inner {
		t.Errorf("%+v", j)
	}
	w.problem(w.submit(w.report, `1`, from("192.0.2.1")), http.StatusTooManyRequests, api.CodeLineFull)
	redistest.CheckBooks(t, w.rdb, other)
}

// An Idempotency-Key names one job, of the operation or of the one that stood in for it.
func TestAStandInsKeyNamesItsJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.report = append(s.report, perClient("one", 1, time.Hour))
		s.adjust = summarize
	})
	w.want(w.submit(w.report, `0`, key(keyA)), http.StatusAccepted)
	first := w.job(w.want(w.submit(w.report, `1`, key(keyA), idempotent("k")), http.StatusAccepted))
	for range 2 {
		a := w.want(w.submit(w.report, `1`, key(keyA), idempotent("k")), http.StatusAccepted)
		w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="replayed"`, "Idempotent-Replayed": "true"})
		if j := w.job(a); j.ID != first.ID || !j.Degraded {
			t.Errorf("%+v, want job %s", j, first.ID)
		}
	}
	w.problem(w.submit(w.report, `2`, key(keyA), idempotent("k")), http.StatusUnprocessableEntity, api.CodeKeyReuse)
	// The same key for that operation itself is another.
	own := w.job(w.want(w.submit(w.plain, `1`, key(keyA), idempotent("k")), http.StatusAccepted))
	if own.ID == first.ID || own.Degraded {
		t.Errorf("%+v", own)
	}
	// And so is another client's.
	if b := w.job(w.want(w.submit(w.report, `1`, key(keyB), idempotent("k")), http.StatusAccepted)); b.Operation != w.report {
		t.Errorf("%+v", b)
	}
}

// Twins that come together get one job, though there is room for one of them only: not one each of the two operations.
func TestTwinsShareAStandIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.report = append(s.report, limits.Limit{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient, Amount: 1})
		s.adjust = summarize
	})
	w.pause()
	for round := range 5 {
		var all sync.WaitGroup
		ids := make([]string, 8)
		for i := range ids {
			all.Go(func() {
				for ids[i] == "" && !t.Failed() {
					a, err := w.try("POST", w.url+"/v1/jobs", `{"operation":"`+w.report+`","payload":1}`, key(keyA), idempotent(string(rune('a'+round))))
					if err != nil || a.StatusCode != http.StatusAccepted && a.Header.Get("Forebay-Decision") != `degraded;reason="store_unavailable"` {
						t.Errorf("%v, %v", a.Response, err) // a busy machine may have been too slow for the store: such is asked again
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
	if n := w.count(); n != 5 {
		t.Errorf("%d jobs", n)
	}
}

// A stand-in's caller may wait for it, as for any job.
func TestAStandInsResultIsMarked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.report = append(s.report, perClient("one", 1, time.Hour))
		s.adjust = summarize
	})
	first := w.job(w.want(w.submit(w.report, `0`, key(keyA)), http.StatusAccepted)).ID
	w.succeed(first, 200, "text/plain", []byte("first"))
	got := make(chan answer)
	go func() {
		a, err := w.try("POST", w.url+"/v1/jobs", `{"operation":"`+w.report+`","payload":1}`, key(keyA), field("Prefer", "wait=20"))
		if err != nil {
			t.Error(err)
		}
		got <- a
	}()
	w.eventually("the stand-in waits", func() bool { return w.count() == 2 })
	page, err := w.line.List(context.Background(), leaky.ListFilter{Limit: 10})
	if err != nil || len(page.Jobs) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	w.succeed(page.Jobs[0].Job.ID, 200, "text/plain", []byte("short"))
	a := w.want(<-got, 200)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="one"`, "Content-Location": "/v1/jobs/" + page.Jobs[0].Job.ID + "/result"})
	if string(a.body) != "short" {
		t.Errorf("body %q", a.body)
	}
}

func TestWithTheStoreLostAFixedAnswerIsStillThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.adjust = summarize })
	w.store.down.Store(true)
	a := w.want(w.submit(w.report, `1`, key(keyA)), 200)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="store_unavailable"`})
	if string(a.body) != `{"try":"later"}` {
		t.Errorf("body %q", a.body)
	}
}

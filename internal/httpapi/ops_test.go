package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/testforebay"
	"github.com/forebay/forebay/internal/web"
)

// Case C124.
func TestWithRedisGoneEveryAnswerComesAtOnce(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	w := newWorld(t, func(s *setup) {
		s.Redis = redis.Client(t)
		s.Pro = []limits.Limit{perClient("per-minute", 1000, time.Minute)}
	})
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA), idempotent("k"))).ID
	redis.Kill()
	w.Store.Down.Store(true)
	for range 100 {
		late := lateness()
		began := time.Now()
		a := w.Submit(w.Plain, `1`, key(keyA), idempotent("k"))
		took := time.Since(began)
		w.Problem(a, http.StatusServiceUnavailable, api.CodeStore)
		if bound := 300*time.Millisecond + 4*late(); took > bound {
			t.Fatalf("answered after %v, want %v", took, bound)
		}
		if a.Header.Get("Retry-After") == "" ||
			a.Header.Get("Forebay-Decision") != `rejected;reason="store_unavailable"` {
			t.Fatalf("%v", a.Header)
		}
	}
	for _, path := range []string{"/v1/jobs/" + id, "/v1/jobs/" + id + "/result",
		"/v1/rate-limits"} {
		w.Problem(w.Get(path, key(keyA)), http.StatusServiceUnavailable, api.CodeStore)
	}
	w.Problem(w.Call("DELETE", w.URL+"/v1/jobs/"+id, "", key(keyA)), http.StatusServiceUnavailable,
		api.CodeStore)
	// Requests that need no store are answered as always.
	w.Problem(w.Call("POST", w.URL+"/v1/jobs", `{`, key(keyA)), http.StatusBadRequest,
		api.CodeInvalidRequest)
	w.Problem(w.Submit(w.Plain, `1`, key("nope")), http.StatusUnauthorized,
		api.CodeInvalidCredentials)
	w.Want(w.Get("/livez"), 200)
	if n := strings.Count(w.Logs.String(), "the store fails"); n < 1 || n > 10 {
		t.Errorf("%d warnings for some hundred failures", n)
	}

	redis.Restart()
	w.Store.Down.Store(false)
	w.Eventually("the same job again", func() bool {
		a := w.Submit(w.Plain, `1`, key(keyA), idempotent("k"))
		return a.StatusCode == http.StatusAccepted && w.Job(a).ID == id
	})
}

func TestWithRedisHungEveryAnswerComesWithinASecond(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	w := newWorld(t, func(s *setup) {
		s.Redis = redis.Client(t)
		s.Pro = []limits.Limit{perClient("per-minute", 1000, time.Minute)}
	})
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	redis.Stop()
	defer redis.Cont()
	type ask struct {
		method, path, body string
		fields             [][2]string
		got                answer
		took               time.Duration
	}
	asks := []*ask{
		{method: "POST", path: "/v1/jobs", body: `{"operation":"` + w.Shared + `","payload":1}`},
		{method: "POST", path: "/v1/jobs", body: `{"operation":"` + w.Plain + `","payload":1}`,
			fields: [][2]string{idempotent("k")}},
		{method: "GET", path: "/v1/jobs/" + id},
		{method: "DELETE", path: "/v1/jobs/" + id},
		{method: "GET", path: "/v1/rate-limits"},
	}
	late := lateness()
	var all sync.WaitGroup
	for _, a := range asks {
		all.Go(func() {
			began := time.Now()
			var err error
			if a.got, err = w.Try(a.method, w.URL+a.path, a.body,
				append(a.fields, key(keyA))...); err != nil {
				t.Error(err)
			}
			a.took = time.Since(began)
		})
	}
	all.Wait()
	// The store's time, that for a stale answer, and the way there and back.
	bound := web.StoreTime + 150*time.Millisecond + 50*time.Millisecond + 4*late()
	for _, a := range asks {
		w.Problem(a.got, http.StatusServiceUnavailable, api.CodeStore)
		if a.took > bound {
			t.Errorf("%s %s: answered after %v, want %v", a.method, a.path, a.took, bound)
		}
	}
}

// Reads are served while nothing can be written, as with a Redis that is full.
func TestWhenTheStoreFailsTheStaleAnswerIsServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Limiter = func(l admission.Limiter) admission.Limiter { return brokenLimiter{l} }
		s.Pro = []limits.Limit{perClient("per-minute", 1000, time.Minute)}
	})
	w.Remember(w.Shared, "", `1`,
		cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("known")})
	a := w.Want(w.Submit(w.Shared, `1`, key(keyA)), 200)
	if string(a.Text) != "known" ||
		a.Header.Get("Forebay-Decision") != `degraded;reason="store_unavailable"` {
		t.Errorf("%q %v", a.Text, a.Header)
	}
	w.Problem(w.Submit(w.Shared, `2`, key(keyA)), http.StatusServiceUnavailable, api.CodeStore)
}

type brokenLimiter struct{ admission.Limiter }

func (brokenLimiter) Decide(context.Context, limits.Request) (limits.Verdict, error) {
	return limits.Verdict{}, fmt.Errorf("OOM command not allowed")
}

func (l brokenLimiter) Along(ctx context.Context, r limits.Request,
	_ func(*limits.Part) (limits.Ending, error)) (limits.Verdict, error) {
	return l.Decide(ctx, r)
}

func TestAPanicIsAnAnswerWithoutDetail(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Wrap = func(l testforebay.Line) testforebay.Line { return panickyLine{l} }
	})
	a := w.Submit(w.Plain, `1`, key(keyA))
	w.Problem(a, http.StatusInternalServerError, api.CodeInternal)
	if strings.Contains(string(a.Text), "boom") || !strings.Contains(w.Logs.String(), "boom") {
		t.Errorf("%s\n%s", a.Text, w.Logs)
	}
	if a.Header.Get("Forebay-Decision") != `rejected;reason="internal_error"` {
		t.Errorf("%v", a.Header)
	}
	w.Want(w.Get("/livez"), 200)
}

type panickyLine struct{ testforebay.Line }

func (panickyLine) Offer(context.Context, leaky.Offer) (leaky.Place, error) { panic("boom") }

// Case C127.
func TestNoClientCanMintASeries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Pro = []limits.Limit{perClient("three", 3, time.Hour)} })
	w.Unchecked() // for speed
	noise := func(n int) {
		methods := []string{"GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "FOO",
			"BAR"}
		for i := range n {
			path := []string{"/x", "/v1/jobs/", "/v1/jobs/a/result/", "/v1/"}[i/len(methods)%4]
			w.Call(methods[i%len(methods)], w.URL+path+fmt.Sprint(rand.Int64()), "", key(keyA))
			w.Submit(fmt.Sprint("op", rand.Int64()), `1`, key(keyA),
				idempotent(fmt.Sprint(rand.Int64())))
			w.Submit(w.Plain, `1`, key(keyA), field("X-Request-Id", fmt.Sprint(rand.Int64())))
		}
	}
	noise(72)
	w.Metrics() // a scrape has series of its own
	before := w.Series()
	noise(500)
	if after := w.Series(); after != before {
		t.Errorf("%d series before, %d after", before, after)
	}
}

func TestMetricsTellOfDecisionsAndOfTheLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Line.Capacity = 2
		s.Pro = []limits.Limit{perClient("three", 3, time.Hour)}
	})
	series := func(name, labels,
		value string) string {
		return "forebay_" + name + "{" + labels + "} " + value + "\n"
	}
	fresh := string(w.Metrics())
	for _, want := range []string{
		series("admission_decisions_total",
			`decision="accepted",operation="`+w.Plain+`",reason="new"`, "0"),
		series("admission_decisions_total",
			`decision="rejected",operation="`+w.Plain+`",reason="three"`, "0"),
		series("admission_decisions_total",
			`decision="degraded",operation="`+w.Report+`",reason="line_full"`, "0"),
		series("line_depth", `backend="`+w.Backend+`"`, "0"),
		"forebay_store_up 1\n",
	} {
		if !strings.Contains(fresh, want) {
			t.Errorf("a fresh process lacks %s", want)
		}
	}
	w.Pause()
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA), idempotent("k"))).ID
	w.Submit(w.Plain, `1`, key(keyA), idempotent("k"))
	w.Want(w.Submit(w.Plain, `1`, key(keyA)), 202)
	w.Want(w.Submit(w.Plain, `1`, key(keyA)), 429)
	w.Submit("none", `1`, key(keyA))
	w.Get("/v1/jobs/"+id, key(keyA))
	got := string(w.Metrics())
	for _, want := range []string{
		series("admission_decisions_total",
			`decision="accepted",operation="`+w.Plain+`",reason="new"`, "2"),
		series("admission_decisions_total",
			`decision="accepted",operation="`+w.Plain+`",reason="replayed"`, "1"),
		series("admission_decisions_total",
			`decision="rejected",operation="`+w.Plain+`",reason="line_full"`, "1"),
		series("admission_decisions_total",
			`decision="rejected",operation="unknown",reason="unknown_operation"`, "1"),
		series("http_requests_total", `code="202",method="POST",route="/v1/jobs"`, "3"),
		series("http_requests_total", `code="200",method="GET",route="/v1/jobs/{id}"`, "1"),
		series("line_depth", `backend="`+w.Backend+`"`, "2"),
		series("line_capacity", `backend="`+w.Backend+`"`, "2"),
		series("backend_paused", `backend="`+w.Backend+`"`, "1"),
		series("drain_rate", `backend="`+w.Backend+`",kind="configured"`, "10"),
		series("drain_rate", `backend="`+w.Backend+`",kind="effective"`, "10"),
		series("backend_jobs_accepted_total", `backend="`+w.Backend+`"`, "2"),
		series("backend_jobs_finished_total", `backend="`+w.Backend+`",outcome="succeeded"`, "0"),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %s", want)
		}
	}
	for _, secret := range []string{w.ClientA(), id, keyA} {
		if strings.Contains(got, secret) {
			t.Errorf("%s is a label", secret)
		}
	}
}

// Case C130.
func TestProbesAndPollsCountAgainstNoLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Global = []limits.Limit{{Name: "address", Algorithm: limits.TokenBucket,
			Per: limits.PerIP, Amount: 2, Window: time.Hour}}
	})
	caller := from("192.0.2.5")
	id := w.Job(w.Want(w.Submit(w.Plain, `1`, caller), http.StatusAccepted)).ID
	w.Unchecked() // for speed
	for range 100 {
		for _, path := range []string{"/livez", "/readyz", "/v1/jobs/" + id, "/v1/rate-limits"} {
			w.Want(w.Get(path, caller), 200)
		}
		w.Want(w.Call("GET", w.Admin+"/metrics", "", caller), 200)
	}
	w.Want(w.Submit(w.Plain, `2`, caller), http.StatusAccepted)
	w.Problem(w.Submit(w.Plain, `3`, caller), http.StatusTooManyRequests, api.CodeRateLimit)
}

// Case C134.
func TestNoPathIsRedirectedAndWrongMethodsAreTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	for call, want := range map[string]int{
		"POST /v1/jobs/": 404, "POST //v1/jobs": 404, "POST /v1//jobs": 404,
		"POST /v1/jobs/../jobs": 404, "POST /v1/./jobs": 404, "POST /": 404,
		"GET /v1/jobs/" + id + "/": 404, "GET /v1/jobs/" + id + "%2F": 404,
		"GET /v1/jobs/..%2F..%2Flivez": 404, "GET /v1/jobs%2F" + id: 200,
		"HEAD /v1/jobs/" + id: 200, "HEAD /livez": 200, "GET /healthz": 404,
		"GET /v1/jobs": 200, "HEAD /v1/jobs": 200, "PUT /v1/jobs": 405, "OPTIONS /v1/jobs": 405,
		"FOO /v1/jobs":        405,
		"POST /v1/jobs/" + id: 405, "PATCH /v1/jobs/" + id: 405, "POST /v1/rate-limits": 405,
		"DELETE /livez": 405, "POST /v1/jobs/" + id + "/result": 405,
	} {
		method, path, _ := strings.Cut(call, " ")
		a := w.Call(method, w.URL+path, "", key(keyA))
		if a.StatusCode != want {
			t.Errorf("%s: %s, want %d", call, a.Status, want)
		}
		if allow := a.Header.Get("Allow"); (allow != "") != (want == 405) {
			t.Errorf("%s: Allow: %q", call, allow)
		}
	}
	for path, want := range map[string]string{"/v1/jobs": "GET, HEAD, POST",
		"/v1/jobs/" + id: "DELETE, GET, HEAD", "/livez": "GET, HEAD"} {
		if got := w.Call("PUT", w.URL+path, "").Header.Get("Allow"); got != want {
			t.Errorf("%s: Allow: %s, want %s", path, got, want)
		}
	}
}

func TestReadinessSaysWhatToMend(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Line.Capacity = 1 })
	w.Submit(w.Plain, `1`, key(keyA))
	w.Want(w.Submit(w.Plain, `1`, key(keyA)), 429)
	var got api.Health
	strictly(t, "readyz", w.Want(w.Get("/readyz"), 200).Text, &got) // a full line stays ready
	if got.Status != "ready" || got.Store != "" || got.Warnings != nil {
		t.Errorf("clients learn %+v", got)
	}
	w.Store.IsEmbedded, w.Store.AllWarnings = true, []string{"Nothing is kept."}
	strictly(t, "readyz", w.Want(w.Call("GET", w.Admin+"/readyz", ""), 200).Text, &got)
	w.Store.Full.Store(true) // C100: it can be read, and takes no job
	w.Problem(w.Get("/readyz"), http.StatusServiceUnavailable, api.CodeNotReady)
	w.Problem(w.Call("GET", w.Admin+"/readyz", ""), http.StatusServiceUnavailable, api.CodeStore)
	w.Store.Full.Store(false)
	w.Want(w.Get("/readyz"), 200)
	if got.Store != "embedded" || len(got.Warnings) != 1 {
		t.Errorf("ready = %+v", got)
	}
	w.Want(w.Call("GET", w.Admin+"/livez", ""), 200)
}

// N21: the store is unavailable to all processes at once, so those that can go on stay in service.
func TestReadyWithoutTheStoreWhereItCanAnswer(t *testing.T) {
	t.Parallel()
	stale := []admission.Operation{{Overload: degrade.Policy{StaleFor: time.Hour,
		Steps: []degrade.Step{{Kind: degrade.Stale}}}}}
	body := []admission.Operation{{Overload: degrade.Policy{
		Steps: []degrade.Step{{Kind: degrade.Body, Body: []byte("1")}}}}}
	for name, c := range map[string]struct {
		check      string
		reject     bool // on failure
		operations []admission.Operation
		want       int
	}{
		"checks by each process":  {admission.CheckLocal, true, []admission.Operation{{}}, 200},
		"checks allowed":          {admission.CheckAllow, true, []admission.Operation{{}}, 200},
		"stored answers":          {admission.CheckRefuse, false, stale, 200},
		"a fixed answer":          {admission.CheckRefuse, false, body, 200},
		"stored answers, refused": {admission.CheckRefuse, true, stale, 503},
		"nothing to answer":       {admission.CheckRefuse, false, []admission.Operation{{}}, 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *setup) {
				s.Adjust = func(_ *testforebay.World, config *testforebay.Config) {
					config.Enter.RejectOnFailure, config.Enter.Operations = c.reject,
						slices.Clone(c.operations)
					for i := range config.Enter.Operations {
						config.Enter.Operations[i].OnFailure = c.check
					}
				}
			})
			for _, base := range []string{w.URL, w.Admin} {
				w.Want(w.Call("GET", base+"/readyz?store=1", ""), 200)
			}
			w.Store.Down.Store(true)
			for _, base := range []string{w.URL, w.Admin} {
				w.Want(w.Call("GET", base+"/readyz", ""), c.want)
				w.Want(w.Call("GET", base+"/readyz?store=1", ""), 503)
			}
		})
	}
}

func TestTheContractIsServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.Want(w.Get("/openapi.yaml"), 200)
	if string(a.Text) != string(api.OpenAPI) || a.Header.Get("Content-Type") != "application/yaml" {
		t.Errorf("%d bytes of %s", len(a.Text), a.Header.Get("Content-Type"))
	}
}

func TestEveryDecisionIsOneLineOfLogWithoutSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Submit(w.Plain, `"top secret payload"`, key(keyA), idempotent("secret-key"),
		field("X-Request-Id", "req-1"))).ID
	w.Submit(w.Plain, `"top secret payload"`, from("192.0.2.44"), field("X-Request-Id", "req-2"))
	w.Submit("none", `1`, key(keyA), field("X-Request-Id", "req-3"))
	log := w.Logs.String()
	for request, want := range map[string]string{
		"req-1": "msg=accepted reason=new operation=" + w.Plain + " job_id=" + id + " client=" +
			w.ClientA() + " request_id=req-1",
		"req-2": "client=anonymous",
		"req-3": "msg=rejected reason=unknown_operation",
	} {
		found := 0
		for line := range strings.Lines(log) {
			if strings.Contains(line, "request_id="+request) && strings.Contains(line, want) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%d lines with %s and %q in\n%s", found, request, want, log)
		}
	}
	for _, secret := range []string{"secret", keyA, "192.0.2.44"} {
		if strings.Contains(log, secret) {
			t.Errorf("%q is in the log", secret)
		}
	}
}

func TestASlowSenderIsCutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	s := web.NewHTTPServer(w.Server.Public(), w.Server.Web.Log)
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.IdleTimeout <= 0 ||
		s.MaxHeaderBytes <= 0 || s.WriteTimeout <= httpapi.MaxWait+2*web.StoreTime {
		t.Errorf("a bound is missing: %+v", s)
	}
	s.ReadTimeout = 100 * time.Millisecond
	url := listen(t, s)
	body, slow := io.Pipe()
	defer slow.Close()
	r, err := http.NewRequest("POST", url+"/v1/jobs", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-API-Key", keyA)
	go slow.Write([]byte(`{"operation":`))
	a, err := w.Client.Do(r)
	if err != nil {
		return // cut off without a word
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusRequestTimeout {
		t.Errorf("%s", a.Status)
	}
}

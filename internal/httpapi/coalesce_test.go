package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
)

// coalescing is a world in which shared and report coalesce, and pro has a limit of ten.
func coalescing(t *testing.T, adjust func(*setup)) *world {
	t.Helper()
	return newWorld(t, func(s *setup) {
		s.pro = append(s.pro, perClient("ten", 10, time.Hour))
		s.adjust = func(w *world, c *worldConfig) {
			c.operation(w.shared).Coalesce, c.operation(w.report).Coalesce = true, true
		}
		if adjust != nil {
			adjust(s)
		}
	})
}

// waiting are the jobs in the line.
func (w *world) waiting() []leaky.Look {
	w.Helper()
	page, err := w.line.List(context.Background(), leaky.ListFilter{Limit: 100})
	if err != nil {
		w.Fatal(err)
	}
	return page.Jobs
}

func TestRequestsForTheSameShareOneJob(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	first := w.want(w.submit(w.shared, `{"a":1,"b":2}`, key(keyA)), http.StatusAccepted)
	w.says(first, map[string]string{"Forebay-Decision": "accepted", "Cache-Status": "", "X-RateLimit-Remaining": "9"})
	second := w.want(w.submit(w.shared, `{ "b":2, "a":1 }`, key(keyB)), http.StatusAccepted)
	w.says(second, map[string]string{"Forebay-Decision": "accepted", "Cache-Status": "forebay; fwd=miss; collapsed", "X-RateLimit-Remaining": "9"})
	third := w.want(w.submit(w.shared, `{"a":1,"b":2}`, from("192.0.2.1")), http.StatusAccepted)
	jobs := w.waiting()
	if len(jobs) != 1 {
		t.Fatalf("%d jobs wait", len(jobs))
	}
	ids := map[string][2]string{w.job(first).ID: key(keyA), w.job(second).ID: key(keyB), w.job(third).ID: from("192.0.2.1")}
	if len(ids) != 3 {
		t.Fatalf("shares %v", ids)
	}
	for id := range ids {
		for other, caller := range ids {
			if want := map[bool]int{true: 200, false: 404}[id == other]; w.get("/v1/jobs/"+id, caller).StatusCode != want {
				t.Errorf("share %s for the owner of %s: not %d", id, other, want)
			}
		}
	}
	if got := w.metric(`forebay_admission_decisions_total{decision="accepted",operation="` + w.shared + `",reason="joined"}`); got != "2" {
		t.Errorf("joined: %q", got)
	}
	w.succeed(jobs[0].Job.ID, 201, "text/plain", []byte("for all"))
	for id, caller := range ids {
		if j := w.job(w.want(w.get("/v1/jobs/"+id, caller), 200)); j.Status != api.Succeeded || j.ID != id {
			t.Errorf("%+v", j)
		}
		if a := w.want(w.get("/v1/jobs/"+id+"/result", caller), 201); string(a.body) != "for all" {
			t.Errorf("result %q", a.body)
		}
		var shown api.AdminJob
		if strictly(t, "a share", w.want(w.adminCall("GET", "jobs/"+id), 200).body, &shown); shown.Answer == nil || shown.Answer.Body != "for all" {
			t.Errorf("an operator sees %+v", shown)
		}
	}
	// What has ended is joined no more.
	w.says(w.want(w.submit(w.shared, `{"a":1,"b":2}`, key(keyA)), http.StatusAccepted), map[string]string{"Cache-Status": ""})
}

// Nothing is shared across the operation's sharing scope, by who wants a new answer, or where the config doesn't say so.
func TestWhatIsNotTheSameIsNotShared(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	for _, a := range []answer{
		w.submit(w.shared, `1`, key(keyA)),
		w.submit(w.shared, `2`, key(keyA)),
		w.submit(w.shared, `1`, key(keyB), field("Cache-Control", "no-cache")),
		w.submit(w.report, `1`, key(keyA)),
		w.submit(w.report, `1`, key(keyB)),
		w.submit(w.plain, `1`, key(keyA)),
		w.submit(w.plain, `1`, key(keyA)),
	} {
		w.says(w.want(a, http.StatusAccepted), map[string]string{"Cache-Status": ""})
	}
	if n := len(w.waiting()); n != 7 {
		t.Errorf("%d jobs wait, want 7", n)
	}
	w.says(w.want(w.submit(w.report, `1`, key(keyA)), http.StatusAccepted), map[string]string{"Cache-Status": "forebay; fwd=miss; collapsed"})
}

// Each caller cancels its own share; the last one cancels the job.
func TestACallerCancelsItsOwnShare(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	callers := [][2]string{key(keyA), key(keyB), from("192.0.2.1")}
	var ids []string
	for _, caller := range callers {
		ids = append(ids, w.job(w.want(w.submit(w.shared, `1`, caller), http.StatusAccepted)).ID)
	}
	w.problem(w.call("DELETE", w.url+"/v1/jobs/"+ids[0], "", callers[1]), http.StatusNotFound, api.CodeUnknownJob)
	for i, caller := range callers {
		if n := len(w.waiting()); n != 1 {
			t.Fatalf("after %d cancels %d jobs wait", i, n)
		}
		if j := w.job(w.want(w.call("DELETE", w.url+"/v1/jobs/"+ids[i], "", caller), 200)); j.Status != api.Canceled {
			t.Errorf("%+v", j)
		}
		for k, other := range callers {
			want := api.Queued
			if k <= i {
				want = api.Canceled
			}
			if j := w.job(w.get("/v1/jobs/"+ids[k], other)); j.Status != want {
				t.Errorf("after %d cancels share %d is %s, want %s", i+1, k, j.Status, want)
			}
		}
	}
	if n := len(w.waiting()); n != 0 {
		t.Errorf("%d jobs wait that nobody wants", n)
	}
}

// An Idempotency-Key names its own share.
func TestAShareHasItsOwnKey(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	w.want(w.submit(w.shared, `1`, key(keyB)), http.StatusAccepted)
	id := w.job(w.want(w.submit(w.shared, `1`, key(keyA), idempotent("k")), http.StatusAccepted)).ID
	again := w.want(w.submit(w.shared, `1`, key(keyA), idempotent("k")), http.StatusAccepted)
	w.says(again, map[string]string{"Idempotent-Replayed": "true", "Cache-Status": ""})
	if got := w.job(again).ID; got != id {
		t.Errorf("job %s, want %s", got, id)
	}
	w.problem(w.submit(w.shared, `2`, key(keyA), idempotent("k")), http.StatusUnprocessableEntity, api.CodeKeyReuse)
}

// Issue 10, point 12: however often a client asks for the same, it has one share, and one place of its limits on jobs at one time; each request costs what
// a request costs. Callers without a key share an address, and each has a share of its own that no other can find.
func TestAClientThatAsksAgainHasItsShareAgain(t *testing.T) {
	t.Parallel()
	w := coalescing(t, func(s *setup) {
		s.pro = []limits.Limit{perClient("many", 1000, time.Hour), {Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient, Amount: 100}}
	})
	_, another, _ := w.serve()
	w.pause()
	const n = 20
	var all sync.WaitGroup
	var ids, strangers [n]string
	for i := range n {
		all.Go(func() {
			url := []string{w.url, another}[i%2] + "/v1/jobs"
			for to, caller := range map[*string][2]string{&ids[i]: key(keyA), &strangers[i]: from("192.0.2.1")} {
				a, err := w.try("POST", url, `{"operation":"`+w.shared+`","payload":1}`, caller)
				if err != nil || a.StatusCode != http.StatusAccepted {
					t.Errorf("%v, %v", a.Response, err)
					return
				}
				*to = w.job(a).ID
			}
		})
	}
	all.Wait()
	if jobs := w.waiting(); len(jobs) != 1 {
		t.Errorf("%d jobs wait", len(jobs))
	}
	slices.Sort(strangers[:])
	slices.Sort(ids[:])
	if len(slices.Compact(ids[:])) != 1 || len(slices.Compact(strangers[:])) != n {
		t.Errorf("the client has shares %q, callers without a key %q", ids, strangers)
	}
	w.eventually("each request was charged, and one place is taken", func() bool {
		told := w.rateLimits(key(keyA))
		return told["many"].Remaining == 1000-n && told["jobs"].Remaining == 99
	})
	w.want(w.call("DELETE", w.url+"/v1/jobs/"+ids[0], "", key(keyA)), 200)
	if told := w.rateLimits(key(keyA)); told["jobs"].Remaining != 100 {
		t.Errorf("after its cancel: %+v", told["jobs"])
	}
}

// Issue 10, point 11: a request with no-store joins nobody's job, nobody joins its own, and its answer is stored for nobody.
func TestARequestWithNoStoreLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	alone := w.job(w.want(w.submit(w.shared, `1`, key(keyA), field("Cache-Control", "no-store")), http.StatusAccepted)).ID
	w.says(w.want(w.submit(w.shared, `1`, key(keyB)), http.StatusAccepted), map[string]string{"Cache-Status": ""})
	other := w.job(w.want(w.submit(w.shared, `1`, key(keyA), field("Cache-Control", "no-store")), http.StatusAccepted)).ID
	for _, id := range []string{alone, other} {
		look, err := w.line.Look(context.Background(), id)
		if err != nil || look.Job.Of != "" || look.Job.Shared || !look.Job.NoStore {
			t.Errorf("%+v, %v", look.Job, err)
		}
	}
	w.succeed(alone, 200, "text/plain", []byte("mine"))
	if a := w.want(w.get("/v1/jobs/"+alone+"/result", key(keyA)), 200); string(a.body) != "mine" {
		t.Errorf("its own result: %q", a.body)
	}
}

// Who joined may wait as for any job.
func TestAShareIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	got := make(chan answer, 2)
	for _, k := range []string{keyA, keyB} {
		go func() {
			a, err := w.try("POST", w.url+"/v1/jobs", `{"operation":"`+w.shared+`","payload":1}`, key(k), field("Prefer", "wait=25"))
			if err != nil {
				t.Error(err)
			}
			got <- a
		}()
	}
	var jobs []leaky.Look
	w.eventually("both wait", func() bool { jobs = w.waiting(); return len(jobs) == 1 && w.server.waits.held(heldWait) == 2 })
	w.succeed(jobs[0].Job.ID, 200, "text/plain", []byte("for both"))
	for range 2 {
		if a := w.want(<-got, 200); string(a.body) != "for both" {
			t.Errorf("%q", a.body)
		}
	}
}

// A stale answer that was served is asked for anew: once, and spending nobody's limit.
func TestAStaleAnswerIsRefreshedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.adjust = func(w *world, c *worldConfig) {
			o := c.operation(w.shared)
			o.Limits = w.limits("shared", []limits.Limit{perClient("one", 1, time.Hour)})
			o.Overload.Refresh = true
		}
	})
	w.remember(w.shared, "", `1`, cache.Answer{Status: 200, Body: []byte("stale"), Age: time.Minute})
	w.want(w.submit(w.shared, `0`, key(keyA)), http.StatusAccepted)
	_, another, _ := w.serve()
	for i := range 10 {
		url := []string{w.url, another}[i%2]
		w.want(w.call("POST", url+"/v1/jobs", `{"operation":"`+w.shared+`","payload":1}`, key(keyA)), 200)
	}
	w.eventually("the refresh waits", func() bool { return len(w.waiting()) == 2 })
	w.server.Admission.Wait()
	var refresh leaky.Look
	for _, look := range w.waiting() {
		if look.Job.Priority == "low" {
			refresh = look
		}
	}
	if refresh.Job.Operation != w.shared || refresh.Job.Client != w.clientA() {
		t.Errorf("%+v", refresh.Job)
	}
	if payload, err := w.line.Payload(context.Background(), refresh.Job.ID); err != nil || string(payload) != "1" {
		t.Errorf("payload %q, %v", payload, err)
	}
	// The client doesn't see it.
	if jobs := w.ownJobs("", key(keyA)).Jobs; len(jobs) != 1 {
		t.Errorf("%d jobs are listed", len(jobs))
	}
	// While one is under way no other is begun, by whatever process; when it is over, one may be.
	_, third, _ := w.serve()
	w.want(w.call("POST", third+"/v1/jobs", `{"operation":"`+w.shared+`","payload":1}`, key(keyA)), 200)
	w.succeed(refresh.Job.ID, 200, "text/plain", []byte("new"))
	_, fourth, _ := w.serve()
	w.want(w.call("POST", fourth+"/v1/jobs", `{"operation":"`+w.shared+`","payload":1}`, key(keyA)), 200)
	w.eventually("another refresh waits", func() bool { return w.count() == 3 })
}

// Without being told to, nothing is refreshed; nor on account of a sick backend or a lost store.
func TestARefreshIsOnlyMadeWhereItHelps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.adjust = func(w *world, c *worldConfig) {
			w.health(c)
			c.operation(w.shared).Limits = w.limits("shared", []limits.Limit{perClient("one", 1, time.Hour)})
			c.operation(w.report).Overload.Refresh = true
			c.operation(w.report).Overload.Sick = degrade.Sick{On: true}
			c.operation(w.plain).Limits = w.limits("plain", []limits.Limit{perClient("one", 1, time.Hour)})
			c.operation(w.plain).Overload = degrade.Policy{Steps: []degrade.Step{{Kind: degrade.Stale}, {Kind: degrade.Reject}}, StaleFor: time.Hour, Refresh: true, Share: degrade.ShareAll}
		}
	})
	w.remember(w.plain, "", `1`, cache.Answer{Status: 200, Body: []byte("stale"), Age: time.Minute})
	w.remember(w.shared, "", `1`, cache.Answer{Status: 200, Body: []byte("stale"), Age: time.Minute})
	w.remember(w.report, degrade.Policy{}.Scope(w.clientA(), "pro"), `1`, cache.Answer{Status: 200, Body: []byte("stale"), Age: time.Minute})
	w.want(w.submit(w.shared, `0`, key(keyA)), http.StatusAccepted)
	w.want(w.submit(w.plain, `0`, key(keyA)), http.StatusAccepted)
	w.sicken()
	w.eventually("the closed gate is noticed", func() bool { return w.config.enter.Health.Sick(w.backend, 0) })
	before := w.count()
	w.says(w.want(w.submit(w.plain, `1`, key(keyA)), 200), map[string]string{"Forebay-Decision": `degraded;reason="one"`}) // refused by its limit, and its backend is sick
	w.want(w.submit(w.shared, `1`, key(keyA)), 200)
	w.says(w.want(w.submit(w.report, `1`, key(keyA)), 200), map[string]string{"Forebay-Decision": `degraded;reason="backend_sick"`})
	w.store.down.Store(true)
	w.want(w.submit(w.report, `1`, key(keyA)), 200)
	w.server.Admission.Wait()
	if n := w.count() - before; n != 0 {
		t.Errorf("%d refreshes", n)
	}
}

// offersLine counts the refreshes that are offered.
type offersLine struct {
	wholeLine
	refreshes atomic.Int64
}

func (l *offersLine) Offer(ctx context.Context, o leaky.Offer) (leaky.Place, error) {
	if o.Refresh {
		l.refreshes.Add(1)
	}
	return l.wholeLine.Offer(ctx, o)
}

// A hot stale answer costs Redis one question a second, however often it is served.
func TestAHotStaleAnswerIsAskedForAnewOnceASecond(t *testing.T) {
	t.Parallel()
	line := &offersLine{}
	w := newWorld(t, func(s *setup) {
		s.wrap = func(l wholeLine) wholeLine { line.wholeLine = l; return line }
		s.adjust = func(w *world, c *worldConfig) {
			c.operation(w.shared).Limits = w.limits("shared", []limits.Limit{perClient("one", 1, time.Hour)})
			c.operation(w.shared).Overload.Refresh = true
		}
	})
	w.remember(w.shared, "", `1`, cache.Answer{Status: 200, Body: []byte("stale"), Age: time.Minute})
	w.want(w.submit(w.shared, `0`, key(keyA)), http.StatusAccepted)
	began := time.Now()
	for range 20 {
		w.want(w.submit(w.shared, `1`, key(keyA)), 200)
		w.server.Admission.Wait()
	}
	if n, most := line.refreshes.Load(), 1+int64(time.Since(began)/time.Second); n < 1 || n > most {
		t.Errorf("%d refreshes were offered, want 1 to %d", n, most)
	}
}

// ownJobs is a page of the caller's jobs.
func (w *world) ownJobs(query string, caller [2]string) api.JobList {
	w.Helper()
	var page api.JobList
	if err := json.Unmarshal(w.want(w.get("/v1/jobs"+query, caller), 200).body, &page); err != nil {
		w.Fatal(err)
	}
	return page
}

// Twins with one Idempotency-Key have one share.
func TestTwinsHaveOneShare(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	_, another, _ := w.serve()
	w.want(w.submit(w.shared, `1`, key(keyB)), http.StatusAccepted)
	var all sync.WaitGroup
	ids := make([]string, 16)
	for i := range ids {
		all.Go(func() {
			a, err := w.try("POST", []string{w.url, another}[i%2]+"/v1/jobs", `{"operation":"`+w.shared+`","payload":1}`, key(keyA), idempotent("k"))
			if err != nil || a.StatusCode != http.StatusAccepted {
				t.Errorf("%v, %v", a.Response, err)
				return
			}
			ids[i] = a.Header.Get("Location")
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("shares %v", ids)
		}
	}
	if n := len(w.ownJobs("", key(keyA)).Jobs); n != 1 {
		t.Errorf("%d jobs are listed", n)
	}
}

// Whichever call of the store fails, before it is applied or after, who sends its key again gets one share in one job.
func TestAShareIsGivenOnceWhateverIsLost(t *testing.T) {
	t.Parallel()
	const calls = 3 // of the request, and the first of the list
	for _, applied := range []bool{false, true} {
		for nth := range calls {
			t.Run(fmt.Sprintf("%d applied %v", nth, applied), func(t *testing.T) {
				t.Parallel()
				rdb := redistest.Client(t)
				faults := redistest.NewFaulty(t, rdb)
				w := coalescing(t, func(s *setup) { s.rdb = rdb })
				w.pause()
				w.want(w.submit(w.shared, `1`, key(keyB)), http.StatusAccepted)
				var seen atomic.Int64
				faults.FailNext(func(redis.Cmder) bool { return seen.Add(1) > int64(nth) }, applied)
				var id string
				w.eventually("the share is given", func() bool {
					a := w.submit(w.shared, `1`, key(keyA), idempotent("k"))
					if a.StatusCode != http.StatusAccepted {
						w.problem(a, http.StatusServiceUnavailable, api.CodeStore)
						return false
					}
					id = w.job(a).ID
					return true
				})
				w.eventually("it is listed alone", func() bool {
					a := w.get("/v1/jobs", key(keyA))
					var page api.JobList
					return a.StatusCode == 200 && json.Unmarshal(a.body, &page) == nil && len(page.Jobs) == 1 && page.Jobs[0].ID == id
				})
				if jobs := w.waiting(); len(jobs) != 1 {
					t.Errorf("%d jobs wait", len(jobs))
				}
			})
		}
	}
}

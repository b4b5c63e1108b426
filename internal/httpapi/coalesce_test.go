package httpapi_test

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
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/testforebay"
)

// coalescing is a world in which shared and report coalesce, and pro has a limit of ten.
func coalescing(t *testing.T, adjust func(*setup)) *world {
	t.Helper()
	return newWorld(t, func(s *setup) {
		s.Pro = append(s.Pro, perClient("ten", 10, time.Hour))
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operation(w.Shared).Coalesce, c.Operation(w.Report).Coalesce = true, true
		}
		if adjust != nil {
			adjust(s)
		}
	})
}

// waiting are the jobs in the line.
func (w *world) waiting() []leaky.Look {
	w.Helper()
	page, err := w.Line.List(context.Background(), leaky.ListFilter{Limit: 100})
	if err != nil {
		w.Fatal(err)
	}
	return page.Jobs
}

func TestRequestsForTheSameShareOneJob(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	first := w.Want(w.Submit(w.Shared, `{"a":1,"b":2}`, key(keyA)), http.StatusAccepted)
	w.says(first,
		map[string]string{"Forebay-Decision": "accepted", "Cache-Status": "",
			"X-RateLimit-Remaining": "9"})
	second := w.Want(w.Submit(w.Shared, `{ "b":2, "a":1 }`, key(keyB)), http.StatusAccepted)
	w.says(second,
		map[string]string{"Forebay-Decision": "accepted",
			"Cache-Status": "forebay; fwd=miss; collapsed", "X-RateLimit-Remaining": "9"})
	third := w.Want(w.Submit(w.Shared, `{"a":1,"b":2}`, from("192.0.2.1")), http.StatusAccepted)
	jobs := w.waiting()
	if len(jobs) != 1 {
		t.Fatalf("%d jobs wait", len(jobs))
	}
	ids := map[string][2]string{w.Job(first).ID: key(keyA), w.Job(second).ID: key(keyB),
		w.Job(third).ID: from("192.0.2.1")}
	if len(ids) != 3 {
		t.Fatalf("shares %v", ids)
	}
	for id := range ids {
		for other, caller := range ids {
			if want := map[bool]int{true: 200, false: 404}[id == other]; w.Get("/v1/jobs/"+id,
				caller).StatusCode != want {
				t.Errorf("share %s for the owner of %s: not %d", id, other, want)
			}
		}
	}
	if got := w.Metric(`forebay_admission_decisions_total{decision="accepted",operation="` +
		w.Shared + `",reason="joined"}`); got != "2" {
		t.Errorf("joined: %q", got)
	}
	w.Succeed(jobs[0].Job.ID, 201, "text/plain", []byte("for all"))
	for id, caller := range ids {
		if j := w.Job(w.Want(w.Get("/v1/jobs/"+id, caller), 200)); j.Status != api.Succeeded ||
			j.ID != id {
			t.Errorf("%+v", j)
		}
		if a := w.Want(w.Get("/v1/jobs/"+id+"/result", caller), 201); string(a.Text) != "for all" {
			t.Errorf("result %q", a.Text)
		}
		var shown api.AdminJob
		if strictly(t, "a share", w.Want(w.AdminCall("GET", "jobs/"+id), 200).Text,
			&shown); shown.Answer == nil || shown.Answer.Body != "for all" {
			t.Errorf("an operator sees %+v", shown)
		}
	}
	// A job that has ended can't be joined.
	w.says(w.Want(w.Submit(w.Shared, `{"a":1,"b":2}`, key(keyA)), http.StatusAccepted),
		map[string]string{"Cache-Status": ""})
}

// No job is shared beyond the operation's sharing scope, with a request for a new answer, or
// without coalesce in the config.
func TestWhatIsNotTheSameIsNotShared(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	for _, a := range []answer{
		w.Submit(w.Shared, `1`, key(keyA)),
		w.Submit(w.Shared, `2`, key(keyA)),
		w.Submit(w.Shared, `1`, key(keyB), field("Cache-Control", "no-cache")),
		w.Submit(w.Report, `1`, key(keyA)),
		w.Submit(w.Report, `1`, key(keyB)),
		w.Submit(w.Plain, `1`, key(keyA)),
		w.Submit(w.Plain, `1`, key(keyA)),
	} {
		w.says(w.Want(a, http.StatusAccepted), map[string]string{"Cache-Status": ""})
	}
	if n := len(w.waiting()); n != 7 {
		t.Errorf("%d jobs wait, want 7", n)
	}
	w.says(w.Want(w.Submit(w.Report, `1`, key(keyA)), http.StatusAccepted),
		map[string]string{"Cache-Status": "forebay; fwd=miss; collapsed"})
}

// Each caller cancels its own subscription; the last one cancels the job.
func TestACallerCancelsItsOwnShare(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	callers := [][2]string{key(keyA), key(keyB), from("192.0.2.1")}
	var ids []string
	for _, caller := range callers {
		ids = append(ids, w.Job(w.Want(w.Submit(w.Shared, `1`, caller), http.StatusAccepted)).ID)
	}
	w.Problem(w.Call("DELETE", w.URL+"/v1/jobs/"+ids[0], "", callers[1]), http.StatusNotFound,
		api.CodeUnknownJob)
	for i, caller := range callers {
		if n := len(w.waiting()); n != 1 {
			t.Fatalf("after %d cancels %d jobs wait", i, n)
		}
		if j := w.Job(w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+ids[i], "", caller),
			200)); j.Status != api.Canceled {
			t.Errorf("%+v", j)
		}
		for k, other := range callers {
			want := api.Queued
			if k <= i {
				want = api.Canceled
			}
			if j := w.Job(w.Get("/v1/jobs/"+ids[k], other)); j.Status != want {
				t.Errorf("after %d cancels share %d is %s, want %s", i+1, k, j.Status, want)
			}
		}
	}
	if n := len(w.waiting()); n != 0 {
		t.Errorf("%d jobs wait that nobody wants", n)
	}
}

// An Idempotency-Key names its own subscription.
func TestAShareHasItsOwnKey(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	w.Want(w.Submit(w.Shared, `1`, key(keyB)), http.StatusAccepted)
	id := w.Job(w.Want(w.Submit(w.Shared, `1`, key(keyA), idempotent("k")), http.StatusAccepted)).ID
	again := w.Want(w.Submit(w.Shared, `1`, key(keyA), idempotent("k")), http.StatusAccepted)
	w.says(again, map[string]string{"Idempotent-Replayed": "true", "Cache-Status": ""})
	if got := w.Job(again).ID; got != id {
		t.Errorf("job %s, want %s", got, id)
	}
	w.Problem(w.Submit(w.Shared, `2`, key(keyA), idempotent("k")), http.StatusUnprocessableEntity,
		api.CodeKeyReuse)
}

// Issue 10, point 12: however often a client asks for the same, it has one subscription, and one
// permit of its limits on jobs at one time; each request has its usual cost. Callers without a key
// share an address, and each has a subscription of its own that no other can find.
func TestAClientThatAsksAgainHasItsShareAgain(t *testing.T) {
	t.Parallel()
	w := coalescing(t, func(s *setup) {
		s.Pro = []limits.Limit{perClient("many", 1000, time.Hour),
			{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient, Amount: 100}}
	})
	_, another, _ := w.Serve()
	w.Pause()
	const n = 20
	var all sync.WaitGroup
	var ids, strangers [n]string
	for i := range n {
		all.Go(func() {
			url := []string{w.URL, another}[i%2] + "/v1/jobs"
			for to, caller := range map[*string][2]string{&ids[i]: key(keyA),
				&strangers[i]: from("192.0.2.1")} {
				a, err := w.Try("POST", url, `{"operation":"`+w.Shared+`","payload":1}`, caller)
				if err != nil || a.StatusCode != http.StatusAccepted {
					t.Errorf("%v, %v", a.Response, err)
					return
				}
				*to = w.Job(a).ID
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
	w.Eventually("each request was charged, and one place is taken", func() bool {
		shown := w.rateLimits(key(keyA))
		return shown["many"].Remaining == 1000-n && shown["jobs"].Remaining == 99
	})
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+ids[0], "", key(keyA)), 200)
	if shown := w.rateLimits(key(keyA)); shown["jobs"].Remaining != 100 {
		t.Errorf("after its cancel: %+v", shown["jobs"])
	}
}

// Issue 10, point 11: a request with no-store joins no job, no request joins its own, and its
// answer isn't stored.
func TestARequestWithNoStoreLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	alone := w.Job(w.Want(w.Submit(w.Shared, `1`, key(keyA), field("Cache-Control", "no-store")),
		http.StatusAccepted)).ID
	w.says(w.Want(w.Submit(w.Shared, `1`, key(keyB)), http.StatusAccepted),
		map[string]string{"Cache-Status": ""})
	other := w.Job(w.Want(w.Submit(w.Shared, `1`, key(keyA), field("Cache-Control", "no-store")),
		http.StatusAccepted)).ID
	for _, id := range []string{alone, other} {
		look, err := w.Line.Look(context.Background(), id)
		if err != nil || look.Job.Of != "" || look.Job.Shared || !look.Job.NoStore {
			t.Errorf("%+v, %v", look.Job, err)
		}
	}
	w.Succeed(alone, 200, "text/plain", []byte("mine"))
	if a := w.Want(w.Get("/v1/jobs/"+alone+"/result", key(keyA)), 200); string(a.Text) != "mine" {
		t.Errorf("its own result: %q", a.Text)
	}
}

// A request that joined may wait as for any job.
func TestAShareIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	got := make(chan answer, 2)
	for _, k := range []string{keyA, keyB} {
		go func() {
			a, err := w.Try("POST", w.URL+"/v1/jobs", `{"operation":"`+w.Shared+`","payload":1}`,
				key(k), field("Prefer", "wait=25"))
			if err != nil {
				t.Error(err)
			}
			got <- a
		}()
	}
	var jobs []leaky.Look
	w.Eventually("both wait",
		func() bool {
			jobs = w.waiting()
			return len(jobs) == 1 &&
				w.Server.HeldAnswers(httpapi.HeldWait) == 2
		})
	w.Succeed(jobs[0].Job.ID, 200, "text/plain", []byte("for both"))
	for range 2 {
		if a := w.Want(<-got, 200); string(a.Text) != "for both" {
			t.Errorf("%q", a.Text)
		}
	}
}

// A stale answer that was served is requested anew: once, by a job of its client that spends no
// limit.
func TestAStaleAnswerIsRefreshedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			o := c.Operation(w.Shared)
			o.Limits = w.Limits("shared", []limits.Limit{perClient("one", 1, time.Hour)})
			o.Overload.Refresh = true
		}
	})
	w.Remember(w.Shared, "", `1`,
		cache.Answer{Status: 200, Body: []byte("stale"), Age: time.Minute})
	w.Want(w.Submit(w.Shared, `0`, key(keyA)), http.StatusAccepted)
	_, another, _ := w.Serve()
	for i := range 10 {
		url := []string{w.URL, another}[i%2]
		w.Want(w.Call("POST", url+"/v1/jobs", `{"operation":"`+w.Shared+`","payload":1}`,
			key(keyA)), 200)
	}
	w.Eventually("the refresh waits", func() bool { return len(w.waiting()) == 2 })
	w.Server.Admission.Wait()
	var refresh leaky.Look
	for _, look := range w.waiting() {
		if look.Job.Priority == "low" {
			refresh = look
		}
	}
	if refresh.Job.Operation != w.Shared || refresh.Job.Client != w.ClientA() {
		t.Errorf("%+v", refresh.Job)
	}
	if payload, err := w.Line.Payload(context.Background(), refresh.Job.ID); err != nil ||
		string(payload) != "1" {
		t.Errorf("payload %q, %v", payload, err)
	}
	// The client sees it.
	if jobs := w.ownJobs("", key(keyA)).Jobs; len(jobs) != 2 {
		t.Errorf("%d jobs are listed", len(jobs))
	}
	// While one is under way no other is begun, by whatever process; when it is over, one may be.
	_, third, _ := w.Serve()
	w.Want(w.Call("POST", third+"/v1/jobs", `{"operation":"`+w.Shared+`","payload":1}`, key(keyA)),
		200)
	w.Succeed(refresh.Job.ID, 200, "text/plain", []byte("new"))
	_, fourth, _ := w.Serve()
	w.Want(w.Call("POST", fourth+"/v1/jobs", `{"operation":"`+w.Shared+`","payload":1}`, key(keyA)),
		200)
	w.Eventually("another refresh waits", func() bool { return w.Accepted() == 3 })
}

// Nothing is refreshed without refresh in the config, while the backend is sick, or while the store
// is unavailable.
func TestARefreshIsOnlyMadeWhereItHelps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			health(w, c)
			c.Operation(w.Shared).Limits = w.Limits("shared",
				[]limits.Limit{perClient("one", 1, time.Hour)})
			c.Operation(w.Report).Overload.Refresh = true
			c.Operation(w.Report).Overload.Sick = degrade.Sick{On: true}
			c.Operation(w.Plain).Limits = w.Limits("plain",
				[]limits.Limit{perClient("one", 1, time.Hour)})
			c.Operation(w.Plain).Overload = degrade.Policy{
				Steps:    []degrade.Step{{Kind: degrade.Stale}, {Kind: degrade.Reject}},
				StaleFor: time.Hour, Refresh: true, Share: degrade.ShareAll,
			}
		}
	})
	w.Remember(w.Plain, "", `1`, cache.Answer{Status: 200, Body: []byte("stale"), Age: time.Minute})
	w.Remember(w.Shared, "", `1`,
		cache.Answer{Status: 200, Body: []byte("stale"), Age: time.Minute})
	w.Remember(w.Report, degrade.Policy{}.Scope(w.ClientA(), "pro"), `1`,
		cache.Answer{Status: 200, Body: []byte("stale"), Age: time.Minute})
	w.Want(w.Submit(w.Shared, `0`, key(keyA)), http.StatusAccepted)
	w.Want(w.Submit(w.Plain, `0`, key(keyA)), http.StatusAccepted)
	w.sicken()
	w.Eventually("the closed gate is noticed",
		func() bool { return w.Config.Enter.Health.Sick(w.Backend, 0) })
	before := w.Accepted()
	// refused by its limit, and its backend is sick
	w.says(w.Want(w.Submit(w.Plain, `1`, key(keyA)), 200),
		map[string]string{"Forebay-Decision": `degraded;reason="one"`})
	w.Want(w.Submit(w.Shared, `1`, key(keyA)), 200)
	w.says(w.Want(w.Submit(w.Report, `1`, key(keyA)), 200),
		map[string]string{"Forebay-Decision": `degraded;reason="backend_sick"`})
	w.Store.Down.Store(true)
	w.Want(w.Submit(w.Report, `1`, key(keyA)), 200)
	w.Server.Admission.Wait()
	if n := w.Accepted() - before; n != 0 {
		t.Errorf("%d refreshes", n)
	}
}

// offersLine counts the refreshes that are offered.
type offersLine struct {
	testforebay.Line
	refreshes atomic.Int64
}

func (l *offersLine) Offer(ctx context.Context, o leaky.Offer) (leaky.Place, error) {
	if o.Refresh {
		l.refreshes.Add(1)
	}
	return l.Line.Offer(ctx, o)
}

// A popular stale answer costs Redis one offer in ten seconds, however often it is served.
func TestAPopularStaleAnswerIsRequestedAnewOnceInTenSeconds(t *testing.T) {
	t.Parallel()
	line := &offersLine{}
	w := newWorld(t, func(s *setup) {
		s.Wrap = func(l testforebay.Line) testforebay.Line { line.Line = l; return line }
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operation(w.Shared).Limits = w.Limits("shared",
				[]limits.Limit{perClient("one", 1, time.Hour)})
			c.Operation(w.Shared).Overload.Refresh = true
		}
	})
	w.Remember(w.Shared, "", `1`,
		cache.Answer{Status: 200, Body: []byte("stale"), Age: time.Minute})
	w.Want(w.Submit(w.Shared, `0`, key(keyA)), http.StatusAccepted)
	began := time.Now()
	for range 20 {
		w.Want(w.Submit(w.Shared, `1`, key(keyA)), 200)
		w.Server.Admission.Wait()
	}
	if n, most := line.refreshes.Load(), 1+int64(time.Since(began)/(10*time.Second)); n < 1 ||
		n > most {
		t.Errorf("%d refreshes were offered, want 1 to %d", n, most)
	}
}

// ownJobs is a page of the caller's jobs.
func (w *world) ownJobs(query string, caller [2]string) api.JobList {
	w.Helper()
	var page api.JobList
	if err := json.Unmarshal(w.Want(w.Get("/v1/jobs"+query, caller), 200).Text, &page); err != nil {
		w.Fatal(err)
	}
	return page
}

// Duplicate requests have one subscription.
func TestTwinsHaveOneShare(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	_, another, _ := w.Serve()
	w.Want(w.Submit(w.Shared, `1`, key(keyB)), http.StatusAccepted)
	var all sync.WaitGroup
	ids := make([]string, 16)
	for i := range ids {
		all.Go(func() {
			a, err := w.Try("POST", []string{w.URL, another}[i%2]+"/v1/jobs",
				`{"operation":"`+w.Shared+`","payload":1}`, key(keyA), idempotent("k"))
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

// Whichever call of the store fails, before or after it is applied, a client that sends its key
// again gets one subscription to one job.
func TestAShareIsGivenOnceWhateverIsLost(t *testing.T) {
	t.Parallel()
	const calls = 3 // of the request, and the first of the list
	for _, applied := range []bool{false, true} {
		for nth := range calls {
			t.Run(fmt.Sprintf("%d applied %v", nth, applied), func(t *testing.T) {
				t.Parallel()
				rdb := redistest.Client(t)
				faults := redistest.NewFaulty(t, rdb)
				w := coalescing(t, func(s *setup) { s.Redis = rdb })
				w.Pause()
				w.Want(w.Submit(w.Shared, `1`, key(keyB)), http.StatusAccepted)
				var seen atomic.Int64
				faults.FailNext(func(redis.Cmder) bool { return seen.Add(1) > int64(nth) }, applied)
				var id string
				w.Eventually("the share is given", func() bool {
					a := w.Submit(w.Shared, `1`, key(keyA), idempotent("k"))
					if a.StatusCode != http.StatusAccepted {
						w.Problem(a, http.StatusServiceUnavailable, api.CodeStore)
						return false
					}
					id = w.Job(a).ID
					return true
				})
				w.Eventually("it is listed alone", func() bool {
					a := w.Get("/v1/jobs", key(keyA))
					var page api.JobList
					return a.StatusCode == 200 && json.Unmarshal(a.Text, &page) == nil &&
						len(page.Jobs) == 1 && page.Jobs[0].ID == id
				})
				if jobs := w.waiting(); len(jobs) != 1 {
					t.Errorf("%d jobs wait", len(jobs))
				}
			})
		}
	}
}

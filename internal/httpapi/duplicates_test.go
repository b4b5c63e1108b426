package httpapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
)

// hookedLine offers as a test wants it.
type hookedLine struct {
	Line
	offer func(context.Context, leaky.Offer) (leaky.Place, error)
}

func (l hookedLine) Offer(ctx context.Context, o leaky.Offer) (leaky.Place, error) {
	return l.offer(ctx, o)
}

// fallbackWorld has one permit for report's jobs, which plain's may stand in for, and returns the URL of a second process that offers as the
// test wants it.
func fallbackWorld(t *testing.T, offer func(*world, context.Context, leaky.Offer) (leaky.Place, error)) (w *world, other string) {
	t.Helper()
	w = newWorld(t, func(s *setup) {
		s.report = append(s.report, limits.Limit{Name: "one", Algorithm: limits.Concurrency, Per: limits.PerClient, Amount: 1})
		s.adjust = summarize
	})
	w.pause()
	lines := w.config.Lines
	w.config.Lines = maps.Clone(lines)
	w.config.Lines[w.backend] = hookedLine{w.line, func(ctx context.Context, o leaky.Offer) (leaky.Place, error) { return offer(w, ctx, o) }}
	_, other, _ = w.serve()
	w.config.Lines = lines
	return w, other
}

// keyed asks a process for a job of report with a key.
func (w *world) keyed(url, k string) answer {
	w.Helper()
	return w.call("POST", url+"/v1/jobs", `{"operation":"`+w.report+`","payload":1}`, key(keyA), idempotent(k))
}

// One of two duplicates is refused, and while it is on its way to the fallback operation the other gets its job after all: that is the
// answer to both.
func TestADuplicateOnItsWayToAFallbackMeetsTheKeysJob(t *testing.T) {
	t.Parallel()
	var blocker, own string
	w, slow := fallbackWorld(t, func(w *world, ctx context.Context, o leaky.Offer) (leaky.Place, error) {
		if o.Job.Operation == w.plain {
			w.want(w.call("DELETE", w.url+blocker, "", key(keyA)), http.StatusOK)
			own = w.keyed(w.url, "k").Header.Get("Location")
		}
		return w.line.Offer(ctx, o)
	})
	blocker = w.keyed(w.url, "blocker").Header.Get("Location")
	a := w.want(w.keyed(slow, "k"), http.StatusAccepted)
	w.says(a, map[string]string{"Location": own, "Idempotent-Replayed": "true", "Forebay-Decision": "accepted"})
	if j := w.job(a); j.Operation != w.report || w.count() != 2 {
		t.Errorf("%+v, %d jobs", j, w.count())
	}
	if left := w.rateLimits(key(keyA)); left["one "+w.report].Remaining != 0 || len(left) != 1 {
		t.Errorf("one job holds %+v", left)
	}
}

// An offer that was given up may still arrive: not to make a second job of its key.
func TestALateOfferMakesNoSecondJobOfItsKey(t *testing.T) {
	t.Parallel()
	var late leaky.Offer
	w, slow := fallbackWorld(t, func(_ *world, _ context.Context, o leaky.Offer) (leaky.Place, error) {
		late = o
		return leaky.Place{}, errors.New("no answer in time")
	})
	a := w.want(w.keyed(slow, "k"), http.StatusOK)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="store_unavailable"`})

	blocker := w.keyed(w.url, "blocker").Header.Get("Location")
	fallback := w.job(w.want(w.keyed(w.url, "k"), http.StatusAccepted))
	if fallback.Operation != w.plain {
		t.Fatalf("%+v", fallback)
	}
	w.want(w.call("DELETE", w.url+blocker, "", key(keyA)), http.StatusOK)
	place, err := w.line.Offer(t.Context(), late)
	if err != nil || place.Outcome != leaky.Exists || place.ID != fallback.ID || w.count() != 2 {
		t.Errorf("%+v, %v, %d jobs", place, err, w.count())
	}
	if left := w.rateLimits(key(keyA)); left["one "+w.report].Remaining != 1 {
		t.Errorf("no job of report lives, and the limit says %+v", left)
	}
}

// A crowd with one key, of whom none gets a job, is refused together, and leaves no trace: once there is room the key gets its job.
func TestACrowdWithOneKeyIsRefusedTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.line.Capacity = 1
		s.adjust = summarize
	})
	w.pause()
	w.want(w.submit(w.shared, `"fills the line"`, key(keyB)), http.StatusAccepted)
	decisions := make(chan string, 100)
	for range cap(decisions) {
		go func() {
			a, err := w.try("POST", w.url+"/v1/jobs", `{"operation":"`+w.report+`","payload":1}`, key(keyA), idempotent("k"))
			if err != nil {
				t.Error(err)
			}
			decisions <- a.Header.Get("Forebay-Decision")
		}()
	}
	for range cap(decisions) {
		if said := <-decisions; said != `degraded;reason="line_full"` { // the fixed answer
			t.Errorf("%s", said)
		}
	}
	for _, look := range w.waiting() {
		w.want(w.call("DELETE", w.url+"/v1/jobs/"+look.Job.ID, "", key(keyB)), 200)
	}
	w.says(w.want(w.submit(w.report, `1`, key(keyA), idempotent("k")), http.StatusAccepted), map[string]string{"Forebay-Decision": "accepted"})
}

// Where Redis is full, the job of a key is still found; a new one can't be made.
func TestInAFullRedisAKeysJobIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.rdb = redistest.Start(t).Client(t)
		s.pro = []limits.Limit{perClient("per-hour", 10, time.Hour)}
	})
	first := w.job(w.want(w.submit(w.plain, `1`, key(keyA), idempotent("k")), http.StatusAccepted))
	set := func(bytes string) {
		if err := w.rdb.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("1")
	defer set("0") // for the books
	a := w.want(w.submit(w.plain, `1`, key(keyA), idempotent("k")), http.StatusAccepted)
	if j := w.job(a); j.ID != first.ID || a.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%+v", j)
	}
	w.problem(w.submit(w.plain, `1`, key(keyA), idempotent("new")), http.StatusServiceUnavailable, api.CodeStore)
}

// What is admitted, refused by a limit or refused by the line, with a key or without, is one script call.
func TestAdmissionIsOneScriptCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.rdb = redistest.Start(t).Client(t)
		s.line.Capacity = 3
		s.pro = []limits.Limit{perClient("per-hour", 5, time.Hour), perClient("per-day", 100, 24*time.Hour),
			{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient, Amount: 50}}
	})
	w.pause()
	w.want(w.submit(w.plain, `0`, key(keyB)), http.StatusAccepted) // Redis knows the script now
	calls := func() (n int) {
		for _, m := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(w.rdb.Info(t.Context(), "commandstats").Val(), -1) {
			count, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			n += count
		}
		return n
	}
	for i, want := range []string{"accepted", "accepted", `rejected;reason="line_full"`, `rejected;reason="line_full"`} {
		fields := [][2]string{key(keyA)}
		if i%2 == 1 {
			fields = append(fields, idempotent(fmt.Sprint(i)))
		}
		before := calls()
		a := w.submit(w.plain, `1`, fields...)
		if n := calls() - before; n != 1 {
			t.Errorf("%s took %d script calls", a.Header.Get("Forebay-Decision"), n)
		}
		w.says(a, map[string]string{"Forebay-Decision": want})
	}
	// What the line refused has cost nothing.
	if left := w.rateLimits(key(keyA)); left["per-hour"].Remaining != 3 || left["per-day"].Remaining != 98 || left["jobs"].Remaining != 48 {
		t.Errorf("two jobs were accepted: %+v", left)
	}
}

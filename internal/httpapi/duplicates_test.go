package httpapi_test

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
	"github.com/forebay/forebay/internal/testforebay"
)

// hookedLine offers as a test wants it.
type hookedLine struct {
	testforebay.Line
	offer func(context.Context, leaky.Offer) (leaky.Place, error)
}

func (l hookedLine) Offer(ctx context.Context, o leaky.Offer) (leaky.Place, error) {
	return l.offer(ctx, o)
}

// fallbackWorld has one permit for report's jobs, which plain's may stand in for, and returns the
// URL of a second process that offers as the test wants it.
func fallbackWorld(t *testing.T,
	offer func(*world, context.Context, leaky.Offer) (leaky.Place, error)) (w *world,
	other string) {
	t.Helper()
	w = newWorld(t, func(s *setup) {
		s.Report = append(s.Report,
			limits.Limit{Name: "one", Algorithm: limits.Concurrency, Per: limits.PerClient,
				Amount: 1})
		s.Adjust = summarize
	})
	w.Pause()
	lines := w.Config.Lines
	w.Config.Lines = maps.Clone(lines)
	w.Config.Lines[w.Backend] = hookedLine{w.Line,
		func(ctx context.Context, o leaky.Offer) (leaky.Place, error) { return offer(w, ctx, o) }}
	_, other, _ = w.Serve()
	w.Config.Lines = lines
	return w, other
}

// keyed asks a process for a job of report with a key.
func (w *world) keyed(url, k string) answer {
	w.Helper()
	return w.Call("POST", url+"/v1/jobs", `{"operation":"`+w.Report+`","payload":1}`, key(keyA),
		idempotent(k))
}

// One of two duplicates is refused, and while it is on its way to the fallback operation the other
// gets its job after all: that is the answer to both.
func TestADuplicateOnItsWayToAFallbackMeetsTheKeysJob(t *testing.T) {
	t.Parallel()
	var blocker, own string
	w, slow := fallbackWorld(t,
		func(w *world, ctx context.Context, o leaky.Offer) (leaky.Place, error) {
			if o.Job.Operation == w.Plain {
				w.Want(w.Call("DELETE", w.URL+blocker, "", key(keyA)), http.StatusOK)
				own = w.keyed(w.URL, "k").Header.Get("Location")
			}
			return w.Line.Offer(ctx, o)
		})
	blocker = w.keyed(w.URL, "blocker").Header.Get("Location")
	a := w.Want(w.keyed(slow, "k"), http.StatusAccepted)
	w.says(a, map[string]string{"Location": own, "Idempotent-Replayed": "true",
		"Forebay-Decision": "accepted"})
	if j := w.Job(a); j.Operation != w.Report || w.Accepted() != 2 {
		t.Errorf("%+v, %d jobs", j, w.Accepted())
	}
	if left := w.rateLimits(key(keyA)); left["one "+w.Report].Remaining != 0 || len(left) != 1 {
		t.Errorf("one job holds %+v", left)
	}
}

// An offer that was given up may still arrive: not to make a second job of its key.
func TestALateOfferMakesNoSecondJobOfItsKey(t *testing.T) {
	t.Parallel()
	var late leaky.Offer
	w, slow := fallbackWorld(t,
		func(_ *world, _ context.Context, o leaky.Offer) (leaky.Place, error) {
			late = o
			return leaky.Place{}, errors.New("no answer in time")
		})
	a := w.Want(w.keyed(slow, "k"), http.StatusOK)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="store_unavailable"`})

	blocker := w.keyed(w.URL, "blocker").Header.Get("Location")
	fallback := w.Job(w.Want(w.keyed(w.URL, "k"), http.StatusAccepted))
	if fallback.Operation != w.Plain {
		t.Fatalf("%+v", fallback)
	}
	w.Want(w.Call("DELETE", w.URL+blocker, "", key(keyA)), http.StatusOK)
	place, err := w.Line.Offer(t.Context(), late)
	if err != nil || place.Outcome != leaky.Exists || place.ID != fallback.ID ||
		w.Accepted() != 2 {
		t.Errorf("%+v, %v, %d jobs", place, err, w.Accepted())
	}
	if left := w.rateLimits(key(keyA)); left["one "+w.Report].Remaining != 1 {
		t.Errorf("no job of report lives, and the limit says %+v", left)
	}
}

// If no request of a crowd with one key gets a job, all are refused and leave no trace: once there
// is room, the key gets its job.
func TestACrowdWithOneKeyIsRefusedTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Line.Capacity = 1
		s.Adjust = summarize
	})
	w.Pause()
	w.Want(w.Submit(w.Shared, `"fills the line"`, key(keyB)), http.StatusAccepted)
	decisions := make(chan string, 100)
	for range cap(decisions) {
		go func() {
			a, err := w.Try("POST", w.URL+"/v1/jobs", `{"operation":"`+w.Report+`","payload":1}`,
				key(keyA), idempotent("k"))
			if err != nil {
				t.Error(err)
			}
			decisions <- a.Header.Get("Forebay-Decision")
		}()
	}
	said := map[string]int{}
	for range cap(decisions) {
		said[<-decisions]++
	}
	// The fixed answer; on a busy machine the store may be late for some.
	full, late := said[`degraded;reason="line_full"`], said[`degraded;reason="store_unavailable"`]
	if full == 0 || full+late != cap(decisions) {
		t.Errorf("%v", said)
	}
	for _, look := range w.waiting() {
		w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+look.Job.ID, "", key(keyB)), 200)
	}
	w.says(w.Want(w.Submit(w.Report, `1`, key(keyA), idempotent("k")), http.StatusAccepted),
		map[string]string{"Forebay-Decision": "accepted"})
}

// Where Redis is full, the job of a key is still found; a new one can't be made.
func TestInAFullRedisAKeysJobIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Redis = redistest.Start(t).Client(t)
		s.Pro = []limits.Limit{perClient("per-hour", 10, time.Hour)}
	})
	first := w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA), idempotent("k")), http.StatusAccepted))
	set := func(bytes string) {
		if err := w.Redis.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("1")
	defer set("0") // for the books
	a := w.Want(w.Submit(w.Plain, `1`, key(keyA), idempotent("k")), http.StatusAccepted)
	if j := w.Job(a); j.ID != first.ID || a.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%+v", j)
	}
	w.Problem(w.Submit(w.Plain, `1`, key(keyA), idempotent("new")), http.StatusServiceUnavailable,
		api.CodeStore)
}

// A request that is admitted, refused by a limit or refused by the line, with a key or without, is
// one script call.
func TestAdmissionIsOneScriptCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Redis = redistest.Start(t).Client(t)
		s.Line.Capacity = 3
		s.Pro = []limits.Limit{perClient("per-hour", 5, time.Hour),
			perClient("per-day", 100, 24*time.Hour),
			{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient, Amount: 50}}
	})
	w.Pause()
	w.Want(w.Submit(w.Plain, `0`, key(keyB)), http.StatusAccepted) // Redis knows the script now
	calls := func() (n int) {
		called := regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`)
		stats := w.Redis.Info(t.Context(), "commandstats").Val()
		for _, m := range called.FindAllStringSubmatch(stats, -1) {
			count, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			n += count
		}
		return n
	}
	for i, want := range []string{"accepted", "accepted", `rejected;reason="line_full"`,
		`rejected;reason="line_full"`} {
		fields := [][2]string{key(keyA)}
		if i%2 == 1 {
			fields = append(fields, idempotent(fmt.Sprint(i)))
		}
		before := calls()
		a := w.Submit(w.Plain, `1`, fields...)
		if n := calls() - before; n != 1 {
			t.Errorf("%s took %d script calls", a.Header.Get("Forebay-Decision"), n)
		}
		w.says(a, map[string]string{"Forebay-Decision": want})
	}
	// A request that the line refused has cost nothing.
	if left := w.rateLimits(key(keyA)); left["per-hour"].Remaining != 3 ||
		left["per-day"].Remaining != 98 || left["jobs"].Remaining != 48 {
		t.Errorf("two jobs were accepted: %+v", left)
	}
}

package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/testforebay"
)

// reads gives tier pro one limit on reads.
func reads(l limits.Limit) func(*setup) {
	return func(su *setup) {
		su.Pro = []limits.Limit{{Name: "per-hour", Algorithm: limits.FixedWindow,
			Per: limits.PerClient, Amount: 1000, Window: time.Hour}}
		su.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			pro := c.Enter.Tiers["pro"]
			pro.Reads = w.Limits("reads", []limits.Limit{l})
			c.Enter.Tiers["pro"] = pro
		}
	}
}

func hourly(amount int64) limits.Limit {
	return limits.Limit{Name: "reads", Algorithm: limits.FixedWindow, Per: limits.PerClient,
		Amount: amount, Window: 365 * 24 * time.Hour}
}

// A list is charged for the jobs that it looked at, to limits of its own; other requests aren't
// charged to these.
func TestListsAreChargedForTheJobsTheyLookAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reads(hourly(160)))
	var last string
	for range 12 {
		last = w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)).ID
	}
	left := func(a answer) int64 {
		t.Helper()
		s := w.stated(w.Want(a, 200))["reads"]
		if !strings.HasPrefix(s.policy, "q=160;") ||
			a.Header.Get("X-RateLimit-Remaining") != strconv.FormatInt(s.r, 10) {
			t.Errorf("%v", a.Header)
		}
		return s.r
	}
	for _, c := range []struct {
		query string
		left  int64
	}{{"", 148}, {"?limit=5", 143}, {"?status=failed", 131}, {"?status=failed&limit=1", 119},
		{"?limit=5", 114}} {
		if got := left(w.Get("/v1/jobs"+c.query, key(keyA))); got != c.left {
			t.Errorf("after %q: %d left, want %d", c.query, got, c.left)
		}
	}
	for range 2 {
		for _, path := range []string{"/v1/jobs/" + last, "/v1/rate-limits", "/v1/operations"} {
			w.Want(w.Get(path, key(keyA)), 200)
		}
		w.Want(w.Get("/v1/jobs/"+last+"/result", key(keyA)), http.StatusConflict)
	}
	if got := left(w.Get("/v1/jobs", key(keyA))); got != 102 {
		t.Errorf("%d left after what is no list", got)
	}
	// A list needs room for all that it may look at.
	if got := left(w.Get("/v1/jobs", key(keyA))); got != 90 {
		t.Errorf("%d left", got)
	}
	a := w.Get("/v1/jobs", key(keyA))
	p := w.Problem(a, http.StatusTooManyRequests, api.CodeRateLimit)
	if p.RetryAfter < 1 || a.Header.Get("Retry-After") != strconv.Itoa(p.RetryAfter) ||
		!slices.Equal(p.ViolatedPolicies, []string{"reads"}) ||
		w.stated(a)["reads"].r != 90 ||
		p.Detail != "Limit reads allows lists to look at 160 jobs per 8760h." {
		t.Errorf("%+v\n%v", p, a.Header)
	}
	w.says(a, map[string]string{"Forebay-Decision": "", "Cache-Control": "no-store"})
	// No other client is refused, and no other request of this client.
	w.Want(w.Get("/v1/jobs", key(keyB)), 200)
	if s := w.stated(w.Want(w.Submit(w.Plain, `1`, key(keyA)),
		http.StatusAccepted)); s["per-hour"].r != 987 || len(s) != 1 {
		t.Errorf("a job's limits: %+v", s)
	}
}

// A limit that allows fewer jobs than one list may look at makes shorter pages, and no list
// impossible.
func TestASmallLimitOnReadsMakesShortPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		reads(limits.Limit{Name: "reads", Algorithm: limits.TokenBucket, Per: limits.PerClient,
			Amount: 1000, Window: time.Second, Burst: 3}))
	for range 7 {
		w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	}
	for cursor, seen := "", 0; ; {
		a := w.Get("/v1/jobs"+cursor, key(keyA))
		if a.StatusCode == http.StatusTooManyRequests {
			continue // for 3 ms
		}
		var page api.JobList
		if err := json.Unmarshal(w.Want(a, 200).Text, &page); err != nil {
			t.Fatal(err)
		}
		if seen += len(page.Jobs); len(page.Jobs) > 3 {
			t.Errorf("%d jobs", len(page.Jobs))
		}
		if page.NextCursor == "" {
			if seen != 7 {
				t.Errorf("%d jobs in all", seen)
			}
			return
		}
		cursor = "?cursor=" + page.NextCursor
	}
}

// heldLine has lists wait until they are let go.
type heldLine struct {
	testforebay.Line
	reading atomic.Int64
	most    atomic.Int64
	release chan struct{}
}

func (l *heldLine) hold() (leave func()) {
	n := l.reading.Add(1)
	for most := l.most.Load(); n > most && !l.most.CompareAndSwap(most, n); most = l.most.Load() {
	}
	<-l.release
	return func() { l.reading.Add(-1) }
}

func (l *heldLine) Mine(ctx context.Context, f leaky.MineFilter) (leaky.MinePage, error) {
	defer l.hold()()
	return l.Line.Mine(context.WithoutCancel(ctx), f)
}

// Of one client one list is read at a time. The next waits for it a while, and is refused then.
func TestAClientHasOneListAtATime(t *testing.T) {
	t.Parallel()
	line := &heldLine{release: make(chan struct{})}
	w := newWorld(t, func(su *setup) {
		su.Wrap = func(l testforebay.Line) testforebay.Line { line.Line = l; return line }
		su.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			tier := c.Enter.Tiers["pro"]
			tier.Reads = w.Limits("reads",
				[]limits.Limit{{Name: "jobs-read", Algorithm: limits.TokenBucket,
					Per: limits.PerClient, Amount: 10_000, Window: time.Minute}})
			c.Enter.Tiers["pro"] = tier
		}
	})
	w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	list := func() answer { return w.Get("/v1/jobs", key(keyA)) }
	first := w.later(list)
	w.Eventually("a list is read", func() bool { return line.reading.Load() == 1 })
	a := list()
	if p := w.Problem(a, http.StatusTooManyRequests, api.CodeTooManyLists); p.RetryAfter != 1 ||
		a.Header.Get("Retry-After") != "1" {
		t.Errorf("%+v", p)
	}
	if fields := a.Header.Get("RateLimit"); !strings.HasPrefix(fields, `"jobs-read";`) {
		t.Errorf("the refusal speaks of %s, want the limits on reads", fields)
	}
	second := w.later(list)
	w.Eventually("the second waits", func() bool { return w.Server.ListReaders() == 2 })
	close(line.release)
	w.Want(w.soon(first), 200)
	w.Want(w.soon(second), 200)
	line.release = make(chan struct{})
	if got := line.most.Load(); got != 1 {
		t.Errorf("%d lists were read at once", got)
	}
	other := w.later(func() answer { return w.Get("/v1/jobs", key(keyA)) })
	another := w.later(func() answer { return w.Get("/v1/jobs", key(keyB)) })
	w.Eventually("two clients read", func() bool { return line.reading.Load() == 2 })
	close(line.release)
	w.Want(w.soon(other), 200)
	w.Want(w.soon(another), 200)
	w.Eventually("nobody reads", func() bool { return w.Server.ListReaders() == 0 })
}

// The gravest fault that was found: a client with 10,000 jobs that lists those that failed, of
// which there are none, on 8 connections without pause, took Redis from all other clients, for 110
// to 190 ms a request. Now the other client's 99th percentile stays within twice its own without
// them. Windows with and without them alternate, so that both see the same machine. The fault makes
// it tens of times as much; so a measurement that the machine disturbed is made again, and only
// three in a row count. The test isn't parallel: it measures times.
func TestListsDoNotStarveOthers(t *testing.T) {
	const own = 10_000
	w := newWorld(t, func(su *setup) {
		su.Redis = redistest.Start(t, "--save", "", "--appendonly", "no").Client(t)
		reads(limits.Limit{Name: "reads", Algorithm: limits.TokenBucket, Per: limits.PerClient,
			Amount: 60_000, Window: time.Minute, Burst: own})(su)
		su.Pro, su.Line.Capacity, su.Line.MaxWait = nil, 1_000_000, 1e6*time.Hour
	})
	w.Pause()
	client := w.ClientA()
	var fill sync.WaitGroup
	for range 64 {
		fill.Go(func() {
			for range own / 64 {
				offer := leaky.Offer{Job: jobs.Job{ID: jobs.NewID(w.Backend), Operation: w.Plain,
					Client: client,
					Tier:   "pro", Priority: jobs.Normal, Payload: []byte("1")}, Weight: 1,
					MaxAge: time.Hour, Keep: time.Hour}
				var err error
				for range 10 { // a busy machine lets Redis be late
					if _, err = w.Line.Offer(context.Background(), offer); err == nil {
						break
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	fill.Wait()
	// The load of one request on Redis, for any search: counted in commands, since time depends on
	// the machine.
	for _, query := range []string{"status=failed&limit=1", "status=failed&limit=200",
		"operation=none", "limit=200", ""} {
		w.Want(w.Get("/v1/jobs?"+query, key(keyA)), 200)
		before := w.commands()
		w.Want(w.Get("/v1/jobs?"+query, key(keyA)), 200)
		if n := w.commands() - before; n > 6*leaky.MaxWork {
			t.Errorf("%s: %d commands", query, n)
		}
	}
	most := 2.0
	if raced {
		// the lists' clients are of this process, and take the processors from the other client's
		// requests
		most = 8
	}
	var ratio float64
	for range 3 {
		if ratio = w.starved(); ratio <= most {
			return
		}
	}
	t.Errorf("another client's 99th percentile is %.1f times what it is without lists, "+
		"want %v at most", ratio, most)
}

// starved is how many times as long as alone another client's requests take beside a client that
// lists on 8 connections, at the 99th percentile.
func (w *world) starved() float64 {
	const windows, window = 5, 200 * time.Millisecond
	var took [2][]time.Duration
	for n := range 2 * windows {
		stop, with := make(chan struct{}), n%2
		var lists sync.WaitGroup
		for range 8 * with {
			lists.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					a, err := w.Try("GET", w.URL+"/v1/jobs?status=failed&limit=1", "", key(keyA))
					if err != nil || a.StatusCode != 200 &&
						a.StatusCode != http.StatusTooManyRequests &&
						a.StatusCode != http.StatusServiceUnavailable {
						w.Errorf("%v, %v", a.Response, err)
						return
					}
				}
			})
		}
		for end := time.Now().Add(window); time.Now().Before(end); {
			began := time.Now()
			a, err := w.Try("POST", w.URL+"/v1/jobs", `{"operation":"`+w.Plain+`","payload":1}`,
				key(keyB))
			// On a machine that stands still for a while the store's time runs out: that is long
			// too, with lists or without.
			if err != nil || a.StatusCode != http.StatusAccepted &&
				a.StatusCode != http.StatusServiceUnavailable {
				w.Errorf("%v, %v", a.Response, err)
			}
			took[with] = append(took[with], time.Since(began))
		}
		close(stop)
		lists.Wait()
	}
	var p99 [2]time.Duration
	for i := range took {
		slices.Sort(took[i])
		p99[i] = took[i][len(took[i])*99/100]
	}
	w.Logf("99%% within %v without lists (%d requests), %v beside them (%d)", p99[0], len(took[0]),
		p99[1], len(took[1]))
	return float64(p99[1]) / float64(p99[0])
}

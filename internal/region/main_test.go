package region

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var silent = slog.New(slog.DiscardHandler)

// clock is a test's own time, in µs since 1970.
type clock struct{ now atomic.Int64 }

func (c *clock) time() time.Time { return time.UnixMicro(c.now.Load()) }

func (c *clock) pass(d time.Duration) { c.now.Add(d.Microseconds()) }

// compile makes a rule with a name of its own, so that tests share a Redis.
func compile(t *testing.T, l limits.Limit) *limits.Rule {
	t.Helper()
	l.Name, l.Per = redistest.Name(t, "limit"), limits.PerClient
	r, err := limits.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// perDay is a limit of so many requests a day.
func perDay(amount int64) limits.Limit {
	return limits.Limit{Algorithm: limits.FixedWindow, Amount: amount, Window: 24 * time.Hour}
}

// exact are the algorithms whose Retry-After is exact: all but concurrency, which regions don't
// exchange.
var exact = []limits.Algorithm{limits.FixedWindow, limits.SlidingWindowLog,
	limits.SlidingWindowCounter, limits.TokenBucket, limits.LeakyBucket}

func request(cost int64, rule *limits.Rule) limits.Request {
	alice := limits.Subject{Client: "alice"}
	return limits.Request{Rules: []*limits.Rule{rule}, Subject: alice, Cost: cost}
}

func decide(t *testing.T, l *limits.Limiter, r limits.Request) limits.Verdict {
	t.Helper()
	v, err := l.Decide(context.WithoutCancel(t.Context()), r)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// standing is where a rule stands for the client.
func standing(t *testing.T, l *limits.Limiter, rule *limits.Rule) limits.Standing {
	t.Helper()
	v, err := l.Peek(context.WithoutCancel(t.Context()), request(1, rule))
	if err != nil {
		t.Fatal(err)
	}
	return v.Standings[0]
}

// admitted is how many of n requests of cost 1 get in.
func admitted(t *testing.T, l *limits.Limiter, n int, rule *limits.Rule) (in int) {
	t.Helper()
	for range n {
		if decide(t, l, request(1, rule)).Allowed {
			in++
		}
	}
	return in
}

// regions are three regions, each on a Redis server of its own, and the centre. The test keeps
// their time and decides when they exchange.
type regions struct {
	clock  clock
	centre *redistest.Server
	all    [3]*Exchange
}

// process starts a process of a region.
func (w *regions) process(t *testing.T, c Config) *Exchange {
	t.Helper()
	c.Limiter = limits.NewAt(c.Own, w.clock.time)
	c.Every, c.Log = time.Second, silent
	x := Join(c)
	x.clock = w.clock.time
	x.met.Store(w.clock.time().UnixNano())
	return x
}

// startRegions starts the servers. All count on one clock, which begins at an edge of every window
// that divides a day.
func startRegions(t *testing.T, share float64) *regions {
	t.Helper()
	w := &regions{centre: redistest.Start(t)}
	w.clock.now.Store(time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC).UnixMicro())
	for i, name := range []string{"region-0", "region-1", "region-2"} {
		w.all[i] = w.process(t, Config{Name: name, Process: "process of " + name,
			Own: redistest.Start(t).Client(t), Centre: w.centre.Client(t), Share: share})
	}
	w.turn(t.Context()) // they meet, and begin to receive
	w.turn(t.Context())
	return w
}

// turn lets half an interval end: each region sends and receives.
func (w *regions) turn(ctx context.Context) {
	for _, x := range w.all {
		x.exchange(ctx)
	}
}

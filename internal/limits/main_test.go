package limits

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// clock is a test's own time, in µs since 1970.
type clock struct{ now atomic.Int64 }

// start is an edge of every window that divides a day.
var start = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)

func newClock() *clock {
	c := &clock{}
	c.now.Store(start.UnixMicro())
	return c
}

func (c *clock) pass(d time.Duration) { c.now.Add(d.Microseconds()) }

// patience is how long a test waits, so that it doesn't fail on a busy machine.
const patience = 20 * time.Second

// onRedis returns a Limiter on a Redis that takes the clock's time. TTLs run on Redis's own time,
// so keys outlive any test.
func (c *clock) onRedis(rdb redis.UniversalClient) *Limiter {
	return NewAt(rdb, func() time.Time { return time.UnixMicro(c.now.Load()) })
}

func (c *clock) local() *Limiter { return newLocal(c.now.Load) }

// everywhere runs a test on Lua in Redis, on Lua in the embedded Redis, and on the model in Go.
func everywhere(t *testing.T, test func(t *testing.T, c *clock, l *Limiter)) {
	t.Helper()
	t.Parallel()
	on := func(start func(testing.TB) redis.UniversalClient) func(*testing.T, *clock) *Limiter {
		return func(t *testing.T, c *clock) *Limiter { return c.onRedis(start(t)) }
	}
	for name, limiter := range map[string]func(*testing.T, *clock) *Limiter{
		"redis":     on(redistest.Client),
		"miniredis": on(redistest.Miniredis),
		"model":     func(_ *testing.T, c *clock) *Limiter { return c.local() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			test(t, c, limiter(t, c))
		})
	}
}

// compile makes a rule with a name of its own, so that tests can share a Redis.
func compile(t testing.TB, l Limit) *Rule {
	t.Helper()
	if l.Name == "" {
		l.Name = redistest.Name(t, "limit")
	}
	if l.Per == "" {
		l.Per = PerClient
	}
	r, err := Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func bucketOf(t testing.TB, amount int64, window time.Duration, burst int64) *Rule {
	t.Helper()
	return compile(t, Limit{Algorithm: TokenBucket, Amount: amount, Window: window, Burst: burst})
}

func counterOf(t testing.TB, amount int64, window time.Duration) *Rule {
	t.Helper()
	return compile(t, Limit{Algorithm: SlidingWindowCounter, Amount: amount, Window: window})
}

// exact lists the algorithms with an exact Retry-After. Concurrency's is a prediction.
var exact = []Algorithm{FixedWindow, SlidingWindowLog, SlidingWindowCounter, TokenBucket,
	LeakyBucket}

// each runs a test for a rule of each exact algorithm.
func each(t *testing.T, amount int64, window time.Duration, test func(t *testing.T, r *Rule)) {
	t.Helper()
	for _, a := range exact {
		if a == SlidingWindowLog && amount > MaxLog {
			continue
		}
		r := compile(t, Limit{Algorithm: a, Amount: amount, Window: window})
		t.Run(string(a), func(t *testing.T) { test(t, r) })
	}
}

var alice = Subject{Client: "alice", Address: "192.0.2.1", Operation: "report", Tier: "free",
	Country: "NO"}

func request(cost int64, rules ...*Rule) Request {
	return Request{Rules: rules, Subject: alice, Cost: cost}
}

func decide(t testing.TB, l *Limiter, r Request) Verdict {
	t.Helper()
	v, err := l.Decide(context.WithoutCancel(t.Context()), r)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func peekAt(t testing.TB, l *Limiter, r Request) Verdict {
	t.Helper()
	v, err := l.Peek(context.WithoutCancel(t.Context()), r)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// admitted is how many of n requests of cost 1 get in.
func admitted(t testing.TB, l *Limiter, n int, rules ...*Rule) (in int) {
	t.Helper()
	for range n {
		if decide(t, l, request(1, rules...)).Allowed {
			in++
		}
	}
	return in
}

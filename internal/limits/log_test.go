package limits

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/redistest"
)

func logOf(t testing.TB, amount int64, window time.Duration) *Rule {
	t.Helper()
	return compile(t, Limit{Algorithm: SlidingWindowLog, Amount: amount, Window: window})
}

// A log is exact: it admits a request if and only if every window of its length stays within the
// limit. The test compares it with a plain list.
func TestALogIsItsDefinition(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		c := newClock()
		l := rapid.SampledFrom([]*Limiter{c.onRedis(rdb), c.local()}).Draw(rt, "of")
		limit := rapid.Int64Range(1, 12).Draw(rt, "limit")
		r := logOf(t, limit, time.Second)
		type spent struct {
			at, cost int64
			v        Verdict
		}
		var list []spent
		within := func(from, to int64) (sum int64) { // after from, up to to
			for _, s := range list {
				if s.at > from && s.at <= to {
					sum += s.cost
				}
			}
			return sum
		}
		const window = 1_000_000
		for range 40 {
			pause := rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, 300_000),
				rapid.SampledFrom([]int64{1, window - 1, window})).Draw(rt, "µs")
			c.pass(micros(pause))
			now := c.now.Load()
			if len(list) > 0 && rapid.IntRange(0, 5).Draw(rt, "refund") == 0 {
				i := rapid.IntRange(0, len(list)-1).Draw(rt, "of")
				if err := l.Refund(t.Context(), list[i].v); err != nil {
					rt.Fatal(err)
				}
				list = append(list[:i], list[i+1:]...)
			}
			cost := rapid.Int64Range(1, limit).Draw(rt, "cost")
			want := within(now-window, now)+cost <= limit
			v := decide(t, l, request(cost, r))
			if v.Allowed != want {
				rt.Fatalf("cost %d on top of %d of %d: allowed %v",
					cost, within(now-window, now), limit, v.Allowed)
			}
			if v.Allowed {
				list = append(list, spent{now, cost, v})
			}
			if left := limit - within(now-window, now); v.Standings[0].Remaining != left {
				rt.Fatalf("%d remain, not %d", v.Standings[0].Remaining, left)
			}
		}
		for _, s := range list { // the promise itself
			if sum := within(s.at-window, s.at); sum > limit {
				rt.Fatalf("%d within one window of %d", sum, limit)
			}
		}
	})
}

// A log's memory is bounded: after any costs, refunds, debits and steps back, it has no more
// entries than the limit.
func TestALogHasNoMoreEntriesThanItsLimit(t *testing.T) {
	t.Parallel()
	server, embedded := redistest.Client(t), redistest.Miniredis(t)
	rapid.Check(t, func(rt *rapid.T) {
		rdb := server
		if rapid.IntRange(0, 4).Draw(rt, "embedded") == 4 {
			rdb = embedded
		}
		c := newClock()
		lua, model := c.onRedis(rdb), newMemory(c.now.Load)
		local := &Limiter{ask: func(_ context.Context, q *question) (answer, error) {
			return model.answer(q, make([]fill, len(q.rules))), nil
		}}
		limit := rapid.Int64Range(1, 8).Draw(rt, "limit")
		r := logOf(t, limit, time.Minute)
		var allowed []Verdict
		for range 40 {
			pause := rapid.Int64Range(-20_000, 30_000).Draw(rt, "ms")
			c.pass(time.Duration(pause) * time.Millisecond)
			cost := rapid.Int64Range(1, limit).Draw(rt, "cost")
			switch rapid.IntRange(0, 5).Draw(rt, "do") {
			case 0:
				debit(t, lua, c, r, cost)
				debit(t, local, c, r, cost)
			case 1:
				for range min(2, len(allowed)) {
					if err := lua.Refund(t.Context(), allowed[0]); err != nil {
						rt.Fatal(err)
					}
					allowed = allowed[1:]
				}
			default:
				decide(t, local, request(1, r))
				if v := decide(t, lua, request(1, r)); v.Allowed {
					allowed = append(allowed, v)
				}
			}
			if n := rdb.LLen(t.Context(), keyOf(t, r)).Val() - 1; n > limit { // the head is none
				rt.Fatalf("%d entries of a limit of %d: %q",
					n, limit, rdb.LRange(t.Context(), keyOf(t, r), 0, -1).Val())
			}
			if k := model.kept[keyOf(t, r)]; k != nil &&
				(k.state.log.len() > int(limit) || cap(k.state.log.list) > 8*int(limit)) {
				rt.Fatalf("the model has %d entries, room for %d, of a limit of %d",
					k.state.log.len(), cap(k.state.log.list), limit)
			}
		}
	})
}

// Entries that have left a log are removed from Redis with the next request, or with the key.
func TestALogForgetsWhatHasLeft(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	c := newClock()
	l := c.onRedis(rdb)
	r := logOf(t, 100, time.Minute)
	for range 100 {
		decide(t, l, request(1, r))
		c.pass(100 * time.Millisecond)
	}
	if n := rdb.LLen(t.Context(), keyOf(t, r)).Val(); n != 101 {
		t.Errorf("%d values for 100 entries and a head", n)
	}
	c.pass(55 * time.Second)
	v := decide(t, l, request(1, r))
	if n := rdb.LLen(t.Context(), keyOf(t, r)).Val(); n != 51 || v.Standings[0].Remaining != 50 {
		t.Errorf("%d values, %d remain", n, v.Standings[0].Remaining)
	}
	c.pass(time.Minute)
	v = decide(t, l, request(1, r))
	if err := l.Refund(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if n := rdb.Exists(t.Context(), keyOf(t, r)).Val(); n != 0 {
		t.Error("an empty log keeps its key")
	}
}

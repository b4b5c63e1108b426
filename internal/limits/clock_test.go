package limits

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/redistest"
)

// C08: after the clock stepped back an hour, a bucket refills at once, and the counts of all other
// algorithms end within a window.
func TestAClockThatStepsBackLocksNobodyOut(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		buckets(t, 5, time.Second, 0, func(t *testing.T, r *Rule) {
			admitted(t, l, 5, r)
			c.pass(-time.Hour)
			if v := decide(t, l, request(1, r)); v.Allowed || v.RetryAfter > 200*time.Millisecond {
				t.Errorf("an empty bucket says %v, %v", v.Allowed, v.RetryAfter)
			}
			for range 10 {
				c.pass(time.Second)
				if v := decide(t, l, request(1, r)); !v.Allowed {
					t.Fatalf("one request a second is refused for %v", v.RetryAfter)
				}
			}
		})
		for _, window := range []time.Duration{time.Minute, time.Hour, 2 * time.Hour} {
			for _, begin := range []time.Duration{0, window / 3, window - time.Microsecond} {
				each(t, 60, window, func(t *testing.T, r *Rule) {
					c.now.Store(start.Add(48*time.Hour + begin).UnixMicro())
					admitted(t, l, 30, r)
					c.pass(window / 100) // a log has more than one entry
					admitted(t, l, 30, r)
					c.pass(-time.Hour)
					back := c.now.Load()
					v := decide(t, l, request(1, r))
					if v.RetryAfter > window {
						t.Errorf("%v into a window of %v: refused for %v",
							begin, window, v.RetryAfter)
					}
					c.pass(v.RetryAfter)
					if v := decide(t, l, request(1, r)); !v.Allowed {
						t.Errorf("%v into a window of %v: refused again for %v",
							begin, window, v.RetryAfter)
					}
					c.now.Store(back + 3*window.Microseconds()) // whatever the charges since
					if v := peekAt(t, l, request(60, r)); !v.Allowed {
						t.Errorf("%v into a window of %v: three later it is not whole again: %+v",
							begin, window, v)
					}
				})
			}
		}
		// After a step back over a month's edge, the earlier month counts what was used in the
		// later.
		r := compile(t, Limit{Algorithm: FixedWindow, Amount: 2, Window: Month})
		c.now.Store(time.Date(2026, 12, 1, 0, 30, 0, 0, time.UTC).UnixMicro())
		admitted(t, l, 2, r)
		c.pass(-time.Hour)
		if v := decide(t, l, request(1, r)); v.RetryAfter != 30*time.Minute {
			t.Errorf("half an hour before the month's end: refused for %v", v.RetryAfter)
		}
	})
}

// A day is the UTC day, a month the UTC month: quotas begin anew at their edges, to the
// microsecond.
func TestCalendarWindowsBeginAtTheirEdges(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		for _, w := range []struct {
			window time.Duration
			from   time.Time
			days   int
		}{
			{24 * time.Hour, time.Date(2028, 2, 28, 0, 0, 0, 0, time.UTC), 1},
			{24 * time.Hour, time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC), 1},
			{24 * time.Hour, time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC), 1},
			{Month, time.Date(2028, 2, 1, 0, 0, 0, 0, time.UTC), 29},
			{Month, time.Date(2000, 2, 1, 0, 0, 0, 0, time.UTC), 29},
			{Month, time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), 28},
			{Month, time.Date(2100, 2, 1, 0, 0, 0, 0, time.UTC), 28}, // no leap year
			{Month, time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), 30},
			{Month, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), 31},
			{Month, time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), 31},
		} {
			t.Run(fmt.Sprint(w.from.Format(time.DateOnly), " ", w.days), func(t *testing.T) {
				r := compile(t, Limit{Algorithm: FixedWindow, Amount: 5, Window: w.window})
				whole := time.Duration(w.days) * 24 * time.Hour
				c.now.Store(w.from.UnixMicro())
				if v := decide(t, l, request(3, r)); v.Standings[0].Reset != whole ||
					v.Standings[0].Remaining != 2 {
					t.Errorf("at its begin: %+v", v.Standings[0])
				}
				c.pass(whole - time.Microsecond)
				if v := decide(t, l, request(3, r)); v.Allowed || v.RetryAfter != time.Microsecond {
					t.Errorf("at its end: %+v", v)
				}
				if in := admitted(t, l, 3, r); in != 2 {
					t.Errorf("%d more admitted at its end, not 2", in)
				}
				c.pass(time.Microsecond)
				if v := decide(t, l, request(5, r)); !v.Allowed {
					t.Errorf("in the next: %+v", v)
				}
			})
		}
	})
}

// Lua's calendar is Go's at both sides of each month's edge from 1970 to 2100.
func TestLuaKnowsEveryMonth(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]struct {
		rdb   redis.UniversalClient
		every int // months
	}{
		"redis": {redistest.Client(t), 1},
		// It is slow, and has the same script. Steps of 11 reach every month in turn.
		"miniredis": {redistest.Miniredis(t), 11},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			l := c.onRedis(store.rdb)
			r := compile(t, Limit{Algorithm: FixedWindow, Amount: 5, Window: Month})
			key := keyOf(t, r)
			used := map[int]int64{}
			for m := 1; m <= 12*131; m += store.every {
				edge := time.Date(1970, time.Month(1+m), 1, 0, 0, 0, 0, time.UTC)
				for _, off := range []time.Duration{-time.Microsecond, 0, time.Microsecond} {
					at := edge.Add(off)
					c.now.Store(at.UnixMicro())
					months := int(at.Month()) - 1 + 12*at.Year()
					used[months]++
					v := decide(t, l, request(1, r))
					if n := v.Standings[0].Remaining; n != 5-used[months] {
						t.Fatalf("%v: %d remain of 5 after %d", at, n, used[months])
					}
					kept := store.rdb.Get(t.Context(), key).Val()
					if want := strconv.Itoa(months) + " "; !strings.HasPrefix(kept, want) {
						t.Fatalf("%v: Redis keeps %q, not month %s", at, kept, want)
					}
					ends := time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC).Sub(at)
					if used[months] > 1 {
						continue // the TTL stays
					}
					over := store.rdb.PTTL(t.Context(), key).Val() - time.Hour - ends
					if over > time.Millisecond || over < -time.Minute {
						t.Fatalf("%v: its key outlives the month by %v", at, over)
					}
				}
			}
		})
	}
}

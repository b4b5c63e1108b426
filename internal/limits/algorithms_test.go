package limits

import (
	"math/rand/v2"
	"testing"
	"time"
)

// buckets runs a test for a token bucket and a leaky bucket.
func buckets(t *testing.T, amount int64, window time.Duration, burst int64,
	test func(t *testing.T, r *Rule)) {
	t.Helper()
	for _, a := range []Algorithm{TokenBucket, LeakyBucket} {
		r := compile(t, Limit{Algorithm: a, Amount: amount, Window: window, Burst: burst})
		t.Run(string(a), func(t *testing.T) { test(t, r) })
	}
}

// C01: asking while refused costs nothing; the way to the first admission only gets shorter.
func TestRefusedRequestsDoNotCount(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		for _, begin := range []time.Duration{0, 7300 * time.Millisecond} { // of the window
			each(t, 5, 10*time.Second, func(t *testing.T, r *Rule) {
				c.now.Store(start.Add(begin).UnixMicro())
				if n := admitted(t, l, 5, r); n != 5 {
					t.Fatalf("%d of 5 admitted", n)
				}
				free := start.Add(map[Algorithm]time.Duration{
					FixedWindow:      10 * time.Second,
					SlidingWindowLog: begin + 10*time.Second,
					// The estimate, 5 at the next edge, falls to 4 a fifth of a window later.
					SlidingWindowCounter: 12 * time.Second,
					TokenBucket:          begin + 2*time.Second,
					LeakyBucket:          begin + 2*time.Second,
				}[r.limit.Algorithm]).UnixMicro()
				for {
					v := decide(t, l, request(1, r))
					if v.Allowed {
						break
					}
					if at := c.now.Load() + v.RetryAfter.Microseconds(); at != free {
						t.Fatalf("the next admission is announced for %d, and was for %d", at, free)
					}
					c.pass(500 * time.Millisecond)
				}
				if late := c.now.Load() - free; late < 0 || late >= 500_000 {
					t.Fatalf("admitted %d µs after the announced moment", late)
				}
			})
		}
	})
}

// C03: in a fixed window, twice the limit can pass in a burst on both sides of an edge, as
// docs/limits.md says. No other algorithm allows that. All announce the right next time.
func TestOnlyAFixedWindowHasAnEdge(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		each(t, 10, time.Minute, func(t *testing.T, r *Rule) {
			c.now.Store(start.Add(time.Minute - 500*time.Millisecond).UnixMicro())
			before := admitted(t, l, 10, r)
			c.pass(500*time.Millisecond + 1*time.Microsecond)
			after := admitted(t, l, 10, r)
			want := map[Algorithm]struct {
				after int
				next  time.Duration // since the edge
			}{
				FixedWindow:          {10, time.Minute},
				SlidingWindowLog:     {0, 59*time.Second + 500*time.Millisecond},
				SlidingWindowCounter: {0, 6 * time.Second},
				TokenBucket:          {0, 5*time.Second + 500*time.Millisecond},
				LeakyBucket:          {0, 5*time.Second + 500*time.Millisecond},
			}[r.limit.Algorithm]
			if before != 10 || after != want.after {
				t.Errorf("%d admitted before the edge, %d after it", before, after)
			}
			v := decide(t, l, request(1, r))
			if v.RetryAfter != want.next-time.Microsecond {
				t.Errorf("after the edge: refused for %v", v.RetryAfter)
			}
			c.pass(v.RetryAfter)
			if !decide(t, l, request(1, r)).Allowed {
				t.Errorf("refused after waiting %v", v.RetryAfter)
			}
		})
	})
}

// C04: requests don't stop a bucket's leak: 10 per 30 s, with one request a second, admits 14 in a
// row and then one in three.
func TestABucketLeaksUnderLoad(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		buckets(t, 10, 30*time.Second, 0, func(t *testing.T, r *Rule) {
			var in []int
			for second := range 30 {
				if decide(t, l, request(1, r)).Allowed {
					in = append(in, second)
				}
				c.pass(time.Second)
			}
			if len(in) != 19 || in[13] != 13 || in[14] != 15 || in[18] != 27 {
				t.Errorf("admitted at the seconds %d", in)
			}
		})
	})
}

// C06, C07: idle time is saved up to the burst and no further.
func TestIdleTimeIsNotBankedBeyondTheBurst(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		buckets(t, 10, 5*time.Second, 0, func(t *testing.T, r *Rule) {
			admitted(t, l, 1, r)
			c.pass(15 * time.Second)
			if v := decide(t, l, request(1, r)); v.Standings[0].Remaining != 9 {
				t.Errorf("%d remain of 10 after one", v.Standings[0].Remaining)
			}
			c.pass(15 * time.Second)
			in := 0
			for range 15 {
				in += admitted(t, l, 1, r)
				c.pass(20 * time.Millisecond)
			}
			if in != 10 {
				t.Errorf("%d of 15 quick requests admitted, not 10", in)
			}
		})
		buckets(t, 10, time.Second, 5, func(t *testing.T, r *Rule) {
			admitted(t, l, 5, r)
			c.pass(time.Minute)
			if in := admitted(t, l, 100, r); in != 5 {
				t.Errorf("%d of 100 admitted by a bucket of 5", in)
			}
		})
	})
}

// C13: a cost that takes more than a second to save up is admitted when it is.
func TestASlowBucketReachesItsCost(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		buckets(t, 1, 2*time.Second, 3, func(t *testing.T, r *Rule) {
			if v := decide(t, l, request(2, r)); !v.Allowed || v.Standings[0].Remaining != 1 {
				t.Fatalf("%+v, want 1 left", v)
			}
			v := decide(t, l, request(2, r))
			if v.Allowed || v.RetryAfter != 2*time.Second || v.Reason != r.limit.Name {
				t.Fatalf("%+v, want a refusal for 2 s", v)
			}
			c.pass(v.RetryAfter)
			if !decide(t, l, request(2, r)).Allowed {
				t.Fatal("refused after its Retry-After")
			}
		})
	})
}

// C15: a cost over the burst is never announced to fit, though some remains.
func TestACostOverTheBurstNeverFits(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		buckets(t, 60, time.Minute, 1, func(t *testing.T, r *Rule) {
			v := decide(t, l, request(2, r))
			if s := v.Standings[0]; v.Allowed || !v.Never || v.RetryAfter != 0 || !s.Never ||
				s.Remaining != 1 || v.Reason != r.limit.Name {
				t.Errorf("cost 2 of a burst of 1: %+v", v)
			}
			if !decide(t, l, request(1, r)).Allowed {
				t.Error("it was charged")
			}
		})
	})
}

// C19: 20,000 a second lose nothing to rounding.
func TestFastLimitsKeepTheirRate(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		buckets(t, 20_000, time.Second, 100, func(t *testing.T, r *Rule) {
			var taken int64
			begun := c.now.Load()
			for range 400 { // over 2 s, at uneven moments, whatever is there
				if v := peekAt(t, l, request(1, r)); v.Allowed {
					taken += decide(t, l, request(v.Standings[0].Remaining, r)).taken()
				}
				c.pass(time.Duration(4_000+rand.IntN(2)*2000-1000) * time.Microsecond)
			}
			passed := c.now.Load() - begun
			if most := 100 + passed*20_000/1_000_000; taken > most || taken < most-101 {
				t.Errorf("%d taken in %d µs, of %d", taken, passed, most)
			}
		})
		// At the limit's own pace, 200 each 10 ms, a counter refuses some once per window: those
		// that wait for the first request of the window before to leave. The others refuse none.
		for a, least := range map[Algorithm]int64{
			FixedWindow: 200_000, SlidingWindowCounter: 198_000,
		} {
			c.now.Store(start.UnixMicro())
			r := compile(t, Limit{Algorithm: a, Amount: 20_000, Window: time.Second})
			var taken int64
			for range 1000 { // 10 s
				if v := peekAt(t, l, request(1, r)); v.Allowed {
					taken += decide(t, l, request(min(200, v.Standings[0].Remaining), r)).taken()
				}
				c.pass(10 * time.Millisecond)
			}
			if taken < least || taken > 200_000 {
				t.Errorf("%s: %d taken in 10 s of 200000", a, taken)
			}
		}
		c.now.Store(start.UnixMicro())
		// 20,000 a second, too.
		r := compile(t, Limit{Algorithm: SlidingWindowLog, Amount: MaxLog, Window: time.Second / 2})
		var taken int64
		for range 500 {
			taken += decide(t, l, request(200, r)).taken()
			c.pass(10 * time.Millisecond)
		}
		if taken != 100_000 {
			t.Errorf("a log: %d taken in 5 s of 100000", taken)
		}
	})
}

// C19: one per month, or per 10 s, is exactly that: the wait after the last one is right to the
// microsecond.
func TestSlowLimitsKeepTheirRate(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		const month = 30 * 24 * time.Hour
		for _, slow := range []struct {
			amount int64
			window time.Duration
		}{{1, 10 * time.Second}, {6, time.Minute}, {1, month}} {
			each(t, slow.amount, slow.window, func(t *testing.T, r *Rule) {
				w := slow.window
				begin := start.UnixMicro() / w.Microseconds() * w.Microseconds()
				c.now.Store(begin + (w + w/4).Microseconds())
				if v := decide(t, l, request(slow.amount, r)); !v.Allowed {
					t.Fatal("refused at once")
				}
				each := w / time.Duration(slow.amount)
				wait := map[Algorithm]time.Duration{
					FixedWindow:          w - w/4,
					SlidingWindowLog:     w,
					SlidingWindowCounter: w - w/4 + each, // the window before must leave as far
					TokenBucket:          each,
					LeakyBucket:          each,
				}[r.limit.Algorithm]
				if v := decide(t, l, request(1, r)); v.RetryAfter != wait {
					t.Errorf("refused for %v, not %v", v.RetryAfter, wait)
				}
			})
		}
		r := compile(t, Limit{Algorithm: FixedWindow, Amount: 1, Window: Month})
		c.now.Store(start.UnixMicro()) // the last day of November
		admitted(t, l, 1, r)
		if v := decide(t, l, request(1, r)); v.RetryAfter != 24*time.Hour {
			t.Errorf("1 a month: refused for %v", v.RetryAfter)
		}
	})
}

// taken is what the verdict charged.
func (v Verdict) taken() int64 {
	if v.charge == nil {
		return 0
	}
	return v.charge.questions[0].cost
}

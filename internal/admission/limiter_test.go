package admission

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forebay/internal/redistest"
)

// C01: asking while refused costs nothing; the way to the first admission only gets shorter.
func TestRefusedRequestsDoNotCount(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		for _, begin := range []time.Duration{0, 7300 * time.Millisecond} { // of the window
			c.now.Store(start.Add(begin).UnixMicro())
			r := counterOf(t, 5, 10*time.Second)
			if n := admitted(t, l, 5, r); n != 5 {
				t.Fatalf("%d of 5 admitted", n)
			}
			// The estimate, 5 at the next edge, falls to 4 a fifth of a window later.
			free := start.Add(12 * time.Second).UnixMicro()
			for {
				v := decide(t, l, request(1, r))
				if v.Allowed {
					break
				}
				if at := c.now.Load() + v.RetryAfter.Microseconds(); at != free {
					t.Fatalf("told to come at %d, before it was %d", at, free)
				}
				c.pass(500 * time.Millisecond)
			}
			if late := c.now.Load() - free; late < 0 || late >= 500_000 {
				t.Fatalf("admitted %d µs after the announced moment", late)
			}
		}
	})
}

// C03: a burst on either side of an edge does not pass as twice the limit.
func TestAnEdgeIsNoLoophole(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		each(t, 10, time.Minute, func(t *testing.T, r *Rule) {
			c.now.Store(start.Add(time.Minute - 500*time.Millisecond).UnixMicro())
			before := admitted(t, l, 10, r)
			c.pass(500*time.Millisecond + 1*time.Microsecond)
			after := admitted(t, l, 10, r)
			if before != 10 || after > 1 || r.limit.Algorithm == TokenBucket && after != 0 {
				t.Errorf("%d admitted before the edge, %d after it", before, after)
			}
			v := decide(t, l, request(1, r))
			if s := v.Standings[0].Rule.Limit(); s.Algorithm != r.limit.Algorithm {
				t.Errorf("the verdict names %v", s.Algorithm)
			}
			c.pass(v.RetryAfter)
			if !decide(t, l, request(1, r)).Allowed {
				t.Errorf("refused after waiting %v", v.RetryAfter)
			}
		})
	})
}

// C06, C07: idle time is saved up to the burst and no further.
func TestIdleTimeIsNotBankedBeyondTheBurst(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		r := bucketOf(t, 10, 5*time.Second, 0)
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

		r = bucketOf(t, 10, time.Second, 5)
		admitted(t, l, 5, r)
		c.pass(time.Minute)
		if in := admitted(t, l, 100, r); in != 5 {
			t.Errorf("%d of 100 admitted by a bucket of 5", in)
		}
	})
}

// C08: after the clock stepped back an hour, a bucket refills at once and a counter forgets within its window.
func TestAClockThatStepsBackLocksNobodyOut(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		r := bucketOf(t, 5, time.Second, 0)
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

		for _, window := range []time.Duration{time.Minute, time.Hour, 2 * time.Hour} {
			for _, begin := range []time.Duration{0, window / 3, window - time.Microsecond} {
				c.now.Store(start.Add(48*time.Hour + begin).UnixMicro())
				r := counterOf(t, 60, window)
				admitted(t, l, 60, r)
				c.pass(-time.Hour)
				v := decide(t, l, request(1, r))
				if v.RetryAfter > window {
					t.Errorf("%v into a window of %v: refused for %v", begin, window, v.RetryAfter)
				}
				c.pass(v.RetryAfter)
				if v := decide(t, l, request(1, r)); !v.Allowed {
					t.Errorf("%v into a window of %v: refused again for %v", begin, window, v.RetryAfter)
				}
			}
		}
	})
}

// C13: a cost that takes more than a second to save up is admitted when it is.
func TestASlowBucketReachesItsCost(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		r := bucketOf(t, 1, 2*time.Second, 3)
		if v := decide(t, l, request(2, r)); !v.Allowed || v.Standings[0].Remaining != 1 {
			t.Fatalf("%+v, want 1 left", v)
		}
		v := decide(t, l, request(2, r))
		if v.Allowed || v.RetryAfter != 2*time.Second || v.Reason != r.limit.Name {
			t.Fatalf("%+v, want a refusal for 2 s", v)
		}
		c.pass(v.RetryAfter)
		if !decide(t, l, request(2, r)).Allowed {
			t.Fatal("refused after waiting as told")
		}
	})
}

// C14, C15: what can never fit is told so, beats every wait, and spends nothing anywhere.
func TestACostOverTheCapacityNeverFits(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		each(t, 5, time.Hour, func(t *testing.T, small *Rule) {
			large := bucketOf(t, 100, time.Hour, 0)
			slow := bucketOf(t, 10, MaxWindow, 0)
			admitted(t, l, 10, slow)
			for _, ask := range []func(testing.TB, *Limiter, Request) Verdict{decide, peekAt} {
				for _, cost := range []int64{6, MaxAmount} {
					v := ask(t, l, request(cost, slow, large, small))
					if v.Allowed || !v.Never || v.RetryAfter != 0 || !v.Standings[2].Never || !v.Standings[2].Violated {
						t.Fatalf("cost %d: %+v", cost, v)
					}
					if cost == 6 && v.Reason != small.limit.Name {
						t.Errorf("cost 6 is refused by %s", v.Reason)
					}
				}
			}
			if v := decide(t, l, request(5, small)); !v.Allowed {
				t.Error("its full capacity is no longer there")
			}
			if v := peekAt(t, l, request(1, large)); v.Standings[0].Remaining != 100 {
				t.Errorf("another limit has %d left of 100", v.Standings[0].Remaining)
			}
		})
	})
}

// C18: a cost that would give back, or overflow, is an error and moves nothing.
func TestBadCostsAreErrors(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		each(t, 5, time.Hour, func(t *testing.T, r *Rule) {
			admitted(t, l, 2, r)
			for _, cost := range []int64{0, -5, MaxAmount + 1, 1e18, -1 << 63} {
				for _, ask := range []func(context.Context, Request) (Verdict, error){l.Decide, l.Peek} {
					if v, err := ask(t.Context(), request(cost, r)); !errors.Is(err, ErrCost) || v.Allowed {
						t.Errorf("cost %d: %+v, %v", cost, v, err)
					}
				}
			}
			if v := peekAt(t, l, request(1, r)); v.Standings[0].Remaining != 3 {
				t.Errorf("%d remain, not 3", v.Standings[0].Remaining)
			}
		})
	})
}

// Requests that no limit can count are errors too.
func TestARequestMustSayWhomItCountsFor(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		for per, missing := range map[Per]Subject{
			PerClient:          {Address: "a", Operation: "o"},
			PerIP:              {Client: "c", Operation: "o"},
			PerOperation:       {Client: "c", Address: "a"},
			PerClientOperation: {Client: "c", Address: "a"},
		} {
			r := compile(t, Limit{Algorithm: TokenBucket, Per: per, Amount: 1, Window: time.Second})
			if _, err := l.Decide(t.Context(), Request{Rules: []*Rule{r}, Subject: missing, Cost: 1}); !errors.Is(err, errNoSubject) {
				t.Errorf("per %s of %+v: %v", per, missing, err)
			}
		}
		r := bucketOf(t, 1, time.Second, 0)
		if _, err := l.Decide(t.Context(), request(1, r, r)); !errors.Is(err, ErrRules) {
			t.Errorf("a rule twice: %v", err)
		}
		if _, err := l.Decide(t.Context(), request(1, make([]*Rule, MaxRules+1)...)); !errors.Is(err, ErrRules) {
			t.Errorf("too many rules: %v", err)
		}
		if v, err := l.Decide(t.Context(), request(1)); err != nil || !v.Allowed {
			t.Errorf("no rules: %+v, %v", v, err)
		}
	})
}

// C19, and 20,000 a second: neither slow nor fast limits lose anything to rounding.
func TestSlowAndFastLimitsKeepTheirRate(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		r := bucketOf(t, 20_000, time.Second, 100)
		var taken int64
		for range 400 { // over 2 s, at uneven moments, whatever is there
			if v := peekAt(t, l, request(1, r)); v.Allowed {
				taken += decide(t, l, request(v.Standings[0].Remaining, r)).taken()
			}
			c.pass(time.Duration(4_000+rand.IntN(2)*2000-1000) * time.Microsecond)
		}
		passed := c.now.Load() - start.UnixMicro()
		if most := 100 + passed*20_000/1_000_000; taken > most || taken < most-101 {
			t.Errorf("%d taken in %d µs, of %d", taken, passed, most)
		}

		c.now.Store(start.UnixMicro())
		r = counterOf(t, 20_000, time.Second)
		taken = 0
		for range 1000 { // 10 s
			if v := peekAt(t, l, request(1, r)); v.Allowed {
				taken += decide(t, l, request(min(200, v.Standings[0].Remaining), r)).taken()
			}
			c.pass(10 * time.Millisecond)
		}
		// Each window it waits one step for the first of the window before to leave.
		if taken < 198_000 || taken > 200_000 {
			t.Errorf("%d taken in 10 s, at the limit's own pace, of 200000", taken)
		}

		const month = 30 * 24 * time.Hour
		for _, slow := range []struct {
			amount int64
			window time.Duration
			wait   time.Duration // after spending all
		}{{1, 10 * time.Second, 10 * time.Second}, {6, time.Minute, 10 * time.Second}, {1, month, month}} {
			r := bucketOf(t, slow.amount, slow.window, 0)
			if v := decide(t, l, request(slow.amount, r)); !v.Allowed {
				t.Fatalf("%+v refused at once", slow)
			}
			if v := decide(t, l, request(1, r)); v.RetryAfter != slow.wait {
				t.Errorf("%+v: refused for %v", slow, v.RetryAfter)
			}
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

// C21: in 300 random states of every algorithm, a client that sleeps the whole seconds it was told is admitted.
func TestObeyedRetryAfterIsNeverRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		each(t, 7, 5*time.Second, func(t *testing.T, r *Rule) {
			for refused := 0; refused < 300; {
				c.pass(time.Duration(rand.IntN(2_500_000)) * time.Microsecond)
				cost := 1 + rand.Int64N(7)
				v := decide(t, l, request(cost, r))
				if v.Allowed {
					continue
				}
				refused++
				c.pass((v.RetryAfter + time.Second - 1).Truncate(time.Second))
				if again := decide(t, l, request(cost, r)); !again.Allowed {
					t.Fatalf("cost %d: waited %v, refused for %v more", cost, v.RetryAfter, again.RetryAfter)
				}
			}
		})
	})
}

// C31: all limits or none, whichever refuses and in whatever order they stand.
func TestALimitThatRefusesLeavesTheOthersUncharged(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		for _, turned := range []bool{false, true} {
			key := compile(t, Limit{Algorithm: SlidingWindowCounter, Amount: 10, Window: time.Minute})
			operation := compile(t, Limit{Algorithm: TokenBucket, Per: PerOperation, Amount: 2, Window: time.Minute})
			rules := []*Rule{key, operation}
			if turned {
				rules = []*Rule{operation, key}
			}
			if in := admitted(t, l, 8, rules...); in != 2 {
				t.Fatalf("%d of 8 admitted, not 2", in)
			}
			v := decide(t, l, request(1, rules...))
			if v.Reason != operation.limit.Name || v.RetryAfter != 30*time.Second {
				t.Errorf("refused by %s for %v", v.Reason, v.RetryAfter)
			}
			for _, s := range v.Standings {
				want := map[*Rule]int64{key: 8, operation: 0}[s.Rule]
				if s.Remaining != want || s.Violated != (s.Rule == operation) {
					t.Errorf("%s stands at %+v", s.Rule.limit.Name, s)
				}
			}
		}
	})
}

// C35: of 200 requests at one moment exactly 10 fit a limit of 10, also through two processes and in the embedded Redis.
func TestSimultaneousRequestsCannotOverspend(t *testing.T) {
	t.Parallel()
	rdb, embedded := redistest.Client(t), redistest.Miniredis(t)
	for name, limiters := range map[string][]*Limiter{
		"one process":   {newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience)},
		"two processes": {newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience), newLimiter(&script{rdb: redistest.Client(t), slack: keySlack}, false, patience)},
		"embedded":      {newLimiter(&script{rdb: embedded, slack: keySlack}, false, patience)},
		"twin":          {NewLocal()},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, 10, MaxWindow, func(t *testing.T, r *Rule) {
				if in := atOnce(t, 200, limiters, request(1, r)); in != 10 {
					t.Errorf("%d admitted, not 10", in)
				}
			})
		})
	}
}

// atOnce sends n requests from one barrier and counts the admitted.
func atOnce(t *testing.T, n int, limiters []*Limiter, r Request) int64 {
	t.Helper()
	var in atomic.Int64
	var all sync.WaitGroup
	barrier := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-barrier
			v, err := limiters[i%len(limiters)].Decide(t.Context(), r)
			if err != nil {
				t.Error(err)
			} else if v.Allowed {
				in.Add(1)
			}
		})
	}
	close(barrier)
	all.Wait()
	return in.Load()
}

// What a line refuses after all gets its limits back: once, where it was charged, and never more than there was.
func TestARefundGivesBackWhatWasCharged(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		each(t, 10, time.Minute, func(t *testing.T, r *Rule) {
			other := counterOf(t, 100, time.Hour)
			remaining := func() int64 { t.Helper(); return peekAt(t, l, request(1, r)).Standings[0].Remaining }
			refund := func(v Verdict) {
				t.Helper()
				if err := l.Refund(t.Context(), v); err != nil {
					t.Fatal(err)
				}
			}
			first, second := decide(t, l, request(3, r, other)), decide(t, l, request(4, r))
			refund(first)
			refund(first)
			if n := remaining(); n != 6 {
				t.Errorf("%d remain after 3 of 7 were given back, not 6", n)
			}
			if n := peekAt(t, l, request(1, other)).Standings[0].Remaining; n != 100 {
				t.Errorf("the other limit has %d of 100", n)
			}
			refund(decide(t, l, request(9, r))) // refused
			refund(peekAt(t, l, request(1, r)))
			refund(Verdict{})
			if n := remaining(); n != 6 {
				t.Errorf("%d remain after refunds of nothing", n)
			}
			c.pass(time.Minute) // a bucket is full, a counter's window has become the one before
			refund(second)
			if n := remaining(); n != 10 {
				t.Errorf("%d remain of 10 after all was given back", n)
			}
			c.pass(3 * time.Minute)
			late := decide(t, l, request(10, r))
			c.pass(3 * time.Minute)
			refund(late)
			if n := remaining(); n != 10 {
				t.Errorf("%d remain of 10 after a refund that came too late", n)
			}
		})
	})
}

// The verdict carries what headers need.
func TestAVerdictSaysWhatHeadersNeed(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		b := compile(t, Limit{Owner: "operation:report", Algorithm: TokenBucket, Per: PerClientOperation, Amount: 10, Window: time.Minute, Burst: 3})
		w := counterOf(t, 60, time.Minute)
		c.pass(15 * time.Second)
		v := decide(t, l, request(1, b, w))
		for i, want := range []struct {
			capacity, remaining int64
			reset               time.Duration
		}{{3, 2, 6 * time.Second}, {60, 59, 45 * time.Second}} {
			s := v.Standings[i]
			if s.Rule.Limit().Capacity() != want.capacity || s.Remaining != want.remaining || s.Reset != want.reset {
				t.Errorf("%+v of %+v, want %+v", s, s.Rule.Limit(), want)
			}
		}
		if s := v.Standings[0].Rule.Limit(); s.Name != b.limit.Name || s.Per != PerClientOperation || s.Amount != 10 || s.Window != time.Minute || s.Burst != 3 {
			t.Errorf("the bucket's limit is %+v", s)
		}
		if !v.At.Equal(start.Add(15 * time.Second)) {
			t.Errorf("decided at %v", v.At)
		}
	})
}

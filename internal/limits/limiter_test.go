package limits

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/redistest"
)

// C14, C15: a cost that can never fit is refused as such, whatever waits the other limits ask for,
// and spends nothing of any limit.
func TestACostOverTheCapacityNeverFits(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		each(t, 5, time.Hour, func(t *testing.T, small *Rule) {
			large := bucketOf(t, 100, time.Hour, 0)
			slow := bucketOf(t, 10, MaxWindow, 0)
			admitted(t, l, 10, slow)
			for _, ask := range []func(testing.TB, *Limiter, Request) Verdict{decide, peekAt} {
				for _, cost := range []int64{6, MaxAmount} {
					v := ask(t, l, request(cost, slow, large, small))
					if v.Allowed || !v.Never || v.RetryAfter != 0 || !v.Standings[2].Never ||
						!v.Standings[2].Violated {
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

// C18: a cost that would give back, or overflow, is an error and changes nothing.
func TestBadCostsAreErrors(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		each(t, 5, time.Hour, func(t *testing.T, r *Rule) {
			admitted(t, l, 2, r)
			for _, cost := range []int64{0, -5, MaxAmount + 1, 1e18, -1 << 63} {
				for _, ask := range []func(context.Context, Request) (Verdict, error){
					l.Decide, l.Peek,
				} {
					v, err := ask(t.Context(), request(cost, r))
					if !errors.Is(err, ErrCost) || v.Allowed {
						t.Errorf("cost %d: %+v, %v", cost, v, err)
					}
					r := request(1, r)
					if r.Bytes = cost; r.Bytes == 0 {
						continue
					}
					if v, err := ask(t.Context(), r); !errors.Is(err, ErrCost) || v.Allowed {
						t.Errorf("%d bytes: %+v, %v", cost, v, err)
					}
				}
			}
			if v := peekAt(t, l, request(1, r)); v.Standings[0].Remaining != 3 {
				t.Errorf("%d remain, not 3", v.Standings[0].Remaining)
			}
		})
	})
}

// A request that a limit can't count is an error too.
func TestARequestMustSayWhomItCountsFor(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		for per, missing := range map[Per]Subject{
			PerClient:          {Address: "a", Operation: "o"},
			PerIP:              {Client: "c", Operation: "o"},
			PerOperation:       {Client: "c", Address: "a"},
			PerClientOperation: {Client: "c", Address: "a"},
			PerTier:            {Client: "c", Address: "a", Operation: "o", Country: "NO"},
			PerCountry:         {Client: "c", Address: "a", Operation: "o", Tier: "t"},
		} {
			r := compile(t, Limit{Algorithm: TokenBucket, Per: per, Amount: 1, Window: time.Second})
			_, err := l.Decide(t.Context(),
				Request{Rules: []*Rule{r}, Subject: missing, Cost: 1})
			if !errors.Is(err, errNoSubject) {
				t.Errorf("per %s of %+v: %v", per, missing, err)
			}
		}
		r := bucketOf(t, 1, time.Second, 0)
		if _, err := l.Decide(t.Context(), request(1, r, r)); !errors.Is(err, ErrRules) {
			t.Errorf("a rule twice: %v", err)
		}
		many := request(1, make([]*Rule, MaxRules+1)...)
		if _, err := l.Decide(t.Context(), many); !errors.Is(err, ErrRules) {
			t.Errorf("too many rules: %v", err)
		}
		if v, err := l.Decide(t.Context(), request(1)); err != nil || !v.Allowed {
			t.Errorf("no rules: %+v, %v", v, err)
		}
	})
}

// C21: in 300 random states of every algorithm, a client that waits for its Retry-After, in whole
// seconds, is admitted.
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
					t.Fatalf("cost %d: waited %v, refused for %v more",
						cost, v.RetryAfter, again.RetryAfter)
				}
			}
		})
	})
}

// C31: all limits are charged or none, whichever of them refuses, by whichever algorithm, and in
// whichever order they stand.
func TestALimitThatRefusesLeavesTheOthersUncharged(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		// The wait for a third of 2 per minute, after two at once at a window's begin.
		waits := map[Algorithm]time.Duration{
			FixedWindow:          time.Minute,
			SlidingWindowLog:     time.Minute,
			SlidingWindowCounter: 90 * time.Second,
			TokenBucket:          30 * time.Second,
			LeakyBucket:          30 * time.Second,
		}
		for _, turned := range []bool{false, true} {
			each(t, 20, time.Minute, func(t *testing.T, key *Rule) {
				for a, wait := range waits {
					operation := compile(t, Limit{Algorithm: a, Per: PerOperation, Amount: 2,
						Window: time.Minute})
					rules := []*Rule{key, operation}
					if turned {
						rules = []*Rule{operation, key}
					}
					before := peekAt(t, l, request(1, key)).Standings[0].Remaining
					if in := admitted(t, l, 8, rules...); in != 2 {
						t.Fatalf("%d of 8 admitted, not 2", in)
					}
					v := decide(t, l, request(1, rules...))
					if v.Reason != operation.limit.Name || v.RetryAfter != wait {
						t.Errorf("refused by %s for %v", v.Reason, v.RetryAfter)
					}
					for _, s := range v.Standings {
						want := map[*Rule]int64{key: before - 2, operation: 0}[s.Rule]
						if s.Remaining != want || s.Violated != (s.Rule == operation) {
							t.Errorf("%s stands at %+v, not %d", s.Rule.limit.Algorithm, s, want)
						}
					}
				}
			})
		}
	})
}

// C35: of 200 requests at one moment, exactly 10 fit a limit of 10, also through two processes and
// in the embedded Redis.
func TestSimultaneousRequestsCannotOverspend(t *testing.T) {
	t.Parallel()
	rdb, embedded := redistest.Client(t), redistest.Miniredis(t)
	for name, limiters := range map[string][]*Limiter{
		"one process": {newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience)},
		"two processes": {newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience),
			newLimiter(&script{rdb: redistest.Client(t), slack: keySlack}, false, patience)},
		"embedded": {newLimiter(&script{rdb: embedded, slack: keySlack}, false, patience)},
		"model":    {NewLocal()},
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

// A refund gives back a charge once, where it was charged, and a limit never has more than its
// amount.
func TestARefundGivesBackWhatWasCharged(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		each(t, 10, time.Minute, func(t *testing.T, r *Rule) {
			other := counterOf(t, 100, time.Hour)
			remaining := func() int64 {
				t.Helper()
				return peekAt(t, l, request(1, r)).Standings[0].Remaining
			}
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

// A verdict has all values that the response's headers need.
func TestAVerdictHasTheHeadersValues(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		b := compile(t, Limit{Owner: "operation:report", Algorithm: TokenBucket,
			Per: PerClientOperation, Amount: 10, Window: time.Minute, Burst: 3})
		of := func(a Algorithm, amount int64, window time.Duration) *Rule {
			return compile(t, Limit{Algorithm: a, Amount: amount, Window: window})
		}
		c.pass(15 * time.Second)
		r := request(1, b, counterOf(t, 60, time.Minute), of(FixedWindow, 60, time.Minute),
			of(FixedWindow, 5, Month), of(SlidingWindowLog, 60, time.Minute),
			of(LeakyBucket, 6, time.Minute), of(Concurrency, 20, 0))
		r.Job = "job"
		v := decide(t, l, r)
		for i, want := range []struct {
			capacity, remaining int64
			reset               time.Duration
		}{
			{3, 2, 6 * time.Second},
			{60, 59, 45 * time.Second},
			{60, 59, 45 * time.Second},
			{5, 4, 24*time.Hour - 15*time.Second},
			{60, 59, time.Minute},
			{6, 5, 10 * time.Second},
			{20, 19, 0},
		} {
			s := v.Standings[i]
			if s.Rule != r.Rules[i] || s.Rule.Limit().Capacity() != want.capacity ||
				s.Remaining != want.remaining || s.Reset != want.reset {
				t.Errorf("%+v of %+v, want %+v", s, s.Rule.Limit(), want)
			}
		}
		c.pass(20 * time.Second) // a log's oldest entry leaves, whatever came later
		if s := decide(t, l, request(1, r.Rules[4])).Standings[0]; s.Reset != 40*time.Second {
			t.Errorf("the log resets in %v", s.Reset)
		}
		if s := v.Standings[0].Rule.Limit(); s.Name != b.limit.Name ||
			s.Per != PerClientOperation || s.Amount != 10 || s.Window != time.Minute ||
			s.Burst != 3 {
			t.Errorf("the bucket's limit is %+v", s)
		}
		if !v.At.Equal(start.Add(15 * time.Second)) {
			t.Errorf("decided at %v", v.At)
		}
	})
}

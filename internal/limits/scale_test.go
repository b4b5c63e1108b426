package limits

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay/forebay/internal/redistest"
)

// scaled returns r times factor.
func scaled(t testing.TB, r *Rule, factor float64) *Rule {
	t.Helper()
	s, err := r.Scaled(factor)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// debit takes a cost from r that was spent elsewhere.
func debit(t testing.TB, l *Limiter, c *clock, r *Rule, cost int64) {
	t.Helper()
	q, err := request(1, r).question(refund)
	if err != nil {
		t.Fatal(err)
	}
	q.cost, q.at, q.by = -cost, c.now.Load(), time.Now().Add(patience)
	if _, err := l.ask(t.Context(), q); err != nil {
		t.Fatal(err)
	}
}

// A scaled limit has the amount and burst times the factor, rounded down, at least one and never
// over the bounds.
func TestHowALimitScales(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit         Limit
		factor        float64
		amount, burst int64
	}{
		{Limit{Algorithm: FixedWindow, Amount: 10, Window: Month}, 2, 20, 0},
		// As float64 it is 28.999999999999996.
		{Limit{Algorithm: FixedWindow, Amount: 100, Window: time.Hour}, 0.29, 29, 0},
		{Limit{Algorithm: SlidingWindowCounter, Amount: 10, Window: time.Hour}, 1. / 3, 3, 0},
		{Limit{Algorithm: SlidingWindowCounter, Amount: MaxAmount, Window: time.Hour}, 100,
			MaxAmount, 0},
		{Limit{Algorithm: SlidingWindowLog, Amount: 1000, Window: time.Hour}, 100, MaxLog, 0},
		{Limit{Algorithm: SlidingWindowLog, Amount: 1, Window: time.Hour}, 0.01, 1, 0},
		{Limit{Algorithm: TokenBucket, Amount: 60, Window: time.Hour, Burst: 5}, 0.5, 30, 2},
		{Limit{Algorithm: LeakyBucket, Amount: 60, Window: time.Hour, Burst: 1}, 0.5, 30, 1},
		// The burst is as large as the amount.
		{Limit{Algorithm: TokenBucket, Amount: 60, Window: time.Hour}, 2, 120, 0},
		{Limit{Algorithm: Concurrency, Amount: 20}, 0.4, 8, 0},
	} {
		r := compile(t, c.limit)
		want := r.limit
		want.Amount, want.Burst = c.amount, c.burst
		if got := scaled(t, r, c.factor).Limit(); got != want {
			t.Errorf("%+v × %v is %+v", r.limit, c.factor, got)
		}
	}
	fine := compile(t, Limit{Algorithm: TokenBucket, Amount: 1, Window: MaxWindow, Burst: 100})
	if r, err := fine.Scaled(1.5); err == nil {
		t.Errorf("a bucket that can't be counted exactly: %+v", r.limit)
	}
	for _, factor := range []float64{0, -1, math.Inf(-1)} {
		if got := scaled(t, fine, factor).Limit().Amount; got != 1 {
			t.Errorf("× %v is %d", factor, got)
		}
	}
	if _, err := fine.Scaled(math.NaN()); err == nil {
		t.Error("no number is a factor")
	}
}

// When a grace begins or ends, or a share changes, past use still counts.
func TestCountsGoOnThroughAChangeOfScale(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		for _, a := range []Algorithm{FixedWindow, SlidingWindowLog, SlidingWindowCounter} {
			t.Run(string(a), func(t *testing.T) {
				r := compile(t, Limit{Algorithm: a, Amount: 10, Window: time.Minute})
				double := scaled(t, r, 2)
				if in := admitted(t, l, 15, double); in != 15 {
					t.Fatalf("%d of 15 admitted in a grace of 20", in)
				}
				v := decide(t, l, request(1, r)) // it is over
				wait := map[Algorithm]time.Duration{
					FixedWindow:          time.Minute,
					SlidingWindowLog:     time.Minute,
					SlidingWindowCounter: 66 * time.Second,
				}[a]
				if s := v.Standings[0]; v.Allowed || s.Remaining != 0 ||
					s.Rule.Limit().Amount != 10 || v.RetryAfter != wait {
					t.Errorf("15 of 10 used: %+v", v)
				}
				if in := admitted(t, l, 10, double); in != 5 {
					t.Errorf("%d of 5 admitted by the grace that goes on elsewhere", in)
				}
				c.pass(v.RetryAfter)
				if v := decide(t, l, request(1, r)); !v.Allowed {
					t.Errorf("refused for %v more", v.RetryAfter)
				}
			})
		}
		t.Run("growing", func(t *testing.T) {
			each(t, 10, time.Minute, func(t *testing.T, r *Rule) {
				admitted(t, l, 10, r)
				in := admitted(t, l, 30, scaled(t, r, 2))
				want := 10
				if r.limit.Algorithm.HasBurst() {
					want = 20 // a bucket counts in parts of its own rate, and begins anew
				}
				if in != want {
					t.Errorf("%d admitted by twice 10 after 10, not %d", in, want)
				}
			})
		})
		t.Run("permits", func(t *testing.T) {
			r := permitsOf(t, 2)
			hold(t, l, "a", r)
			hold(t, l, "b", r)
			if !hold(t, l, "c", scaled(t, r, 2)).Allowed {
				t.Error("a third of 4 is refused")
			}
			if v := hold(t, l, "d", r); v.Allowed || v.Standings[0].Remaining != 0 {
				t.Errorf("3 of 2 held: %+v", v)
			}
		})
	})
}

// A batch in which a rule meets its scaled variant on one key is decided in order, each by its own
// amount.
func TestARuleMeetsItsVariantInOneBatch(t *testing.T) {
	t.Parallel()
	s := &script{rdb: redistest.Client(t), slack: keySlack}
	model := newMemory(func() int64 { return time.Now().UnixMicro() })
	for _, a := range []Algorithm{
		FixedWindow, SlidingWindowLog, SlidingWindowCounter, Concurrency,
	} {
		l := Limit{Algorithm: a, Amount: 3, Window: MaxWindow}
		if a == Concurrency {
			l.Window = 0
		}
		r := compile(t, l)
		double, same := scaled(t, r, 2), scaled(t, r, 1)
		var batch []*question
		var got, want []bool
		for i, rule := range []*Rule{r, r, double, double, r, same, double, double, double} {
			q := request(1, rule)
			q.Job = string(rune('a' + i))
			batch = append(batch, ask(t, q))
			want = append(want, model.answer(batch[i], make([]fill, 1)).spent)
		}
		answers, err := s.decide(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			if a.err != nil {
				t.Fatal(a.err)
			}
			got = append(got, a.spent)
		}
		spent := []bool{true, true, true, true, false, false, true, true, false}
		if !cmp.Equal(spent, got) || !cmp.Equal(want, got) {
			t.Errorf("%s: decided %v, by the model %v", a, got, want)
		}
	}
}

// A debit is taken whether it fits or not. A bucket goes into debt, and a window gets full at most.
func TestADebitIsTaken(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		each(t, 10, 10*time.Second, func(t *testing.T, r *Rule) {
			c.now.Store(start.UnixMicro())
			debit(t, l, c, r, 4)
			if n := peekAt(t, l, request(1, r)).Standings[0].Remaining; n != 6 {
				t.Errorf("%d remain of 10 after 4", n)
			}
			debit(t, l, c, r, 11)
			v := decide(t, l, request(1, r))
			want := map[Algorithm]time.Duration{
				FixedWindow:          10 * time.Second,
				SlidingWindowLog:     10 * time.Second,
				SlidingWindowCounter: 11 * time.Second,
				TokenBucket:          6 * time.Second, // one, and the debt of 5
				LeakyBucket:          6 * time.Second,
			}[r.limit.Algorithm]
			if s := v.Standings[0]; v.Allowed || s.Remaining != 0 || v.RetryAfter != want {
				t.Errorf("after 15: %+v, %+v", v, s)
			}
			c.pass(want - time.Microsecond)
			if decide(t, l, request(1, r)).Allowed {
				t.Error("admitted a microsecond early")
			}
			c.pass(time.Microsecond)
			if v := decide(t, l, request(1, r)); !v.Allowed {
				t.Errorf("refused for %v more", v.RetryAfter)
			}
		})
		// The largest debit leaves a debt that ends, and a number that Redis can hold.
		for _, limit := range []Limit{
			{Amount: 1, Window: time.Second, Burst: 1},
			{Amount: 10_191, Window: 24 * time.Hour}, // MaxAmount times its token is over 2^63
			{Amount: 1, Window: MaxWindow, Burst: 100},
		} {
			buckets(t, limit.Amount, limit.Window, limit.Burst, func(t *testing.T, r *Rule) {
				for range 20 {
					debit(t, l, c, r, MaxAmount)
				}
				v := decide(t, l, request(1, r))
				if v.Allowed || v.RetryAfter < time.Hour || v.Standings[0].Remaining != 0 {
					t.Fatalf("%+v", v)
				}
				now := c.now.Load()
				c.pass(v.RetryAfter - time.Microsecond)
				if decide(t, l, request(1, r)).Allowed {
					t.Error("admitted a microsecond early")
				}
				c.pass(time.Microsecond)
				if !decide(t, l, request(1, r)).Allowed {
					t.Error("refused after the debt was paid")
				}
				c.now.Store(now)
			})
		}
		r := permitsOf(t, 2)
		debit(t, l, c, r, 2)
		if n := peekAt(t, l, request(1, r)).Standings[0].Remaining; n != 2 {
			t.Errorf("%d permits of 2: a region's permits are its own", n)
		}
	})
}

// The shares of all regions add up to the limit, however many requests each of them gets.
func TestSharesAddUpToTheLimit(t *testing.T) {
	t.Parallel()
	c := newClock()
	limiters := map[float64]*Limiter{}
	for _, share := range []float64{0.5, 0.3, 0.2} {
		limiters[share] = c.onRedis(redistest.Start(t).Client(t))
	}
	each(t, 60, 24*time.Hour, func(t *testing.T, r *Rule) {
		all := 0
		for share, l := range limiters {
			part, err := r.Scaled(share)
			if err != nil {
				t.Fatal(err)
			}
			n := admitted(t, l, 100, part)
			if want := int(60*share + 0.5); n != want {
				t.Errorf("%d admitted by a share of %v of 60, want %d", n, share, want)
			}
			all += n
		}
		if all != 60 {
			t.Errorf("%d admitted by all regions, of 60", all)
		}
	})
}

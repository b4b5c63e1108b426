package limits

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The Go model shares its formulas with the script. These tests compare it with the definitions, in
// exact fractions.

// A bucket holds min(burst, level + time·amount/window) tokens, a refusal takes none.
func TestABucketIsItsDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		algorithm := rapid.SampledFrom([]Algorithm{TokenBucket, LeakyBucket}).Draw(rt, "of")
		r := ofAlgorithm(rt, algorithm)
		b := r.arithmetic.(bucket)
		rate := big.NewRat(r.limit.Amount, r.limit.Window.Microseconds())
		if big.NewRat(b.refill, b.token).Cmp(rate) != 0 {
			return // rounded to whole µs: not by this definition
		}
		c := newClock()
		l := c.local()
		full := big.NewRat(r.capacity, 1)
		level := new(big.Rat).Set(full)
		for range 30 {
			pause := anyPause(rt, []*Rule{r})
			c.pass(pause)
			level.Add(level, new(big.Rat).Mul(big.NewRat(pause.Microseconds(), 1), rate))
			if level.Cmp(full) > 0 {
				level.Set(full)
			}
			cost := big.NewRat(min(r.capacity, anyCost(rt, []*Rule{r})), 1)
			want := level.Cmp(cost) >= 0
			if want {
				level.Sub(level, cost)
			}
			v := decide(t, l, request(cost.Num().Int64(), r))
			floor := new(big.Int).Quo(level.Num(), level.Denom()).Int64()
			if v.Allowed != want || v.Standings[0].Remaining != floor {
				rt.Fatalf("cost %v of a bucket that holds %v: allowed %v, %d remain",
					cost, level, v.Allowed, v.Standings[0].Remaining)
			}
		}
	})
}

// A counter admits a cost that keeps previous·(window-elapsed)/window + current within the limit.
// If time is counted in steps, it may refuse for a step longer, and it never admits more.
func TestACounterIsItsDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := ofAlgorithm(rt, SlidingWindowCounter)
		window, step := r.limit.Window.Microseconds(), r.arithmetic.(counter).step
		c := newClock()
		l := c.local()
		counts := map[int64]int64{} // admitted, by window
		estimate := func(now int64) *big.Rat {
			index := now / window
			e := big.NewRat(window-now%window, window)
			e.Mul(e, big.NewRat(counts[index-1], 1))
			return e.Add(e, big.NewRat(counts[index], 1))
		}
		for range 30 {
			c.pass(anyPause(rt, []*Rule{r}))
			now := c.now.Load()
			cost := min(r.capacity, anyCost(rt, []*Rule{r}))
			fits := func(at int64) bool {
				sum := new(big.Rat).Add(estimate(at), big.NewRat(cost, 1))
				return sum.Cmp(big.NewRat(r.capacity, 1)) <= 0
			}
			v := decide(t, l, request(cost, r))
			if v.Allowed && !fits(now) {
				rt.Fatalf("cost %d was admitted on top of %v of %d",
					cost, estimate(now), r.capacity)
			}
			if !v.Allowed && fits(max(now-now%window, now-2*step)) {
				rt.Fatalf("cost %d was refused on top of %v of %d, %d µs after it fit",
					cost, estimate(now), r.capacity, 2*step)
			}
			if v.Allowed {
				counts[now/window] += cost
			}
		}
	})
}

// A fixed window admits up to its amount from one multiple of its length since 1970 UTC to the
// next, or in one calendar month.
func TestAFixedWindowIsItsDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := ofAlgorithm(rt, FixedWindow)
		c := newClock()
		l := c.local()
		counts := map[string]int64{} // admitted, by window
		for range 30 {
			c.pass(anyPause(rt, []*Rule{r}))
			at := time.UnixMicro(c.now.Load()).UTC()
			window := at.Format("2006-01")
			if r.limit.Window != Month {
				window = fmt.Sprint(at.UnixMicro() / r.limit.Window.Microseconds())
			}
			cost := min(r.capacity, anyCost(rt, []*Rule{r}))
			want := counts[window]+cost <= r.capacity
			v := decide(t, l, request(cost, r))
			if v.Allowed != want {
				rt.Fatalf("cost %d on top of %d of %d: allowed %v",
					cost, counts[window], r.capacity, v.Allowed)
			}
			if want {
				counts[window] += cost
			}
			if left := r.capacity - counts[window]; v.Standings[0].Remaining != left {
				rt.Fatalf("%d remain, not %d", v.Standings[0].Remaining, left)
			}
		}
	})
}

func ofAlgorithm(t *rapid.T, a Algorithm) *Rule {
	of := rapid.Custom(func(t *rapid.T) *Rule { return anyLimit(t, "limit") })
	return of.Filter(func(r *Rule) bool {
		return r.limit.Algorithm == a && !r.limit.Shadow && !r.limit.Bytes
	}).Draw(t, "rule")
}

// Time is counted in steps only if exact counts would not fit, and the steps are short.
func TestHowFineTimeIsCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		amount int64
		window time.Duration
		step   int64 // µs
	}{
		{1, MaxWindow, 1},
		{20_000, time.Second, 1},
		{100, 30 * 24 * time.Hour, 1},
		{10_000_000, 30 * 24 * time.Hour, 2878},
		{MaxAmount, MaxWindow, 3_510_792},
		{MaxAmount, MinWindow, 1},
	} {
		n := newCounter(c.amount, c.window.Microseconds())
		if n.step != c.step || n.steps*n.step < n.window || (n.steps-1)*n.step >= n.window ||
			n.limit > maxExact/n.steps {
			t.Errorf("%d per %v is counted in steps of %d µs, %d to a window of %d",
				c.amount, c.window, n.step, n.steps, n.window)
		}
	}
	// A bucket rounds its token up to whole µs, by under 1e-5, only if its shares would not fit.
	for _, c := range []struct {
		amount int64
		window time.Duration
		burst  int64
		exact  bool
	}{
		{7, time.Second, 1_000_000, true},
		{20_000, time.Second, 20_000, true},
		{1, MaxWindow, 100, true},
		{10_000_000, 30 * 24 * time.Hour, 10_000_000, true},
		{7, 24*time.Hour + 2*time.Microsecond, 200_000, false},
		{997, MaxWindow - time.Microsecond, 1000, false},
	} {
		b, err := newBucket(c.amount, c.window.Microseconds(), c.burst)
		if err != nil {
			t.Errorf("%d per %v, burst %d: %v", c.amount, c.window, c.burst, err)
			continue
		}
		limit := float64(c.amount) / float64(c.window.Microseconds())
		rate := float64(b.refill) / float64(b.token) / limit
		if exact := rate == 1; exact != c.exact || rate > 1 || rate < 1-1e-5 ||
			b.full != c.burst*b.token || b.full > maxExact {
			t.Errorf("%d per %v, burst %d: %+v, its rate is %.9f of the limit's",
				c.amount, c.window, c.burst, b, rate)
		}
	}
}

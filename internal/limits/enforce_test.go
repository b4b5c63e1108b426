package limits

import (
	"fmt"
	"testing"
	"time"
)

// everyKind runs a test for an amount by each algorithm, concurrency included.
func everyKind(t *testing.T, l Limit, test func(t *testing.T, l Limit)) {
	t.Helper()
	for _, a := range everyAlgorithm {
		l := l
		l.Algorithm = a
		if a == Concurrency {
			l.Window = 0
		}
		t.Run(string(a), func(t *testing.T) { test(t, l) })
	}
}

// A shadow limit counts like any other and reports which requests it would have refused. It refuses
// none, and isn't charged for those that it would have refused.
func TestAShadowLimitRefusesNone(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		limit := Limit{Amount: 3, Window: time.Hour, Shadow: true}
		everyKind(t, limit, func(t *testing.T, limit Limit) {
			shadow, enforced := compile(t, limit), counterOf(t, 10, time.Hour)
			for i := range 12 {
				rules := []*Rule{shadow, enforced}
				v := hold(t, l, fmt.Sprint("job ", i), rules...)
				s := v.Standings[0]
				if v.Allowed != (i < 10) {
					t.Fatalf("request %d: %+v", i, v)
				}
				if s.Violated != (i >= 3) || s.Remaining != max(0, int64(2-i)) || s.Never ||
					(s.RetryAfter > 0) != s.Violated {
					t.Errorf("request %d, the shadow limit: %+v", i, s)
				}
				if v.Allowed && (v.Reason != "" || v.RetryAfter != 0 || v.Never) ||
					!v.Allowed && v.Reason != enforced.limit.Name {
					t.Errorf("request %d: a shadow limit is the reason: %+v", i, v)
				}
				if strict, ok := v.Strictest(); !ok || strict.Rule != enforced {
					t.Errorf("request %d: the strictest is %+v", i, strict)
				}
				if n := v.Standings[1].Remaining; n != max(0, int64(9-i)) {
					t.Errorf("request %d: the enforced limit has %d", i, n)
				}
			}
			// It has all of its amount again: it wasn't charged for more.
			c.pass(3 * time.Hour)
			if limit.Algorithm != Concurrency &&
				peekAt(t, l, request(3, shadow)).Standings[0].Violated {
				t.Error("it doesn't let through its amount again")
			}
		})
	})
}

// A refusal by an enforced limit charges no shadow limit, in whatever order they stand. Otherwise
// the request would be counted twice when the client tries again.
func TestARefusalChargesNoShadowLimit(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		limit := Limit{Amount: 5, Window: time.Hour, Shadow: true}
		everyKind(t, limit, func(t *testing.T, limit Limit) {
			first, last := compile(t, limit), compile(t, limit)
			enforced := bucketOf(t, 2, time.Hour, 0)
			for i := range 6 {
				v := hold(t, l, fmt.Sprint("job ", i), first, enforced, last)
				for _, s := range []Standing{v.Standings[0], v.Standings[2]} {
					if want := 5 - min(2, int64(i+1)); s.Remaining != want || s.Violated {
						t.Errorf("request %d: a shadow limit has %d, not %d", i, s.Remaining, want)
					}
				}
			}
		})
	})
}

// A cost over a shadow limit's capacity is reported, and charged to the other limits.
func TestACostOverAShadowLimitPasses(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		each(t, 100, time.Hour, func(t *testing.T, enforced *Rule) {
			limit := enforced.limit
			limit.Amount, limit.Shadow = 5, true
			shadow := compile(t, limit)
			v := decide(t, l, request(6, shadow, enforced))
			if s := v.Standings[0]; !v.Allowed || v.Never || !s.Violated || !s.Never ||
				s.Remaining != 5 || v.Standings[1].Remaining != 94 {
				t.Errorf("%+v", v)
			}
		})
	})
}

// A refund gives back to the limits that were charged, and not to a shadow limit that would have
// refused.
func TestARefundOfWhatAShadowLimitRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		limit := Limit{Amount: 3, Window: time.Hour, Shadow: true}
		everyKind(t, limit, func(t *testing.T, limit Limit) {
			shadow, enforced := compile(t, limit), counterOf(t, 10, time.Hour)
			roomy := compile(t, Limit{Algorithm: TokenBucket, Amount: 10, Window: time.Hour,
				Shadow: true})
			for i := range 3 {
				hold(t, l, fmt.Sprint("job ", i), shadow)
			}
			v := hold(t, l, "the fourth", shadow, roomy, enforced)
			if err := l.Refund(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			for i, want := range []int64{0, 10, 10} {
				v := peekAt(t, l, request(1, shadow, roomy, enforced))
				if s := v.Standings[i]; s.Remaining != want {
					t.Errorf("%s has %d, not %d", s.Rule.limit.Algorithm, s.Remaining, want)
				}
			}
			// If only shadow limits applied, there is nothing to refund, and no error.
			if err := l.Refund(t.Context(), hold(t, l, "the fifth", shadow)); err != nil {
				t.Error(err)
			}
		})
	})
}

// Enforcement starts with a new count: no request is refused because of the counts of a trial.
func TestAnEnforcedLimitSharesNoCountWithItsTrial(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		limit := Limit{Amount: 2, Window: time.Hour, Shadow: true}
		everyKind(t, limit, func(t *testing.T, limit Limit) {
			trial := compile(t, limit)
			limit.Shadow, limit.Name = false, trial.limit.Name
			enforced := compile(t, limit)
			for i := range 3 {
				hold(t, l, fmt.Sprint(i), trial)
			}
			if v := hold(t, l, "new", enforced); !v.Allowed || v.Standings[0].Remaining != 1 {
				t.Errorf("%+v", v)
			}
		})
	})
}

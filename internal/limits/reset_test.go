package limits

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// C50: with nothing left, Reset ends at a moment at which one more request is admitted, by every
// algorithm, and until then it only counts down. If a limit counts in windows, it is the first such
// moment. A bucket is full then.
func TestWithNothingLeftOneMoreIsAdmittedAfterReset(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		of := rapid.SampledFrom([]Algorithm{TokenBucket, LeakyBucket, SlidingWindowCounter,
			SlidingWindowLog, FixedWindow}).Draw(rt, "of")
		r := ofAlgorithm(rt, of)
		c := newClock()
		l := c.local()
		peek := func() Standing {
			v, err := l.Peek(t.Context(), request(1, r))
			if err != nil {
				rt.Fatal(err)
			}
			return v.Standings[0]
		}
		for range 10 {
			c.pass(anyPause(rt, []*Rule{r}))
			if left := peek().Remaining; left > 0 {
				cost := rapid.SampledFrom([]int64{1, (left + 1) / 2, left}).Draw(rt, "cost")
				if !decide(t, l, request(cost, r)).Allowed {
					rt.Fatalf("%d of %d were refused", cost, left)
				}
			}
			s := peek()
			if s.Remaining > 0 {
				continue
			}
			part := micros(rapid.Int64Range(0, s.Reset.Microseconds()-1).Draw(rt, "part"))
			c.pass(part)
			later := peek()
			if later.Remaining == 0 && later.Reset != s.Reset-part {
				rt.Fatalf("it resets in %v, and %v later in %v", s.Reset, part, later.Reset)
			}
			if later.Remaining > 0 && !r.limit.Algorithm.HasBurst() {
				rt.Fatalf("it resets in %v, and %v later has %d", s.Reset, part, later.Remaining)
			}
			c.pass(s.Reset - part)
			if !decide(t, l, request(1, r)).Allowed {
				rt.Fatalf("refused after its reset in %v", s.Reset)
			}
		}
	})
}

// C50 as it was reported: of 2 per 10 s, both are used 1.02 s into a window. Until its end nothing
// is free, and then half of each.
func TestACountersResetIsNoMomentOfARefusal(t *testing.T) {
	t.Parallel()
	r, err := Compile(Limit{Name: "two", Algorithm: SlidingWindowCounter, Per: PerClient, Amount: 2,
		Window: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	c := newClock()
	l := c.local()
	c.pass(11020*time.Millisecond - time.Duration(c.now.Load()%10e6)*time.Microsecond)
	decide(t, l, request(1, r))
	if s := decide(t, l, request(1, r)).Standings[0]; s.Remaining != 0 ||
		s.Reset != 13980*time.Millisecond {
		t.Errorf("%d left, reset in %v", s.Remaining, s.Reset)
	}
	c.pass(8980 * time.Millisecond)
	if v := decide(t, l, request(1, r)); v.Allowed || v.RetryAfter != 5*time.Second ||
		v.Standings[0].Reset != 5*time.Second {
		t.Errorf("%+v", v)
	}
}

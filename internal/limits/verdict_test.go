package limits

import (
	"slices"
	"testing"
	"time"
)

func TestTheStrictestStanding(t *testing.T) {
	t.Parallel()
	enforced, shadow := compile(t, shadowOf(false)), compile(t, shadowOf(true))
	// Each is stricter than all that follow.
	order := []Standing{
		{Rule: enforced, Violated: true, Never: true, Remaining: 5},
		{Rule: enforced, Violated: true, RetryAfter: 2 * time.Second, Remaining: 3},
		{Rule: enforced, Violated: true, RetryAfter: time.Second},
		{Rule: enforced, Remaining: 0, Reset: 2 * time.Second},
		{Rule: enforced, Remaining: 0, Reset: time.Second},
		{Rule: enforced, Remaining: 1, Reset: time.Hour},
	}
	// It would be stricter than all of them, but it is of a shadow limit.
	mute := Standing{Rule: shadow, Violated: true, Never: true}
	for i, a := range order {
		if stricter(a, a) {
			t.Errorf("%+v is stricter than itself", a)
		}
		for _, b := range order[i+1:] {
			if !stricter(a, b) || stricter(b, a) {
				t.Errorf("%+v must be stricter than %+v", a, b)
			}
			for _, standings := range [][]Standing{
				{a, b}, {b, a}, {mute, a, b}, {b, mute, a}, {a, b, mute},
			} {
				if s, ok := (Verdict{Standings: standings}).Strictest(); !ok || s != a {
					t.Errorf("of %+v the strictest is %+v", standings, s)
				}
			}
		}
	}
	for _, standings := range [][]Standing{nil, {mute}, slices.Repeat([]Standing{mute}, 3)} {
		if s, ok := (Verdict{Standings: standings}).Strictest(); ok {
			t.Errorf("of %+v the strictest is %+v", standings, s)
		}
	}
}

func shadowOf(shadow bool) Limit {
	return Limit{Algorithm: TokenBucket, Amount: 1, Window: time.Second, Shadow: shadow}
}

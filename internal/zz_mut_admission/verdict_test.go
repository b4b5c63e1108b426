package admission

import (
	"testing"
	"time"
)

func TestTheStrictestSpeaks(t *testing.T) {
	t.Parallel()
	// Each is stricter than all after it.
	order := []Standing{
		{Violated: true, Never: true, Remaining: 5},
		{Violated: true, RetryAfter: 2 * time.Second, Remaining: 3},
		{Violated: true, RetryAfter: time.Second},
		{Remaining: 0, Reset: 2 * time.Second},
		{Remaining: 0, Reset: time.Second},
		{Remaining: 1, Reset: time.Hour},
	}
	for i, a := range order {
		if stricter(a, a) {
			t.Errorf("%+v is stricter than itself", a)
		}
		for _, b := range order[i+1:] {
			if !stricter(a, b) || stricter(b, a) {
				t.Errorf("%+v must be stricter than %+v", a, b)
			}
			for _, v := range []Verdict{{Standings: []Standing{a, b}}, {Standings: []Standing{b, a}}} {
				if s, ok := v.Strictest(); !ok || s != a {
					t.Errorf("of %+v %+v speaks", v.Standings, s)
				}
			}
		}
	}
	if s, ok := (Verdict{}).Strictest(); ok {
		t.Errorf("of none %+v speaks", s)
	}
}

package admission

import (
	"fmt"
	"testing"
	"time"
)

// A process's own counts are bounded, and stale ones make room before any other goes.
func TestTheTwinForgetsStaleCounts(t *testing.T) {
	t.Parallel()
	c := newClock()
	m := newMemory(c.now.Load)
	long, short := counterOf(t, 10, MaxWindow), counterOf(t, 10, time.Second)
	fill := func(r *Rule, prefix string, n int) {
		for i := range n {
			q, err := Request{Rules: []*Rule{r}, Subject: Subject{Client: fmt.Sprint(prefix, i)}, Cost: 1}.question(spend)
			if err != nil {
				t.Fatal(err)
			}
			if !m.answer(q, make([]fill, len(q.rules))).spent {
				t.Fatalf("%s%d is refused", prefix, i)
			}
		}
	}
	fill(short, "gone", 50_000)
	c.pass(time.Minute)
	fill(long, "here", 45_000)
	here := 0
	for _, k := range m.kept {
		if k.rule == long {
			here++
		}
	}
	if here != 45_000 || len(m.kept) > 60_000 {
		t.Errorf("%d of 45000 counts that matter are kept, among %d", here, len(m.kept))
	}
	fill(long, "more", maxKept)
	if len(m.kept) > maxKept {
		t.Errorf("%d counts are kept, of at most %d", len(m.kept), maxKept)
	}
}

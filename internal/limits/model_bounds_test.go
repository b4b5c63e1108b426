package limits

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"
)

// The counts of one process are bounded, and stale ones are dropped before any others.
func TestTheModelForgetsStaleCounts(t *testing.T) {
	t.Parallel()
	c := newClock()
	m := newMemory(c.now.Load)
	long, short := counterOf(t, 10, MaxWindow), counterOf(t, 10, time.Second)
	fill := func(r *Rule, prefix string, n int) {
		for i := range n {
			subject := Subject{Client: fmt.Sprint(prefix, i)}
			q, err := Request{Rules: []*Rule{r}, Subject: subject, Cost: 1}.question(spend)
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

// C133: a client that has used up a limit isn't freed by minted keys, however many they are. The
// counts of minted keys are the first to be dropped. When their windows are over, they make room
// for new ones.
func TestMintedKeysFreeNoAbuser(t *testing.T) {
	t.Parallel()
	c := newClock()
	m := newMemory(c.now.Load)
	l := &Limiter{ask: func(_ context.Context, q *question) (answer, error) {
		return m.answer(q, make([]fill, len(q.rules))), nil
	}}
	ask := func(r *Rule, client string) Verdict {
		q := request(1, r)
		q.Subject.Client, q.Job = client, client
		return decide(t, l, q)
	}
	var rules []*Rule
	for _, a := range everyAlgorithm {
		limit := Limit{Algorithm: a, Amount: 10, Window: time.Hour}
		if a == Concurrency {
			limit.Window = 0
		}
		rules = append(rules, compile(t, limit))
	}
	for _, r := range rules {
		for i := range 11 {
			q := request(1, r)
			q.Job = fmt.Sprint(i)
			decide(t, l, q)
		}
	}
	short := counterOf(t, 10, 10*time.Second)
	for i := range maxKept + 30_000 {
		ask(short, strconv.Itoa(i))
		if i%10_000 == 0 {
			if len(m.kept) > maxKept {
				t.Fatalf("%d counts are kept, of at most %d", len(m.kept), maxKept)
			}
			for _, r := range rules {
				if ask(r, "alice").Allowed {
					t.Fatalf("after %d minted keys a %s is free again", i, r.limit.Algorithm)
				}
			}
		}
		if i == maxKept+10_000 {
			c.pass(time.Minute)
		}
	}
}

// Keys in debt are dropped too, if there are no others.
func TestTheModelIsBoundedInDebt(t *testing.T) {
	t.Parallel()
	c := newClock()
	m := newMemory(c.now.Load)
	r := bucketOf(t, 1, time.Hour, 0)
	for i := range maxKept + 1000 {
		subject := Subject{Client: strconv.Itoa(i)}
		q, err := Request{Rules: []*Rule{r}, Subject: subject, Cost: 1}.question(refund)
		if err != nil {
			t.Fatal(err)
		}
		q.cost = -100
		m.answer(q, make([]fill, 1))
	}
	if len(m.kept) > maxKept {
		t.Errorf("%d counts are kept, of at most %d", len(m.kept), maxKept)
	}
}

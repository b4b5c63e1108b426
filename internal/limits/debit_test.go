package limits

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay/forebay/internal/redistest"
)

// otherRegions is a Region whose state a test sets. It keeps the debits by key.
type otherRegions struct {
	lost  bool
	share float64

	mu    sync.Mutex
	costs map[string]int64 // guarded by mu
}

func (o *otherRegions) Lost() bool { return o.lost }

func (o *otherRegions) Share() float64 { return o.share }

func (o *otherRegions) Spent(debits []Debit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range debits {
		o.costs[d.Key] += d.Cost
	}
}

// Other regions get what a decision charged and what was given back, in whichever way it was
// decided. They don't get permits, nor charges that a shadow limit had no room for.
func TestOtherRegionsSeeWhatWasSpent(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := c.onRedis(redistest.Client(t))
	other := &otherRegions{share: 1, costs: map[string]int64{}}
	l.Join(other)
	rule := bucketOf(t, 100, 24*time.Hour, 0)
	day := Limit{Algorithm: FixedWindow, Amount: 1000, Window: 24 * time.Hour, Bytes: true}
	upload := compile(t, day)
	day.Amount, day.Bytes, day.Shadow = 3, false, true
	full := compile(t, day)
	jobs := compile(t, Limit{Algorithm: Concurrency, Amount: 10})
	r := request(3, rule, upload, full, jobs)
	r.Bytes, r.Job = 400, "a-job"
	q, err := r.question(spend)
	if err != nil {
		t.Fatal(err)
	}
	saw := func(after string, requests, bytes, shadow int64) {
		t.Helper()
		want := map[string]int64{q.keys[0]: requests, q.keys[1]: bytes, q.keys[2]: shadow}
		if diff := cmp.Diff(want, other.costs); diff != "" {
			t.Errorf("%s: want (-), got (+):\n%s", after, diff)
		}
	}
	first := decide(t, l, r)
	saw("a decision", 3, 400, 3)
	second := decide(t, l, r)
	saw("the shadow limit was full", 6, 800, 3)
	if decide(t, l, r).Allowed {
		t.Fatal("1200 bytes of 1000 are admitted")
	}
	saw("a refusal", 6, 800, 3)
	if err := l.Settle(t.Context(), first, 1); err != nil {
		t.Fatal(err)
	}
	saw("a part of the cost was given back", 4, 400, 1)
	if err := l.Refund(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	saw("all of it was given back", 1, 0, 1)
	alone := NewFallback(l, func() int { return 1 }, func() bool { return false })
	v, err := alone.Decide(t.Context(), r)
	if err != nil || !v.Allowed {
		t.Fatalf("%+v, %v", v, err)
	}
	saw("a decision without Redis", 4, 400, 4)
	if err := alone.Refund(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	saw("its refund", 1, 0, 1)
}

// A region that is on its own decides over its share of every limit but those of concurrency, and a
// process without Redis over its part of that share.
func TestARegionOnItsOwnDecidesOverItsShare(t *testing.T) {
	t.Parallel()
	l := newClock().onRedis(redistest.Client(t))
	other := &otherRegions{share: 0.5, costs: map[string]int64{}}
	l.Join(other)
	rule := bucketOf(t, 60, 24*time.Hour, 0)
	jobs := compile(t, Limit{Algorithm: Concurrency, Amount: 60})
	amounts := func(v Verdict) [2]int64 {
		return [2]int64{v.Standings[0].Rule.limit.Amount, v.Standings[1].Rule.limit.Amount}
	}
	for _, c := range []struct {
		lost bool
		want [2]int64
	}{{false, [2]int64{60, 60}}, {true, [2]int64{30, 60}}} {
		other.lost = c.lost
		if got := amounts(decide(t, l, request(1, rule, jobs))); got != c.want {
			t.Errorf("lost %v: it decides over %v, want %v", c.lost, got, c.want)
		}
		f := NewFallback(l, func() int { return 3 }, func() bool { return false })
		v, err := f.Decide(t.Context(), request(1, rule, jobs))
		if want := [2]int64{10, 10}; err != nil || amounts(v) != want {
			t.Errorf("lost %v: without Redis it decides over %v, %v; want %v",
				c.lost, amounts(v), err, want)
		}
	}
}

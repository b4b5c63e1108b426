package limits

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/redistest"
)

// anyLimit draws a valid limit, from one a year to billions a second.
func anyLimit(t *rapid.T, name string) *Rule {
	l := rapid.Custom(func(t *rapid.T) Limit {
		amount := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, MaxAmount))
		window := rapid.OneOf(
			rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour, MaxWindow}),
			rapid.Custom(func(t *rapid.T) time.Duration {
				return time.Duration(rapid.Int64Range(MinWindow.Microseconds(), MaxWindow.Microseconds()).Draw(t, "µs")) * time.Microsecond
			}),
		)
		l := Limit{
			Name:      name,
			Per:       rapid.SampledFrom(everyPer).Draw(t, "per"),
			Algorithm: rapid.SampledFrom(everyAlgorithm).Draw(t, "algorithm"),
			Amount:    amount.Draw(t, "amount"),
			Shadow:    rapid.IntRange(0, 4).Draw(t, "shadow") == 4,
			Bytes:     rapid.IntRange(0, 3).Draw(t, "bytes") == 3,
		}
		switch l.Algorithm {
		case Concurrency:
			l.Bytes = false
			return l
		case FixedWindow:
			window = rapid.OneOf(window, rapid.Just(Month))
		case SlidingWindowLog:
			l.Amount = (l.Amount-1)%MaxLog + 1
		}
		l.Window = window.Draw(t, "window")
		if l.saves() && rapid.Bool().Draw(t, "has burst") {
			l.Burst = amount.Draw(t, "burst")
		}
		return l
	}).Filter(func(l Limit) bool { return l.Validate() == nil }).Draw(t, "limit") // others are too fine to count
	r, err := Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// anyBytes draws mostly what may fit, or none.
func anyBytes(t *rapid.T, rules []*Rule) int64 {
	if rapid.IntRange(0, 3).Draw(t, "no body") == 0 {
		return 0
	}
	return anyAmount(t, rules, true)
}

// anyCost draws mostly what may fit.
func anyCost(t *rapid.T, rules []*Rule) int64 { return anyAmount(t, rules, false) }

func anyAmount(t *rapid.T, rules []*Rule, bytes bool) int64 {
	least := int64(MaxAmount)
	for _, r := range rules {
		if r.kind != kindConcurrency && r.limit.Bytes == bytes {
			least = min(least, r.capacity)
		}
	}
	return rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, least), rapid.Int64Range(1, least), rapid.Int64Range(1, MaxAmount)).Draw(t, "cost")
}

// anyPause draws times at which something may change for one of the rules.
func anyPause(t *rapid.T, rules []*Rule) time.Duration {
	w := rapid.SampledFrom(rules).Draw(t, "of").limit.Window.Microseconds()
	if w <= 0 {
		w = (31 * 24 * time.Hour).Microseconds()
	}
	µs := rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(0, w/100), rapid.Int64Range(0, w), rapid.Int64Range(0, 3*w)).Draw(t, "µs")
	return time.Duration(µs) * time.Microsecond
}

var sameVerdict = []cmp.Option{cmpopts.IgnoreUnexported(Verdict{}), cmp.Comparer(func(a, b *Rule) bool { return a == b })}

// Lua and its twin say the same at every step of any history: of charges, looks, refunds, waiting and a clock
// that steps back. And what they say is true (C21): a refused request is refused until its RetryAfter is over, to the
// microsecond, and then admitted; as many requests as remain get in, and not one more.
func TestLuaAndModelAgreeAndAreHonest(t *testing.T) {
	t.Parallel()
	server, embedded := redistest.Client(t), redistest.Miniredis(t)
	rapid.Check(t, func(rt *rapid.T) {
		rdb := server
		if rapid.IntRange(0, 4).Draw(rt, "embedded") == 4 { // seldom: it takes five times as long
			rdb = embedded
		}
		c := newClock()
		m := &model{clock: c, lua: c.onRedis(rdb), twin: c.local(), t: t}
		for i := range rapid.IntRange(1, 3).Draw(rt, "rules") {
			m.rules = append(m.rules, anyLimit(rt, redistest.Name(t, fmt.Sprint("m", i))))
		}
		m.whole = slices.Clone(m.rules)
		rt.Repeat(map[string]func(*rapid.T){
			"decide": m.decide, "peek": m.peek, "refund": m.refund, "debit": m.debit, "scale": m.scale, "wait": m.wait, "step back": m.stepBack,
		})
	})
}

type model struct {
	t         *testing.T
	clock     *clock
	lua, twin *Limiter
	whole     []*Rule
	rules     []*Rule      // whole, or scaled
	allowed   [][2]Verdict // of Lua and twin, not refunded
	jobs      int
}

func (m *model) request(t *rapid.T) Request {
	s := alice
	s.Client = rapid.SampledFrom([]string{"alice", "bob"}).Draw(t, "client")
	m.jobs++
	return Request{Rules: slices.Clone(m.rules), Subject: s, Cost: anyCost(t, m.rules), Bytes: anyBytes(t, m.rules), Job: fmt.Sprint("job ", m.jobs)}
}

// ask asks both and holds their verdicts against each other.
func (m *model) ask(t *rapid.T, r Request, how func(testing.TB, *Limiter, Request) Verdict) (lua, twin Verdict) {
	lua, twin = how(m.t, m.lua, r), how(m.t, m.twin, r)
	if diff := cmp.Diff(twin, lua, sameVerdict...); diff != "" {
		t.Fatalf("%+v of %+v: twin (-) and Lua (+) differ:\n%s", r, m.rules, diff)
	}
	return lua, twin
}

func (m *model) decide(t *rapid.T) {
	r := m.request(t)
	before, _ := m.ask(t, r, peekAt)
	lua, twin := m.ask(t, r, decide)
	if lua.Allowed != before.Allowed {
		t.Fatalf("a look said %v, the decision %v", before.Allowed, lua.Allowed)
	}
	for i, s := range lua.Standings {
		b := before.Standings[i]
		if lua.Allowed && !s.Violated {
			b.Remaining = max(0, b.Remaining-r.Takes(s.Rule)) // 0 bytes fit a limit that is overdrawn
			b.Reset = s.Reset                                 // a charge moves it
		}
		if s != b {
			t.Fatalf("%+v took %+v to %+v", r, before.Standings[i], s)
		}
	}
	if lua.Allowed {
		m.allowed = append(m.allowed, [2]Verdict{lua, twin})
	}
	m.honest(t, r, lua)
}

func (m *model) peek(t *rapid.T) {
	r := m.request(t)
	v, _ := m.ask(t, r, peekAt)
	least, leastBytes := int64(MaxAmount), int64(MaxAmount)
	for _, s := range v.Standings {
		if s.Remaining < 0 || s.Remaining > s.Rule.capacity || s.Reset < 0 {
			t.Fatalf("%+v is out of bounds", s)
		}
		switch {
		case s.Rule.limit.Shadow:
		case s.Rule.limit.Bytes:
			leastBytes = min(leastBytes, s.Remaining)
		case s.Rule.kind != kindConcurrency:
			least = min(least, s.Remaining)
		case s.Remaining == 0:
			least = 0
		}
	}
	for cost := max(1, least); cost <= min(least+1, MaxAmount); cost++ {
		r.Cost, r.Bytes = cost, 0
		if v, _ := m.ask(t, r, peekAt); v.Allowed != (cost <= least) {
			t.Fatalf("%d remain, and a cost of %d gets %v", least, cost, v.Allowed)
		}
	}
	for bytes := leastBytes; least > 0 && bytes <= min(leastBytes+1, MaxAmount); bytes++ {
		r.Cost, r.Bytes = 1, bytes
		if v, _ := m.ask(t, r, peekAt); v.Allowed != (bytes <= leastBytes) {
			t.Fatalf("%d bytes remain, and %d get %v", leastBytes, bytes, v.Allowed)
		}
	}
}

// honest looks at a refusal from the moments before its end and from the end itself.
func (m *model) honest(t *rapid.T, r Request, v Verdict) {
	if v.Allowed != (v.Reason == "") || v.Allowed != (v.RetryAfter == 0 && !v.Never) || v.Never && v.RetryAfter != 0 {
		t.Fatalf("%+v contradicts itself", v)
	}
	if s, _ := v.Strictest(); v.Allowed || v.Never || s.Rule.kind == kindConcurrency {
		return // nobody knows when a job ends
	}
	now := m.clock.now.Load()
	defer m.clock.now.Store(now)
	after := v.RetryAfter.Microseconds()
	for _, µs := range []int64{rapid.Int64Range(0, after-1).Draw(t, "too early"), after - 1} {
		m.clock.now.Store(now + µs)
		if v, _ := m.ask(t, r, peekAt); v.Allowed {
			t.Fatalf("RetryAfter is %d µs, and it is admitted after %d", after, µs)
		}
	}
	m.clock.now.Store(now + after)
	if v, _ := m.ask(t, r, peekAt); !v.Allowed && !onlyPermits(v) {
		t.Fatalf("RetryAfter is %d µs, and then it is refused for %v more", after, v.RetryAfter)
	}
}

func (m *model) refund(t *rapid.T) {
	if len(m.allowed) == 0 {
		return // nothing to refund yet
	}
	i := rapid.IntRange(0, len(m.allowed)-1).Draw(t, "of")
	for j, l := range []*Limiter{m.lua, m.twin} {
		if err := l.Refund(m.t.Context(), m.allowed[i][j]); err != nil {
			t.Fatal(err)
		}
	}
	m.allowed = append(m.allowed[:i], m.allowed[i+1:]...)
	m.peek(t)
}

// onlyPermits reports whether nothing but a limit of concurrency refuses.
func onlyPermits(v Verdict) bool {
	for _, s := range v.Standings {
		if s.Violated && !s.Rule.limit.Shadow && s.Rule.kind != kindConcurrency {
			return false
		}
	}
	return !v.Allowed
}

// debit takes what was spent elsewhere.
func (m *model) debit(t *rapid.T) {
	r := m.request(t)
	for _, l := range []*Limiter{m.lua, m.twin} {
		q, err := r.question(refund)
		if err != nil {
			t.Fatal(err)
		}
		q.cost, q.bytes, q.at, q.by = -q.cost, -q.bytes, m.clock.now.Load(), time.Now().Add(patience)
		if _, err := l.ask(m.t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	m.peek(t)
}

// scale gives the rules other amounts: a grace has ended, a centre was lost.
func (m *model) scale(t *rapid.T) {
	factor := rapid.SampledFrom([]float64{1, 0.1, 1. / 3, 2, 2.5}).Draw(t, "factor")
	for i, r := range m.whole {
		if scaled, err := r.Scaled(factor); err == nil { // else it can't be counted exactly
			m.rules[i] = scaled
		}
	}
}

func (m *model) wait(t *rapid.T) { m.clock.pass(anyPause(t, m.rules)) }

func (m *model) stepBack(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") != 0 {
		return // a rare event
	}
	m.clock.pass(-min(anyPause(t, m.rules), 400*24*time.Hour)) // long after 1970 for any history
}

// A batch is decided as if its questions had come one by one, refunds first.
func TestABatchIsManyDecisions(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		c := newClock()
		lua := &script{rdb: rdb, clock: c.now.Load, slack: time.Hour}
		twin := newMemory(c.now.Load)
		var rules []*Rule
		for i := range 4 {
			rules = append(rules, anyLimit(rt, redistest.Name(t, fmt.Sprint("b", i))))
		}
		charged := c.now.Load()
		for range 5 {
			var batch []*question
			for range rapid.IntRange(1, 10).Draw(rt, "questions") {
				r := Request{
					Rules:   rules[rapid.IntRange(0, 3).Draw(rt, "from"):],
					Subject: Subject{Client: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "client"), Address: "x", Operation: "y", Tier: "t", Country: "NO"},
				}
				r.Cost, r.Bytes, r.Job = anyCost(rt, r.Rules), anyBytes(rt, r.Rules), rapid.SampledFrom([]string{"", "j1", "j2", "j3"}).Draw(rt, "job")
				q, err := r.question(rapid.SampledFrom([]mode{peek, spend, spend, refund}).Draw(rt, "mode"))
				if err != nil {
					rt.Fatal(err)
				}
				q.at, q.by = charged, time.Now().Add(patience)
				batch = append(batch, q)
			}
			got, err := lua.decide(t.Context(), batch)
			if err != nil {
				rt.Fatal(err)
			}
			for i, q := range batch {
				if q.mode == refund {
					twin.answer(q, make([]fill, len(q.rules)))
				}
				if got[i].err != nil {
					rt.Fatal(got[i].err)
				}
			}
			for i, q := range batch {
				if q.mode == refund {
					continue
				}
				want := twin.answer(q, make([]fill, len(q.rules)))
				if diff := cmp.Diff(want, got[i], cmp.AllowUnexported(answer{}, fill{})); diff != "" {
					rt.Fatalf("question %d: twin (-) and Lua (+) differ:\n%s", i, diff)
				}
			}
			charged = c.now.Load()
			c.pass(anyPause(rt, rules))
		}
	})
}

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
			rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour,
				24 * time.Hour, MaxWindow}),
			rapid.Custom(func(t *rapid.T) time.Duration {
				least, most := MinWindow.Microseconds(), MaxWindow.Microseconds()
				return micros(rapid.Int64Range(least, most).Draw(t, "µs"))
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
		if l.Algorithm.HasBurst() && rapid.Bool().Draw(t, "has burst") {
			l.Burst = amount.Draw(t, "burst")
		}
		return l
	}).Filter(func(l Limit) bool {
		return l.Validate() == nil // others can't be counted exactly
	}).Draw(t, "limit")
	r, err := Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// anyBytes draws bytes that mostly may fit, or none.
func anyBytes(t *rapid.T, rules []*Rule) int64 {
	if rapid.IntRange(0, 3).Draw(t, "no body") == 0 {
		return 0
	}
	return anyAmount(t, rules, true)
}

// anyCost draws costs that mostly may fit.
func anyCost(t *rapid.T, rules []*Rule) int64 { return anyAmount(t, rules, false) }

func anyAmount(t *rapid.T, rules []*Rule, bytes bool) int64 {
	least := int64(MaxAmount)
	for _, r := range rules {
		if r.kind != kindConcurrency && r.limit.Bytes == bytes {
			least = min(least, r.capacity)
		}
	}
	return rapid.OneOf(
		rapid.Just(int64(1)), rapid.Int64Range(1, least), rapid.Int64Range(1, least),
		rapid.Int64Range(1, MaxAmount),
	).Draw(t, "cost")
}

// anyPause draws pauses after which one of the rules may stand differently.
func anyPause(t *rapid.T, rules []*Rule) time.Duration {
	w := rapid.SampledFrom(rules).Draw(t, "of").limit.Window.Microseconds()
	if w <= 0 {
		w = (31 * 24 * time.Hour).Microseconds()
	}
	return micros(rapid.OneOf(
		rapid.Just(int64(1)), rapid.Int64Range(0, w/100), rapid.Int64Range(0, w),
		rapid.Int64Range(0, 3*w),
	).Draw(t, "µs"))
}

var sameVerdict = []cmp.Option{
	cmpopts.IgnoreUnexported(Verdict{}),
	cmp.Comparer(func(a, b *Rule) bool { return a == b }),
}

// Lua and the Go model give the same verdicts at every step of any history of charges, looks,
// refunds, waits and a clock that steps back. And the verdicts are true (C21). A refused request is
// refused until its RetryAfter is over, to the microsecond, and then admitted. As many requests as
// remain are admitted, and not one more.
func TestLuaAndModelAgreeAndAreHonest(t *testing.T) {
	t.Parallel()
	server, embedded := redistest.Client(t), redistest.Miniredis(t)
	rapid.Check(t, func(rt *rapid.T) {
		rdb := server
		if rapid.IntRange(0, 4).Draw(rt, "embedded") == 4 { // seldom: it takes five times as long
			rdb = embedded
		}
		c := newClock()
		h := &history{t: t, clock: c, lua: c.onRedis(rdb), model: c.local()}
		for i := range rapid.IntRange(1, 3).Draw(rt, "rules") {
			h.rules = append(h.rules, anyLimit(rt, redistest.Name(t, fmt.Sprint("m", i))))
		}
		h.whole = slices.Clone(h.rules)
		rt.Repeat(map[string]func(*rapid.T){
			"decide": h.decide, "peek": h.peek, "refund": h.refund, "debit": h.debit,
			"scale": h.scale, "wait": h.wait, "step back": h.stepBack,
		})
	})
}

// history is a series of random requests, which are decided by Lua and by the model.
type history struct {
	t          *testing.T
	clock      *clock
	lua, model *Limiter
	whole      []*Rule
	rules      []*Rule      // whole, or scaled
	allowed    [][2]Verdict // of Lua and of the model, not refunded
	jobs       int
}

func (h *history) request(t *rapid.T) Request {
	s := alice
	s.Client = rapid.SampledFrom([]string{"alice", "bob"}).Draw(t, "client")
	h.jobs++
	return Request{Rules: slices.Clone(h.rules), Subject: s, Cost: anyCost(t, h.rules),
		Bytes: anyBytes(t, h.rules), Job: fmt.Sprint("job ", h.jobs)}
}

// ask has both decide and compares their verdicts.
func (h *history) ask(t *rapid.T, r Request,
	how func(testing.TB, *Limiter, Request) Verdict) (lua, model Verdict) {
	lua, model = how(h.t, h.lua, r), how(h.t, h.model, r)
	if diff := cmp.Diff(model, lua, sameVerdict...); diff != "" {
		t.Fatalf("%+v of %+v: model (-) and Lua (+) differ:\n%s", r, h.rules, diff)
	}
	return lua, model
}

func (h *history) decide(t *rapid.T) {
	r := h.request(t)
	before, _ := h.ask(t, r, peekAt)
	lua, model := h.ask(t, r, decide)
	if lua.Allowed != before.Allowed {
		t.Fatalf("a look said %v, the decision %v", before.Allowed, lua.Allowed)
	}
	for i, s := range lua.Standings {
		b := before.Standings[i]
		if lua.Allowed && !s.Violated {
			// 0 bytes fit a limit that is overdrawn.
			b.Remaining = max(0, b.Remaining-r.Takes(s.Rule))
			b.Reset = s.Reset // a charge moves it
		}
		if s != b {
			t.Fatalf("%+v took %+v to %+v", r, before.Standings[i], s)
		}
	}
	if lua.Allowed {
		h.allowed = append(h.allowed, [2]Verdict{lua, model})
	}
	h.honest(t, r, lua)
}

func (h *history) peek(t *rapid.T) {
	r := h.request(t)
	v, _ := h.ask(t, r, peekAt)
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
		if v, _ := h.ask(t, r, peekAt); v.Allowed != (cost <= least) {
			t.Fatalf("%d remain, and a cost of %d gets %v", least, cost, v.Allowed)
		}
	}
	for bytes := leastBytes; least > 0 && bytes <= min(leastBytes+1, MaxAmount); bytes++ {
		r.Cost, r.Bytes = 1, bytes
		if v, _ := h.ask(t, r, peekAt); v.Allowed != (bytes <= leastBytes) {
			t.Fatalf("%d bytes remain, and %d get %v", leastBytes, bytes, v.Allowed)
		}
	}
}

// honest checks a refusal at moments before its end, and at its end.
func (h *history) honest(t *rapid.T, r Request, v Verdict) {
	if v.Allowed != (v.Reason == "") || v.Allowed != (v.RetryAfter == 0 && !v.Never) ||
		v.Never && v.RetryAfter != 0 {
		t.Fatalf("%+v contradicts itself", v)
	}
	if s, _ := v.Strictest(); v.Allowed || v.Never || s.Rule.kind == kindConcurrency {
		return // a job's end isn't known
	}
	now := h.clock.now.Load()
	defer h.clock.now.Store(now)
	after := v.RetryAfter.Microseconds()
	for _, µs := range []int64{rapid.Int64Range(0, after-1).Draw(t, "too early"), after - 1} {
		h.clock.now.Store(now + µs)
		if v, _ := h.ask(t, r, peekAt); v.Allowed {
			t.Fatalf("RetryAfter is %d µs, and it is admitted after %d", after, µs)
		}
	}
	h.clock.now.Store(now + after)
	if v, _ := h.ask(t, r, peekAt); !v.Allowed && !onlyPermits(v) {
		t.Fatalf("RetryAfter is %d µs, and then it is refused for %v more", after, v.RetryAfter)
	}
}

func (h *history) refund(t *rapid.T) {
	if len(h.allowed) == 0 {
		return // nothing to refund yet
	}
	i := rapid.IntRange(0, len(h.allowed)-1).Draw(t, "of")
	for j, l := range []*Limiter{h.lua, h.model} {
		if err := l.Refund(h.t.Context(), h.allowed[i][j]); err != nil {
			t.Fatal(err)
		}
	}
	h.allowed = append(h.allowed[:i], h.allowed[i+1:]...)
	h.peek(t)
}

// onlyPermits reports whether only a concurrency limit refuses.
func onlyPermits(v Verdict) bool {
	for _, s := range v.Standings {
		if s.Violated && !s.Rule.limit.Shadow && s.Rule.kind != kindConcurrency {
			return false
		}
	}
	return !v.Allowed
}

// debit takes a cost that was spent elsewhere.
func (h *history) debit(t *rapid.T) {
	r := h.request(t)
	for _, l := range []*Limiter{h.lua, h.model} {
		q, err := r.question(refund)
		if err != nil {
			t.Fatal(err)
		}
		q.cost, q.bytes = -q.cost, -q.bytes
		q.at, q.by = h.clock.now.Load(), time.Now().Add(patience)
		if _, err := l.ask(h.t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	h.peek(t)
}

// scale gives the rules other amounts, as when a grace ends or a region is on its own.
func (h *history) scale(t *rapid.T) {
	factor := rapid.SampledFrom([]float64{1, 0.1, 1. / 3, 2, 2.5}).Draw(t, "factor")
	for i, r := range h.whole {
		if scaled, err := r.Scaled(factor); err == nil { // otherwise it can't be counted exactly
			h.rules[i] = scaled
		}
	}
}

func (h *history) wait(t *rapid.T) { h.clock.pass(anyPause(t, h.rules)) }

func (h *history) stepBack(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") != 0 {
		return // a rare event
	}
	h.clock.pass(-min(anyPause(t, h.rules), 400*24*time.Hour)) // long after 1970 for any history
}

// A batch is decided as if its questions had come one by one, refunds first.
func TestABatchIsManyDecisions(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		c := newClock()
		lua := &script{rdb: rdb, clock: c.now.Load, slack: time.Hour}
		model := newMemory(c.now.Load)
		var rules []*Rule
		for i := range 4 {
			rules = append(rules, anyLimit(rt, redistest.Name(t, fmt.Sprint("b", i))))
		}
		charged := c.now.Load()
		for range 5 {
			var batch []*question
			for range rapid.IntRange(1, 10).Draw(rt, "questions") {
				client := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "client")
				r := Request{
					Rules:   rules[rapid.IntRange(0, 3).Draw(rt, "from"):],
					Subject: Subject{client, "x", "y", "t", "NO"},
				}
				r.Cost, r.Bytes = anyCost(rt, r.Rules), anyBytes(rt, r.Rules)
				r.Job = rapid.SampledFrom([]string{"", "j1", "j2", "j3"}).Draw(rt, "job")
				m := rapid.SampledFrom([]mode{peek, spend, spend, refund}).Draw(rt, "mode")
				q, err := r.question(m)
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
					model.answer(q, make([]fill, len(q.rules)))
				}
				if got[i].err != nil {
					rt.Fatal(got[i].err)
				}
			}
			for i, q := range batch {
				if q.mode == refund {
					continue
				}
				want := model.answer(q, make([]fill, len(q.rules)))
				diff := cmp.Diff(want, got[i], cmp.AllowUnexported(answer{}, fill{}))
				if diff != "" {
					rt.Fatalf("question %d: model (-) and Lua (+) differ:\n%s", i, diff)
				}
			}
			charged = c.now.Load()
			c.pass(anyPause(rt, rules))
		}
	})
}

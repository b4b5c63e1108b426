package admission

import (
	"strconv"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/limits"
)

// What is remembered of where limits stood is one caller's, and not old.
func TestRecentLimitsAreOneCallersAndNotOld(t *testing.T) {
	t.Parallel()
	p := plannerOf(t)
	common := p.plan(planKey{tier: "pro"})
	report, plain := p.plan(planKey{tier: "pro", operation: "b"}), p.plan(planKey{tier: "pro",
		operation: "none"})
	caller := func(client, address, operation string) limits.Subject {
		return limits.Subject{Client: client, Address: address, Operation: operation, Tier: "pro"}
	}
	at := time.Now()
	verdict := func(p *Plan, at time.Time) limits.Verdict {
		v := limits.Verdict{Allowed: true, At: at}
		for _, r := range p.Rules {
			v.Standings = append(v.Standings, limits.Standing{Rule: r, Remaining: 7})
		}
		return v
	}
	var h recent
	h.decision(report, limits.Request{Cost: 1, Subject: caller("a", "x", "b")}, verdict(report, at))
	for _, c := range []struct {
		plan    *Plan
		subject limits.Subject
		want    int // standings; 0: nothing is known
	}{
		{report, caller("a", "x", "b"), 3}, {common, caller("a", "x", ""), 1},
		{plain, caller("a", "x", "none"), 1},
		{report, caller("a", "y", "b"), 0}, {common, caller("b", "x", ""), 0},
	} {
		got := 0
		if v := h.recall(c.plan, c.subject, time.Hour); v != nil {
			got = len(v.Standings)
		}
		if got != c.want {
			t.Errorf("%+v: %d standings, want %d", c.subject, got, c.want)
		}
	}
	if h.recall(common, caller("a", "x", ""), -1) != nil {
		t.Error("an old reading is returned")
	}
	known := func() bool { return h.recall(common, caller("a", "x", ""), time.Hour) != nil }
	// A read that began before the decision was made says nothing.
	h.decision(report, limits.Request{Cost: 1, Subject: caller("a", "y", "b")},
		verdict(report, at.Add(time.Second)))
	h.peek(common, caller("a", "x", ""), verdict(common, at.Add(time.Second)), time.Now())
	if known() {
		t.Error("a read from before the decision is returned")
	}
	h.peek(common, caller("a", "x", ""), verdict(common, at.Add(2*time.Second)), time.Now())
	if !known() {
		t.Error("a read from after the decision isn't told")
	}
	asked := time.Now()
	h.forget("a")
	h.peek(common, caller("a", "x", ""), verdict(common, at.Add(3*time.Second)),
		asked.Add(-time.Millisecond))
	if known() {
		t.Error("a forgotten reading is returned")
	}
	// Two decisions of one moment: nobody knows which came last.
	for range 2 {
		h.decision(report, limits.Request{Cost: 1, Subject: caller("a", "x", "b")},
			verdict(report, at.Add(4*time.Second)))
	}
	if known() {
		t.Error("one of two decisions of one moment is returned")
	}
	for i := range maxRecent + 1 {
		h.peek(common, caller("n"+strconv.Itoa(i), "x", ""), verdict(common, at), time.Now())
	}
	if n := len(h.clients); n > maxRecent {
		t.Errorf("%d clients are remembered", n)
	}
}

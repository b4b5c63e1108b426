package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/limits"
)

// peeks counts how often the limits are read.
type peeks struct {
	Limiter
	n atomic.Int64
}

func (p *peeks) Peek(ctx context.Context, r limits.Request) (limits.Verdict, error) {
	p.n.Add(1)
	return p.Limiter.Peek(ctx, r)
}

// What a client spent is in the next answer's fields, though the limits aren't read for it.
func TestTheFieldsKnowOfTheCallersOwnRequests(t *testing.T) {
	t.Parallel()
	counting := &peeks{}
	w := newWorld(t, func(s *setup) {
		s.pro = append(s.pro, perClient("many", 1000, time.Hour))
		s.report = append(s.report, perClient("reports", 500, time.Hour))
		s.limiter = func(l Limiter) Limiter { counting.Limiter = l; return counting }
		s.adjust = func(w *world, c *Config) { c.operation(w.shared).Overload.FreshFor = time.Hour }
	})
	w.remember(w.shared, "", `1`, cache.Answer{Status: 200, Body: []byte("fresh")})
	left := 1000
	check := func(a answer) {
		t.Helper()
		if got := w.stated(a)["many"].r; got != int64(left) {
			t.Fatalf("%d left, want %d", got, left)
		}
	}
	id := ""
	for i := range 30 {
		operation := []string{w.report, w.plain}[i%2]
		a := w.want(w.submit(operation, `1`, key(keyA)), http.StatusAccepted)
		left--
		check(a)
		id = w.job(a).ID
		check(w.want(w.get("/v1/jobs/"+id, key(keyA)), 200))
		check(w.want(w.submit(w.shared, `1`, key(keyA)), 200))
		check(w.want(w.get("/v1/jobs/"+id, key(keyA)), 200))
	}
	// The limits are read where the last word is too old, which a slow machine may see now and then.
	if n := counting.n.Load(); n > 30 {
		t.Errorf("the limits were read %d times for 90 answers", n)
	}
	// Who asks for the limits themselves gets them as they are.
	before := counting.n.Load()
	for range 3 {
		w.rateLimits(key(keyA))
	}
	if n := counting.n.Load() - before; n < 3 {
		t.Errorf("the limits were read %d times for 3 lists of them", n)
	}
}

// What another process of the same client spends is told a moment later.
func TestTheFieldsAreNeverLongBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.pro = append(s.pro, perClient("many", 1000, time.Hour)) })
	_, another, _ := w.serve()
	id := w.job(w.want(w.submit(w.plain, `1`, key(keyA)), http.StatusAccepted)).ID
	for range 3 {
		w.want(w.call("POST", another+"/v1/jobs", `{"operation":"`+w.plain+`","payload":1}`, key(keyA)), http.StatusAccepted)
	}
	w.eventually("the other process's requests are told", func() bool {
		return w.get("/v1/jobs/"+id, key(keyA)).Header.Get("X-RateLimit-Remaining") == "996"
	})
}

// What was given back is told too.
func TestTheFieldsKnowOfRefunds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.line.Capacity = 1
		s.pro = append(s.pro, perClient("many", 1000, time.Hour))
	})
	id := w.job(w.want(w.submit(w.plain, `1`, key(keyA)), http.StatusAccepted)).ID
	for range 20 {
		w.says(w.want(w.submit(w.plain, `1`, key(keyA)), http.StatusTooManyRequests), map[string]string{"X-RateLimit-Remaining": "999"})
		w.says(w.want(w.get("/v1/jobs/"+id, key(keyA)), 200), map[string]string{"X-RateLimit-Remaining": "999"})
	}
}

func TestWhatWasHeardIsOfOneCallerAndNotOld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.pro = append(s.pro, perClient("many", 1000, time.Hour))
		s.report = append(s.report, perClient("reports", 500, time.Hour))
	})
	s := w.server
	common, report, plain := s.planner.plan(planKey{tier: "pro"}), s.planner.plan(planKey{tier: "pro", operation: w.report}), s.planner.plan(planKey{tier: "pro", operation: w.plain})
	caller := func(client, address, operation string) limits.Subject {
		return limits.Subject{Client: client, Address: address, Operation: operation, Tier: "pro"}
	}
	at := time.Now()
	verdict := func(p *plan, at time.Time) limits.Verdict {
		v := limits.Verdict{Allowed: true, At: at}
		for _, r := range p.rules {
			v.Standings = append(v.Standings, limits.Standing{Rule: r, Remaining: 7})
		}
		return v
	}
	var h heard
	h.decision(report, limits.Request{Cost: 1, Subject: caller("a", "x", w.report)}, verdict(report, at))
	for _, c := range []struct {
		plan    *plan
		subject limits.Subject
		want    int // standings; 0: nothing is known
	}{
		{report, caller("a", "x", w.report), 2}, {common, caller("a", "x", ""), 1}, {plain, caller("a", "x", w.plain), 1},
		{report, caller("a", "y", w.report), 0}, {common, caller("b", "x", ""), 0},
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
		t.Error("old word is told")
	}
	known := func() bool { return h.recall(common, caller("a", "x", ""), time.Hour) != nil }
	// A read that began before the decision was made says nothing.
	h.decision(report, limits.Request{Cost: 1, Subject: caller("a", "y", w.report)}, verdict(report, at.Add(time.Second)))
	h.peek(common, caller("a", "x", ""), verdict(common, at.Add(time.Second)), time.Now())
	if known() {
		t.Error("a read from before the decision is told")
	}
	h.peek(common, caller("a", "x", ""), verdict(common, at.Add(2*time.Second)), time.Now())
	if !known() {
		t.Error("a read from after the decision isn't told")
	}
	asked := time.Now()
	h.forget("a")
	h.peek(common, caller("a", "x", ""), verdict(common, at.Add(3*time.Second)), asked.Add(-time.Millisecond))
	if known() {
		t.Error("what was forgotten is told")
	}
	// Two decisions of one moment: nobody knows which came last.
	for range 2 {
		h.decision(report, limits.Request{Cost: 1, Subject: caller("a", "x", w.report)}, verdict(report, at.Add(4*time.Second)))
	}
	if known() {
		t.Error("one of two decisions of one moment is told")
	}
	for i := range maxHeard + 1 {
		h.peek(common, caller("n"+strconv.Itoa(i), "x", ""), verdict(common, at), time.Now())
	}
	if n := len(h.clients); n > maxHeard {
		t.Errorf("%d clients are remembered", n)
	}
}

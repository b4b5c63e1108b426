package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/web"
)

// A list has Redis look at many jobs, and for as long everybody else waits. So that lists can't starve the service, each request looks
// at no more than leaky.MaxWork of them, a client has one list at a time, and the jobs looked at are charged to its tier's limits on
// reads. What looks at one job, as a status does, is charged to none: its script call is shared with others.

// readWait is how long a list waits for the client's list before it. Lists take a few ms; with storeTime an answer comes within a second.
const readWait = 300 * time.Millisecond

// operators share one turn. No client's id is empty.
const operators = ""

// reading holds who has a list being read. The zero value is ready. Safe for concurrent use.
type reading struct {
	mu    sync.Mutex
	turns map[string]*readTurn // guarded by mu
}

type readTurn struct {
	taken chan struct{} // has a value while a list is being read
	users int           // guarded by reading.mu: those who have the turn or wait for it
}

// enter waits for the turn of the one who reads until ctx ends. leave must be called after.
func (r *reading) enter(ctx context.Context, who string) (leave func(), ok bool) {
	r.mu.Lock()
	if r.turns == nil {
		r.turns = make(map[string]*readTurn)
	}
	turn := r.turns[who]
	if turn == nil {
		turn = &readTurn{taken: make(chan struct{}, 1)}
		r.turns[who] = turn
	}
	turn.users++
	r.mu.Unlock()
	left := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if turn.users--; turn.users == 0 {
			delete(r.turns, who)
		}
	}
	select {
	case turn.taken <- struct{}{}:
		return func() { <-turn.taken; left() }, true
	case <-ctx.Done():
		left()
		return nil, false
	}
}

// readTurn waits until no other list of the same reader is under way.
func (c *call) readTurn(who string) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(c.R.Context(), readWait)
	defer cancel()
	leave, ok := c.s.reading.enter(ctx, who)
	if !ok {
		p := web.Problem(http.StatusTooManyRequests, api.CodeTooManyLists, "Another list of yours is being read. Ask for one at a time.")
		p.RetryAfter = 1
		c.refusedRead(p)
		return nil, p
	}
	c.Renew(0)
	return leave, nil
}

// refusedRead logs that a list was refused, as logDecision does of decisions.
func (c *call) refusedRead(p *api.Problem) {
	if c.s.Web.AnswerLog.Allow(c.Began) {
		c.s.Web.Log.LogAttrs(c.Ctx, slog.LevelInfo, "list refused", slog.String("code", p.Code), slog.String("reason", p.Reason),
			slog.String("client", c.caller.Name), slog.String("request_id", c.RequestID))
	}
}

// charge is what a list was charged before it looked.
type charge struct {
	work    int // jobs that it may look at
	verdict limits.Verdict
}

// chargeReads charges the caller's limits on reads with the jobs that a list may look at: at most so many, and no more than the limits ever
// allow at once.
func (c *call) chargeReads(work int) (charge, error) {
	p := c.s.Admission.ReadsPlan(c.caller)
	if len(p.Rules) == 0 {
		return charge{work: work}, nil
	}
	for _, r := range p.Rules {
		work = atMostOnce(work, r)
	}
	request := limits.Request{Cost: int64(work), Subject: admission.Subject(c.caller.Client, "")}
	v, err := c.s.Admission.Decide(c.Ctx, p, request)
	if err == nil && v.Never { // a region's part of a limit may be less
		for _, s := range v.Standings {
			work = atMostOnce(work, s.Rule)
		}
		request.Cost = int64(work)
		v, err = c.s.Admission.Decide(c.Ctx, p, request)
	}
	if err != nil {
		return charge{}, web.StoreError(err)
	}
	c.verdict = &v
	if !v.Allowed {
		refusal := overLimit(&admission.Refused{Terms: admission.Terms{Plan: p, Verdict: &v},
			By: admission.RefusedBy(p, v, request)}, 0)
		c.refusedRead(refusal)
		return charge{}, refusal
	}
	return charge{work: work, verdict: v}, nil
}

// atMostOnce is work, or what a limit that is in force allows at once.
func atMostOnce(work int, r *limits.Rule) int {
	if l := r.Limit(); !l.Shadow {
		return int(min(int64(work), l.Capacity()))
	}
	return work
}

// settle gives back what the list was charged for work that was left over. It is charged for one job at least.
func (ch charge) settle(c *call, left int) {
	if len(ch.verdict.Standings) == 0 || left <= 0 {
		return
	}
	left = min(left, ch.work-1)
	if err := c.s.Admission.Limiter.Settle(c.Ctx, ch.verdict, int64(ch.work-left)); err != nil {
		c.s.Web.StoreLog.Do(func() { c.s.Web.Log.Warn("refund of a list failed", "request_id", c.RequestID, "error", err) })
		return
	}
	v := ch.verdict.Returned(limits.Request{Cost: int64(left)})
	c.verdict = &v
}

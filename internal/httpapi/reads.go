package httpapi

import (
	"errors"
	"log/slog"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/web"
)

// For a list, Redis looks at many jobs, and all other requests wait meanwhile. So each request
// looks at no more than leaky.MaxWork jobs, a client can read one list at a time, and the jobs
// looked at are charged to its tier's limits on reads. A request that looks at one job, such as a
// status, isn't charged: its script call is shared with others.

// listTurn waits until no other list of the same client is under way.
func (c *call) listTurn() (leave func(), err error) {
	leave, err = c.s.lists.Take(&c.Call, c.caller.ID)
	if p, ok := errors.AsType[*api.Problem](err); ok {
		c.refusedRead(p)
	}
	return leave, err
}

// refusedRead logs that a list was refused, as logDecision logs decisions.
func (c *call) refusedRead(p *api.Problem) {
	if c.s.Web.AnswerLog.AllowN(c.Began, 1) {
		c.s.Web.Log.LogAttrs(c.Ctx, slog.LevelInfo, "list refused",
			slog.String("code", p.Code), slog.String("reason", p.Reason),
			slog.String("client", c.caller.Name), slog.String("request_id", c.RequestID))
	}
}

// charge is what a list was charged before it looked.
type charge struct {
	work    int // jobs that it may look at
	verdict limits.Verdict
}

// chargeReads charges the caller's limits on reads with the jobs that a list may look at: at most
// work, and no more than the limits ever allow at once.
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

// atMostOnce returns work, or less if a limit in force allows less at once.
func atMostOnce(work int, r *limits.Rule) int {
	if l := r.Limit(); !l.Shadow {
		return int(min(int64(work), l.Capacity()))
	}
	return work
}

// settle refunds the list's charge for unused work. A list is charged for at least one job.
func (ch charge) settle(c *call, left int) {
	if len(ch.verdict.Standings) == 0 || left <= 0 {
		return
	}
	left = min(left, ch.work-1)
	if err := c.s.Admission.Limiter.Settle(c.Ctx, ch.verdict, int64(ch.work-left)); err != nil {
		c.s.Web.StoreLog.Do(func() {
			c.s.Web.Log.Warn("refund of a list failed", "request_id", c.RequestID, "error", err)
		})
		return
	}
	v := ch.verdict.Returned(limits.Request{Cost: int64(left)})
	c.verdict = &v
}

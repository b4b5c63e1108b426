package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forebay/forebay/internal/jobs"
)

// On a single Redis, and with Sentinel, one script decides on a request's limits and gives its job
// a place in the line. The script is put together from this package's part (Script) and the line's.
// So a request that gets no job is charged nothing, and of two duplicate requests only one is
// charged. On a cluster this takes two steps; see cluster.go.

// Ending is how a step with a Part ended.
type Ending int

const (
	Taken   Ending = iota // the request got its job, or its part in one: it is charged
	Limited               // the limits refused the request, and the step did nothing
	Left                  // something else refused the request, or its job exists: it isn't charged
)

// Part is the limits' part of a step that decides on one request. It can be used for one step.
type Part struct {
	request Request
	limiter *Limiter
	q       *question // nil: the limits were decided before, or there are none
	answer  answer    // of q, after the step
	holds   jobs.Holds
}

// Charge returns the part in the form that Script takes, or nil if the script has no limits to
// decide on.
func (p *Part) Charge() any {
	if p.q == nil {
		return nil
	}
	return p
}

// Holds returns the permits that the request's job will hold if it is admitted.
func (p *Part) Holds() jobs.Holds { return p.holds }

// Verdict returns the limits' verdict, after a step whose script decided on the part.
func (p *Part) Verdict() Verdict {
	v := verdict(p.request, []*question{p.q}, []answer{p.answer})
	if v.charge != nil {
		v.charge.by = p.limiter
		v.charge.report(p.limiter.region)
	}
	return v
}

// Part returns the limits' part of a step that decides on r. Its errors, ErrCost and ErrRules, are
// mistakes of the caller.
func (l *Limiter) Part(r Request) (*Part, error) {
	r, q, err := l.question(r, spend)
	if err != nil || len(q.rules) == 0 {
		return &Part{}, err
	}
	return &Part{request: r, limiter: l, q: q, holds: q.holds}, nil
}

// Along decides on a request in one step with other work on it. It calls step with its part. step
// has a script decide on the part, or does its own work alone if the part has no Charge, and
// returns how that ended. If a concurrency limit refused, and jobs that held its permits are found
// to have ended, step is called a second time.
//
// The verdict is Decide's. After Left it says where the limits stand, and whether they would have
// allowed the request. step isn't called if the refusal is remembered (Request.Recall).
//
// An error is step's, or one of Decide's. After it, the request may have been charged only if step
// may have done its work. Along takes as long as step does, and on a cluster as long as Decide and
// Refund in addition.
func (l *Limiter) Along(ctx context.Context, r Request,
	step func(*Part) (Ending, error)) (Verdict, error) {
	if l.split {
		return l.oneAfterTheOther(ctx, r, step)
	}
	if v, ok := l.recall(r); ok {
		return v, nil
	}
	v, ending, err := l.along(r, step)
	if err == nil && ending == Limited && l.freed(ctx, &v) {
		v, _, err = l.along(r, step)
	}
	return v, err
}

func (l *Limiter) along(r Request, step func(*Part) (Ending, error)) (Verdict, Ending, error) {
	p, err := l.Part(r)
	if err != nil {
		return Verdict{}, Left, err
	}
	sent := time.Now()
	ending, err := step(p)
	if err != nil || p.q == nil {
		return Verdict{Allowed: err == nil}, ending, err
	}
	if p.answer.now == 0 {
		return Verdict{}, ending, errNotDecided
	}
	l.remember(r, p.answer, sent)
	return p.Verdict(), ending, nil
}

var errNotDecided = errors.New("limits: the step didn't decide about them")

// Script is the limits' part of the scripts that decide on Parts.
type Script struct{}

// Lua returns the text that defines open_limits (limits.lua).
func (Script) Lua() string { return openLimits }

// Gather puts the charges of Parts together for one call of the script. It takes as many of them as
// fit, in their order, and at least one. read stores the reply that the script got from
// open_limits. The Parts have no verdict until read has returned without an error.
func (Script) Gather(charges []any) (
	n int, keys []string, args []any, read func(reply []int64) error) {
	parts, questions := make([]*Part, len(charges)), make([]*question, len(charges))
	for i, charge := range charges {
		parts[i] = charge.(*Part)
		questions[i] = parts[i].q
	}
	c := newCall(questions)
	args = append(args, c.encode(0, keySlack))
	for _, text := range c.members {
		args = append(args, text)
	}
	return len(c.batch), c.keys, args, func(reply []int64) error {
		answers := make([]answer, len(c.batch))
		if err := c.decode(reply, answers); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
		for i := range answers {
			parts[i].answer = answers[i]
		}
		return nil
	}
}

// question returns r with its rules as they hold now, and the question to ask of it.
func (l *Limiter) question(r Request, m mode) (Request, *question, error) {
	r.Rules = l.rulesNow(r.Rules)
	q, err := r.question(m)
	if err != nil {
		return r, nil, fmt.Errorf("limits: %w", err)
	}
	q.by = time.Now().Add(l.within)
	if l.shared {
		q.holds = q.wanted(l.split)
	}
	return r, q, nil
}

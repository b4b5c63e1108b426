package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forebay/forebay/internal/jobs"
)

// On a single Redis, and with Sentinel, a request's limits are decided in one step with what else becomes of it: the script that gives its job
// a place in the line is put together from the line's part and this package's (Script). So a request that gets no job has
// charged nothing, and of two with one Idempotency-Key one charges. On a cluster that takes two steps; see cluster.go.

// Ending is what a step with a Part came to.
type Ending int

const (
	Taken   Ending = iota // the request has what it asked for: it is charged
	Limited               // its limits refused it, and nothing else was done
	Left                  // it was refused by something else, or has what it asked for already: it isn't charged
)

// Part is the limits' part of a step that decides on one request. It is good for one step.
type Part struct {
	request Request
	limiter *Limiter
	q       *question // nil: the limits were decided before, or there are none
	answer  answer    // of q, once the step was made
	holds   jobs.Holds
}

// Charge is the part as Script takes it; nil where the script has no limits to decide.
func (p *Part) Charge() any {
	if p.q == nil {
		return nil
	}
	return p
}

// Holds are the permits that the request's job will hold if it is admitted.
func (p *Part) Holds() jobs.Holds { return p.holds }

// Verdict is what the limits said in a step that was made, and that they decided in.
func (p *Part) Verdict() Verdict {
	v := verdict(p.request, []*question{p.q}, []answer{p.answer})
	if v.charge != nil {
		v.charge.by = p.limiter
		v.charge.tell(p.limiter.region)
	}
	return v
}

// Part returns the limits' part of a step that decides on r. An error is the caller's mistake: ErrCost or ErrRules.
func (l *Limiter) Part(r Request) (*Part, error) {
	r, q, err := l.question(r, spend)
	if err != nil || len(q.rules) == 0 {
		return &Part{}, err
	}
	return &Part{request: r, limiter: l, q: q, holds: q.holds}, nil
}

// Along decides on a request in one step with something else. step makes that step: it has a script decide on the part (or, where that has no
// Charge, does the rest alone), and says what it came to. It is called again where the first time a limit of concurrency refused, and jobs
// that held its permits were found to have ended. The verdict is Decide's; where the step came to Left it says where the limits stand, and
// whether they would have allowed the request. A refusal that is remembered (Request.Recall) makes no step. An error is step's, or one of Decide's; the request may have been charged then only if
// step may have done the rest. It takes as long as step does, and on a cluster as long as Decide and Refund do too.
func (l *Limiter) Along(ctx context.Context, r Request, step func(*Part) (Ending, error)) (Verdict, error) {
	if l.split {
		return l.oneAfterTheOther(ctx, r, step)
	}
	if v, ok := l.recall(r); ok {
		return v, nil
	}
	v, ending, err := l.along(r, step)
	if err == nil && ending == Limited && l.places != nil && len(v.places) > 0 && l.places.after(ctx, &v) {
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
	l.heard(r, p.answer, sent)
	return p.Verdict(), ending, nil
}

var errNotDecided = errors.New("limits: the step didn't decide about them")

// Script is the limits' part of scripts that decide on Parts.
type Script struct{}

// Lua defines open_limits (limits.lua).
func (Script) Lua() string { return openLimits }

// Gather puts the charges of Parts together for one call of the script: as many of those given as fit in one, in their order and one at
// least. read takes in the reply that the script got from open_limits. Before it has returned without an error, no verdict is there.
func (Script) Gather(charges []any) (n int, keys []string, args []any, read func(reply []int64) error) {
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

// question is a request as a source takes it, by the rules that hold now, and that request.
func (l *Limiter) question(r Request, m mode) (Request, *question, error) {
	r.Rules = l.rulesNow(r.Rules)
	q, err := r.question(m)
	if err != nil {
		return r, nil, fmt.Errorf("limits: %w", err)
	}
	q.by = time.Now().Add(l.within)
	if l.shared {
		q.holds = q.permits(l.split)
	}
	return r, q, nil
}

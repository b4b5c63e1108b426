package leaky

import (
	"context"
	"fmt"
)

// FailedFilter says which failed jobs are meant.
type FailedFilter struct {
	Operation string // "": any
	Client    string // "": any
	Code      string // of jobs.Failure; "": any
}

// What Redrive says of a job, beside LineFull.
const (
	Redriven  Outcome = "redriven"   // it waits again
	NotFailed Outcome = "not_failed" // it hasn't failed, or was redriven already: nothing was changed
	ForNobody Outcome = "for_nobody" // it was a refresh, and no caller has a share in it: nothing was changed
)

// Redrive puts a failed job back into the line, in one step, as if it had just been offered again: at the end of its
// client's jobs, with all its attempts, a new max_age, no start_within and no failure or answer. Id and payload stay, and
// it drains at the rate like any other; those who have shares in it have them again, and others may join it, unless another
// of its Join is under way. LineFull: there is no room (an operator minds neither the client's share nor the
// longest wait). ErrUnknownJob: it isn't on record any more. A lost answer may be asked for again: NotFailed then, if it
// was carried out.
func (l *Line) Redrive(ctx context.Context, id string) (Outcome, error) {
	outcomes, err := l.redrive(ctx, []string{id})
	if err != nil {
		return "", err
	}
	if outcomes[0] == unknownJob {
		return "", ErrUnknownJob
	}
	return outcomes[0], nil
}

const unknownJob Outcome = "unknown"

// RedriveResult is what RedriveAll has done.
type RedriveResult struct {
	Redriven int     // jobs that wait again
	Stopped  Outcome // LineFull: no room for more; MaxReached: there may be more; "": none is left
}

// MaxReached says that as many jobs were redriven as were asked for.
const MaxReached Outcome = "max_reached"

// RedriveAll redrives the failed jobs that f means, the oldest first, at most max of them, and none that fails while it
// works. Its steps are bounded, its length is max's; the end of ctx ends it. With an error comes what was done before it; it may be
// called again.
func (l *Line) RedriveAll(ctx context.Context, f FailedFilter, max int) (RedriveResult, error) {
	var done RedriveResult
	if max < 1 {
		return done, fmt.Errorf("line of %s: redrive at least 1 job, not %d", l.settings.Backend, max)
	}
	q := query{place: place{key: keyFailed}, client: f.Client, operation: f.Operation, code: f.Code}
	for !q.end() {
		if done.Redriven >= max {
			done.Stopped = MaxReached
			return done, nil
		}
		q.limit = min(max-done.Redriven, MaxWork)
		found, err := l.list(ctx, q)
		if err != nil {
			return done, err
		}
		if q.until.IsZero() {
			q.until = found.now // a job that fails again isn't redriven again
		}
		q.place = found.next
		if err := l.redriveEach(ctx, found.jobs, &done); err != nil || done.Stopped != "" {
			return done, err
		}
	}
	return done, nil
}

func (l *Line) redriveEach(ctx context.Context, page []Look, done *RedriveResult) error {
	ids := make([]string, len(page))
	for i, look := range page {
		ids[i] = look.Job.ID
	}
	for len(ids) > 0 {
		outcomes, err := l.redrive(ctx, ids[:min(len(ids), maxRedrive)])
		if err != nil {
			return err
		}
		for _, outcome := range outcomes {
			switch outcome {
			case Redriven:
				done.Redriven++
			case LineFull:
				done.Stopped = LineFull
				return nil
			}
		}
		ids = ids[len(outcomes):]
	}
	return nil
}

// maxRedrive is how many jobs one call puts back, unless their records are large: the script stops at 1 MiB.
const maxRedrive = 64

// redrive is one call of the redrive script. It answers for one job at least.
func (l *Line) redrive(ctx context.Context, ids []string) ([]Outcome, error) {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	a, err := l.run(ctx, redriveScript, args...)
	if err != nil {
		return nil, err
	}
	if len(a.values) == 0 || len(a.values) > len(ids) {
		return nil, errAnswer
	}
	outcomes := make([]Outcome, len(a.values))
	for i := range outcomes {
		outcomes[i] = Outcome(a.text())
	}
	return outcomes, a.err
}

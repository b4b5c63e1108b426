package leaky

import (
	"context"
	"fmt"
	"time"
)

// FailedFilter selects failed jobs.
type FailedFilter struct {
	Operation string // "": any
	Client    string // "": any
	Code      string // of jobs.Failure; "": any
}

// Outcomes of Redrive, beside LineFull.
const (
	Redriven  Outcome = "redriven"   // it waits again
	NotFailed Outcome = "not_failed" // it hasn't failed, or was redriven already: nothing changed
)

// Redrive puts a failed job back into the line, in one step, as if it had just been offered: at the
// end of its client's jobs, with all its attempts, a new max_age, no start_within, and no failure
// or answer. Id and payload stay. Its subscriptions are restored, and callers may join it again,
// unless another job with its Join is under way. LineFull: there is no room in the line; the
// client's share and the longest wait don't matter. Redrive returns ErrUnknownJob if the job isn't
// on record any more. It may be repeated after an error, and then returns NotFailed if it was
// carried out before.
func (l *Line) Redrive(ctx context.Context, id string) (Outcome, error) {
	outcomes, err := l.redrive(ctx, time.Time{}, []string{id})
	if err != nil {
		return "", err
	}
	if outcomes[0] == unknownJob {
		return "", ErrUnknownJob
	}
	return outcomes[0], nil
}

const unknownJob Outcome = "unknown"

// RedriveResult is the result of RedriveAll.
type RedriveResult struct {
	Redriven int     // jobs that wait again
	Skipped  int     // jobs that had been redriven meanwhile, or are gone
	Stopped  Outcome // LineFull: no room for more; MaxReached: there may be more; "": none is left
}

// MaxReached means that the maximum number of jobs was redriven.
const MaxReached Outcome = "max_reached"

// RedriveAll redrives up to max failed jobs that f selects, the oldest first, and none that fails
// while it works. Each step is bounded; the end of ctx ends it between steps. With an error it
// returns the result so far, and it may be called again.
func (l *Line) RedriveAll(ctx context.Context, f FailedFilter, max int) (RedriveResult, error) {
	var done RedriveResult
	if max < 1 {
		return done, fmt.Errorf("line of %s: redrive at least 1 job, not %d", l.settings.Backend,
			max)
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
		err = l.redriveEach(ctx, idsOf(found.jobs), q.until, &done)
		if err != nil || done.Stopped != "" {
			return done, err
		}
	}
	return done, nil
}

func idsOf(page []Look) []string {
	ids := make([]string, len(page))
	for i, look := range page {
		ids[i] = look.Job.ID
	}
	return ids
}

// redriveEach redrives jobs, none that failed after until, and adds to done.
func (l *Line) redriveEach(
	ctx context.Context, ids []string, until time.Time, done *RedriveResult,
) error {
	for len(ids) > 0 {
		outcomes, err := l.redrive(ctx, until, ids[:min(len(ids), maxRedrive)])
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
			default:
				done.Skipped++
			}
		}
		ids = ids[len(outcomes):]
	}
	return nil
}

// maxRedrive bounds the jobs that one call redrives. The script also stops at 1 MiB of records.
const maxRedrive = 64

// redrive makes one call of the redrive script, for jobs that failed until then (zero: whenever
// they did). It returns outcomes for at least one of the ids.
func (l *Line) redrive(ctx context.Context, until time.Time, ids []string) ([]Outcome, error) {
	args := []any{""}
	if !until.IsZero() {
		args[0] = until.UnixMicro()
	}
	for _, id := range ids {
		args = append(args, id)
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

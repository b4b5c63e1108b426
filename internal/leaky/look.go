package leaky

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
)

// looked is a Look, or an error for this job only.
type looked struct {
	Look
	err error
}

// Look returns a job and its standing. Concurrent looks share a script call. A subscription has the
// standing of the job that it follows (Job.Of), until it is canceled. Look returns ErrUnknownJob if
// there is no such job on record, as a *GoneError if there was one.
func (l *Line) Look(ctx context.Context, id string) (Look, error) {
	found, err := l.looks.Do(ctx, id)
	if err != nil {
		return Look{}, err
	}
	return found.Look, found.err
}

// look makes one shared call of the look script.
func (l *Line) look(ctx context.Context, ids []string) ([]looked, error) {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	a, err := l.run(ctx, lookScript, args...)
	if err != nil {
		return nil, err
	}
	now, waitingOn, callTime := a.when(), a.text(), a.micros()
	out := make([]looked, len(ids))
	for i := range out {
		out[i].Look, out[i].err = readLook(ids[i], a.list(), waitingOn)
		out[i].Now, out[i].CallTime = now, callTime
		if out[i].err != nil && !errors.Is(out[i].err, ErrUnknownJob) {
			out[i].err = fmt.Errorf("job %s: %w", ids[i], out[i].err)
		}
	}
	return out, a.err
}

func readLook(id string, a *answer, waitingOn string) (Look, error) {
	record := a.text()
	if record == "" {
		return Look{}, unknown(a)
	}
	job, _, err := jobs.DecodeRecord(id, []byte(record))
	if err != nil {
		return Look{}, err
	}
	job.Payload = nil
	look := Look{Job: job, Position: a.number(), Wait: a.micros()}
	if look.Position > 0 {
		look.WaitingOn = waitingOn
	}
	fields := a.list()
	look.Standing = jobs.Standing{State: jobs.Waiting}
	if len(fields.values) == 0 {
		return look, firstError(a.err, fields.err)
	}
	look.Standing = standing(fields)
	if born := fields.when(); !born.IsZero() {
		look.Job.CreatedAt = born // the record of a redriven job has the time of the redrive
	}
	look.Standing.Result.Fields = jobs.Fields(fields.text())
	return look, firstError(a.err, fields.err)
}

// unknown returns the error for a job that isn't on record, from the trace that may be left of it.
func unknown(a *answer) error {
	if owner := a.text(); owner != "" {
		return newGoneError(owner)
	}
	return firstError(a.err, ErrUnknownJob)
}

func standing(a *answer) jobs.Standing {
	s := jobs.Standing{State: jobs.State(a.text()), Attempts: int(a.number()), NextAt: a.when(),
		StartedAt: a.when(), FinishedAt: a.when(), ExpiresAt: a.when(), Canceling: a.text() != "",
		Failure: jobs.Failure{Code: a.text(), Detail: a.text()},
		Result:  jobs.Meta{Status: int(a.number()), ContentType: a.text(), Size: a.number()},
		Version: a.number()}
	switch {
	case s.State == "":
		s.State = jobs.Waiting
	case s.State.Final():
		s.Canceling = false
	}
	if s.State != jobs.Delayed {
		s.NextAt = jobs.Standing{}.NextAt
	}
	return s
}

// Result returns the bytes of a job's stored answer, or ErrNoResult if there is none any more.
func (l *Line) Result(ctx context.Context, id string) ([]byte, error) {
	body, err := l.rdb.Get(ctx, jobs.ResultKey(l.settings.Backend, id)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, ErrNoResult
	}
	if err != nil {
		return nil, fmt.Errorf("result of job %s: %w", id, err)
	}
	return body, nil
}

// ResultPart returns the n bytes of a job's stored answer that begin at byte from; n is at least 1.
// It returns ErrNoResult if the answer has no such bytes or has expired.
func (l *Line) ResultPart(ctx context.Context, id string, from, n int64) ([]byte, error) {
	part, err := l.rdb.GetRange(ctx, jobs.ResultKey(l.settings.Backend, id), from, from+n-1).Bytes()
	switch {
	case err != nil:
		return nil, fmt.Errorf("result of job %s: %w", id, err)
	case int64(len(part)) != n:
		return nil, ErrNoResult
	}
	return part, nil
}

// Cancel ends a waiting job at once, and aborts the call of a running one. A subscription ends at
// once, and the job goes on; with the last subscription, the job is canceled. Cancel returns
// ErrUnknownJob if there is no such job on record, as a *GoneError if there was one.
func (l *Line) Cancel(ctx context.Context, id string) (CancelOutcome, error) {
	a, err := l.run(ctx, cancelScript, id)
	if err != nil {
		return "", err
	}
	outcome := CancelOutcome(a.text())
	if outcome == "unknown" {
		return "", unknown(&a)
	}
	return outcome, a.err
}

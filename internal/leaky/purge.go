package leaky

import (
	"context"
	"strings"
)

// PurgeOutcome is the outcome of Purge.
type PurgeOutcome string

const (
	Purged   PurgeOutcome = "purged"    // record, payload and result are removed, or were before
	NotEnded PurgeOutcome = "not_ended" // the job waits or runs: nothing changed
)

// Purge removes the record, payload and result of a job that has ended. For a subscription it
// removes only that; the shared job is removed with its last subscription. Purge returns
// ErrUnknownJob if there is no such job.
func (l *Line) Purge(ctx context.Context, id string) (PurgeOutcome, error) {
	a, err := l.run(ctx, purgeScript, id)
	if err != nil {
		return "", err
	}
	outcome := PurgeOutcome(a.text())
	if outcome == "unknown" {
		return "", ErrUnknownJob
	}
	return outcome, a.err
}

// GoneError means that a job has ended and is no longer on record: the record has expired, or the
// job was purged. It is also an ErrUnknownJob.
type GoneError struct {
	owner string // clientTag

	// Spent means that the job was purged and its record would not have expired yet. Until then its
	// id isn't used again.
	Spent bool
}

// newGoneError reads the trace that is left of a job (trace_of in prelude.lua).
func newGoneError(text string) *GoneError {
	owner, spent := strings.CutSuffix(text, "!")
	return &GoneError{owner: owner, Spent: spent}
}

// OwnedBy reports whether the client owned the job.
func (e *GoneError) OwnedBy(client string) bool { return e.owner == clientTag(client) }

// Anonymous reports whether the job's caller was anonymous.
func (e *GoneError) Anonymous() bool { return len(e.owner) == 2*tagBytes+len(anonymousMark) }

func (e *GoneError) Error() string { return "the job is on record no more" }

// Unwrap returns ErrUnknownJob.
func (e *GoneError) Unwrap() error { return ErrUnknownJob }

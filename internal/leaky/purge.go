package leaky

import (
	"context"
	"strings"
)

// PurgeOutcome is what Purge found.
type PurgeOutcome string

const (
	Purged   PurgeOutcome = "purged"    // record, payload and result are gone, or were before
	NotEnded PurgeOutcome = "not_ended" // it waits or runs: nothing changed
)

// Purge removes what is kept of a job that has ended. Of a share in a job, that is the share; the job itself goes with the last of
// them. ErrUnknownJob: no such job.
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

// GoneError says that a job ended and is on record no more: its time is over, or it was purged. It is an ErrUnknownJob, too.
type GoneError struct {
	owner string // clientTag

	// Spent says that it was purged and its record would be there still: the id isn't used again before it would have gone.
	Spent bool
}

// newGoneError reads what the scripts tell of a job that is gone.
func newGoneError(text string) *GoneError {
	owner, spent := strings.CutSuffix(text, "!")
	return &GoneError{owner: owner, Spent: spent}
}

// OwnedBy reports whether the job was the client's.
func (e *GoneError) OwnedBy(client string) bool { return e.owner == clientTag(client) }

// Anonymous reports whether the job was of a caller without a key.
func (e *GoneError) Anonymous() bool { return len(e.owner) == 2*tagBytes+len(anonymousMark) }

func (e *GoneError) Error() string { return "the job is on record no more" }

// Unwrap makes it an ErrUnknownJob for whoever doesn't care.
func (e *GoneError) Unwrap() error { return ErrUnknownJob }

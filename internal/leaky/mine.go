package leaky

import (
	"context"
	"errors"
)

// Mark is a place in a client's list of jobs, which begins with the newest: behind the job of that id, accepted at that time. The zero
// value is the beginning.
type Mark struct {
	At int64 // µs, Redis's clock
	ID string
}

// MineFilter says which of a client's jobs to list, and from where on.
type MineFilter struct {
	Client    string // required
	Status    string // a public word of jobs.State; "": any
	Operation string // "": any
	After     Mark
	Limit     int // 1 to MaxPage
}

// MinePage is a part of a client's list, newest first. It may have fewer jobs than Limit, or none, and still not be the last: one call
// looks at a bounded number of jobs.
type MinePage struct {
	Jobs []Look
	Next Mark // where to go on: no job that is newer is missing from what was listed so far. The zero value: this was the last page
}

// Mine lists the jobs of one client on this backend that are on record, newest first, whatever became of them. A Mark stands while jobs come
// and go.
func (l *Line) Mine(ctx context.Context, f MineFilter) (MinePage, error) {
	return MinePage{}, errors.New("not yet")
}

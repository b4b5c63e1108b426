package leaky

import (
	"context"
	"fmt"
	"time"

	"github.com/forebay/forebay/internal/jobs"
)

// Mark is a place in a client's lists of jobs, the newest first: behind the job with that id,
// accepted at that time. It is a place in the list of every backend: no two jobs of one backend are
// accepted in the same µs, and jobs of two backends in the same µs are ordered by UUID, the greater
// first. The zero value is the beginning.
type Mark struct {
	At int64 // µs, Redis's clock
	ID string
}

// MineFilter selects the jobs of a client to list, and where to begin.
type MineFilter struct {
	Client    string // required
	Status    string // a value of jobs.State.Public; "": any
	Operation string // "": any
	After     Mark
	Limit     int // 1 to MaxPage
	Work      int // jobs to look at, at most: 1 to MaxWork; 0: MaxWork
}

// MinePage is a page of a client's list, the newest job first. A page that isn't the last may have
// fewer jobs than Limit, or none, because one call looks at a bounded number of jobs.
type MinePage struct {
	Jobs []Look
	Next Mark // of the next page: all newer jobs have been listed; zero after the last page
	Work int  // jobs that were looked at
}

// Mine lists the jobs of one client on this backend that are on record, in any state, the newest
// first. A Mark stays valid while jobs come and go.
func (l *Line) Mine(ctx context.Context, f MineFilter) (MinePage, error) {
	if f.Limit < 1 || f.Limit > MaxPage {
		return MinePage{}, fmt.Errorf("line of %s: a page has 1 to %d jobs, not %d",
			l.settings.Backend, MaxPage, f.Limit)
	}
	work, err := l.work(f.Work)
	if err != nil {
		return MinePage{}, err
	}
	score, member, ours := any(""), "", ""
	if f.After != (Mark{}) {
		bytes, ok := jobs.IDBytes(f.After.ID)
		if !ok {
			return MinePage{}, fmt.Errorf("line of %s: list behind job %q: %w", l.settings.Backend,
				f.After.ID, ErrCursor)
		}
		score, member = f.After.At, string(bytes[:])
		if backend, _ := jobs.ParseID(f.After.ID); backend == l.settings.Backend {
			ours = "1"
		}
	}
	a, err := l.run(ctx, mineScript, clientTag(f.Client), score, member, min(f.Limit, maxGiven),
		work, f.Operation, f.Status, ours)
	if err != nil {
		return MinePage{}, err
	}
	now, waitingOn, callTime := a.when(), a.text(), a.micros()
	page := MinePage{Next: Mark{At: a.number(), ID: a.text()}, Work: int(a.number())}
	for len(a.values) > 0 && a.err == nil {
		row := a.list()
		id := row.text()
		look, err := readLook(id, row, waitingOn)
		if err != nil {
			return MinePage{}, fmt.Errorf("line of %s: a client's list: job %s: %w",
				l.settings.Backend, id, err)
		}
		look.Now, look.CallTime = now, callTime
		page.Jobs = append(page.Jobs, look)
	}
	return page, a.err
}

// longest is how long a client's list outlives its newest job if Settings.KeepLongest is 0: a month
// to end, and a month on record.
const longest = 61 * 24 * time.Hour

// listLife returns how long a client's list outlives its newest job.
func (s Settings) listLife() time.Duration {
	if s.KeepLongest > 0 {
		return s.KeepLongest + s.KeepFailed
	}
	return longest + s.KeepFailed
}

package leaky

import (
	"context"
	"time"
)

// Report is what one backend's books say, all at one moment.
type Report struct {
	At                         time.Time // Redis's clock
	Waiting, Delayed, InFlight int64
	Listed                     int64 // failed jobs that can be redriven
	Books
	Difference int64            // Accepted less all that became of jobs; 0: the books balance
	Repairs    map[string]int64 // what Reconcile has repaired ever, by kind; all of RepairKinds
}

// CheckBooks holds what was counted against what is there, in one step that costs the same however much that is. It finds
// what has got lost or was doubled, not which: that, and the repair, is Reconcile's.
func (l *Line) CheckBooks(ctx context.Context) (Report, error) {
	a, err := l.run(ctx, booksScript)
	if err != nil {
		return Report{}, err
	}
	r := Report{At: a.when(), Waiting: a.number(), Delayed: a.number(), InFlight: a.number(), Listed: a.number(), Repairs: map[string]int64{}}
	fields := a.list()
	counts := *fields
	if err := firstError(a.err, fields.err, r.Books.read(fields)); err != nil {
		return Report{}, err
	}
	for _, kind := range RepairKinds {
		r.Repairs[kind] = 0
	}
	for len(counts.values) > 0 {
		kind, repair := cutRepaired(counts.text())
		if n := counts.number(); repair {
			r.Repairs[kind] = n
		}
	}
	b := r.Books
	r.Difference = b.Accepted - (r.Waiting + r.Delayed + r.InFlight + b.Succeeded + b.Failed + b.Canceled + b.Expired + b.Lost)
	return r, counts.err
}

package leaky

import (
	"context"
	"time"
)

// Report has one backend's books at one moment.
type Report struct {
	At                         time.Time // Redis's clock
	Waiting, Delayed, InFlight int64
	Listed                     int64 // failed jobs that can be redriven
	Books
	Difference int64            // Accepted less the jobs in any state; 0: the books balance
	Repairs    map[string]int64 // all repairs by Reconcile, by kind; has all of RepairKinds
}

// CheckBooks compares the counters with the jobs that are there, in one step of constant cost. It
// finds how many jobs are missing or doubled. Reconcile finds which ones, and repairs them.
func (l *Line) CheckBooks(ctx context.Context) (Report, error) {
	a, err := l.run(ctx, booksScript)
	if err != nil {
		return Report{}, err
	}
	r := Report{At: a.when(), Waiting: a.number(), Delayed: a.number(), InFlight: a.number(),
		Listed: a.number(), Repairs: map[string]int64{}}
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
	r.Difference = r.Books.difference(r.Waiting + r.Delayed + r.InFlight)
	return r, counts.err
}

package leaky

import (
	"context"
	"strings"
	"time"
)

// Bounds of the reconciler: 500 members take Redis about 1 ms, and one such call in 5 s, whoever makes it, is no load. A
// line of a million takes it some hours.
const (
	maxReconciled = 500
	reconcileRest = 5 * time.Second
)

// Kinds of a Repair.
const (
	NoRecord   = "no_record" // a job whose record is gone was taken out of the line: it is counted as lost
	Misplaced  = "misplaced" // a job was not where its state says, or in two places
	NoWait     = "deadline"  // a deadline of a job that doesn't wait
	WrongShare = "share"     // a client's count of waiting jobs
	WrongBytes = "bytes"     // a client's count of the bytes of its jobs that haven't ended
	NoFlow     = "flow"      // the last tag of a client whose jobs are gone
	WrongSum   = "counters"  // jobs that are nowhere are counted as lost; or the counters themselves were
)

// RepairKinds are all kinds that there are.
var RepairKinds = []string{NoRecord, Misplaced, NoWait, WrongShare, WrongBytes, NoFlow, WrongSum}

// Repair is one thing that Reconcile has put right.
type Repair struct {
	Kind string
	What string // a job's id; WrongShare, WrongBytes, NoFlow: the client's tag; WrongSum: the difference that CheckBooks told
}

// Reconciled is what one call of Reconcile did.
type Reconciled struct {
	Resting bool // nothing: somebody was here within the last 5 s
	Round   bool // everything has been gone through once more
	Repairs []Repair
}

// Reconcile looks at the next 500 jobs of the backend and puts right what doesn't fit together, in one step. The line's
// own scripts leave nothing to repair, and are replicated whole, so there is something only where keys were evicted or
// removed by hand, or Redis went back to an older state with newer work under way. Whoever calls, for how many workers
// ever, goes on where the last call ended, and at most every 5 s. Idempotent.
//
// It finds no record that no key leads to (the line itself was removed, say): that would take a look at all keys. Such jobs
// are counted as lost.
func (l *Line) Reconcile(ctx context.Context) (Reconciled, error) {
	a, err := l.run(ctx, reconcileScript, maxReconciled, micros(reconcileRest), micros(Lease))
	if err != nil {
		return Reconciled{}, err
	}
	word := a.text()
	r := Reconciled{Resting: word == "resting", Round: word == "round"}
	repairs := a.list()
	for len(repairs.values) > 0 && repairs.err == nil {
		r.Repairs = append(r.Repairs, Repair{Kind: repairs.text(), What: repairs.text()})
	}
	return r, firstError(a.err, repairs.err)
}

// cutRepaired reads the name of a counter of repairs.
func cutRepaired(field string) (kind string, ok bool) { return strings.CutPrefix(field, "repaired_") }

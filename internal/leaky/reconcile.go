package leaky

import (
	"context"
	"strings"
	"time"
)

// Bounds of the reconciler: 500 members take Redis about 1 ms, and all processes together make one
// such call in 5 s. A line of a million jobs takes some hours.
const (
	maxReconciled = 500
	reconcileRest = 5 * time.Second
)

// Kinds of a Repair.
const (
	NoRecord   = "no_record" // a job without a record was removed from the line and counted as lost
	Misplaced  = "misplaced" // a job was in a place that doesn't match its state, or in two
	NoWait     = "deadline"  // a job that doesn't wait had a deadline
	WrongShare = "share"     // a client's count of waiting jobs was wrong
	WrongBytes = "bytes"     // a client's count of bytes of jobs that haven't ended was wrong
	NoFlow     = "flow"      // the last tag of a client without jobs was left
	WrongSum   = "counters"  // the counters didn't add up: missing jobs are counted as lost
)

// RepairKinds has all kinds of a Repair.
var RepairKinds = []string{NoRecord, Misplaced, NoWait, WrongShare, WrongBytes, NoFlow, WrongSum}

// Repair is one repair by Reconcile.
type Repair struct {
	Kind string
	// A job's id; a client's tag (WrongShare, WrongBytes, NoFlow); Report.Difference (WrongSum).
	What string
}

// Reconciled is the result of one call of Reconcile.
type Reconciled struct {
	Resting bool // nothing was done: the last call was less than 5 s ago
	Round   bool // this call completed a round over all keys
	Repairs []Repair
}

// Reconcile checks the next 500 jobs of the backend and repairs inconsistencies, in one step. The
// line's scripts leave nothing to repair, and are replicated as a whole. So there is something to
// repair only if keys were evicted or removed by hand, or if Redis went back to an older state
// while newer work was under way. Each call, from any worker, goes on where the last one ended, at
// most every 5 s. It is idempotent.
//
// It doesn't find records that no other key refers to (if the line itself was removed, say),
// because that would need a scan of all keys. Such jobs are counted as lost.
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

// cutRepaired returns the kind from the name of a counter of repairs.
func cutRepaired(field string) (kind string, ok bool) {
	return strings.CutPrefix(field, "repaired_")
}

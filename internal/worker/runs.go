package worker

import (
	"context"
	"sync"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// run is one attempt in this process, from its ticket's arrival to its settlement.
type run struct {
	ticket jobs.Ticket
	ctx    context.Context // ends when the attempt must end, with the reason as its cause
	end    context.CancelCauseFunc
	lease  *time.Timer // ends ctx before the lease expires; nil until start
}

// runs are the attempts of one backend in this process. Safe for concurrent use.
type runs struct {
	stopping chan struct{} // closed by stop: no attempt starts any more
	leaving  chan struct{} // closed by giveUp: settlements are not repeated any more

	mu      sync.Mutex
	stopped bool            // guarded by mu
	all     map[runKey]*run // guarded by mu, with the lease of each
}

// runKey identifies a release, which may be delivered twice.
type runKey struct {
	id  string
	run int64
}

func newRuns() *runs {
	return &runs{stopping: make(chan struct{}), leaving: make(chan struct{}),
		all: map[runKey]*run{}}
}

// enter begins an attempt for a ticket. It returns nil if one is under way in this process, or the
// process stops. Both attempts would have the same owner, and an owner may repeat a start: the line
// can't distinguish a second delivery from a repeated call.
func (r *runs) enter(t jobs.Ticket) *run {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := runKey{t.ID, t.Run}
	if r.stopped || r.all[key] != nil {
		return nil
	}
	ctx, end := context.WithCancelCause(context.Background())
	r.all[key] = &run{ticket: t, ctx: ctx, end: end}
	return r.all[key]
}

// leave ends an attempt.
func (r *runs) leave(one *run) {
	one.end(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, runKey{one.ticket.ID, one.ticket.Run})
	if one.lease != nil {
		one.lease.Stop()
	}
}

// leaseMargin is how long before its lease expires an attempt that wasn't renewed ends, so that the
// backend sees its connection closed before another worker can start the job again.
const leaseMargin = time.Second

// hold records that the attempt has a lease, granted or renewed by a call sent at that moment. The
// attempt ends shortly before the lease expires. Counted from the call, a lease expires here before
// it does in Redis.
func (r *runs) hold(one *run, sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := leaky.Lease - leaseMargin - time.Since(sent)
	if one.lease == nil {
		one.lease = time.AfterFunc(left, func() { one.end(errLost) })
	} else {
		one.lease.Reset(left)
	}
}

// held returns the attempts with a lease.
func (r *runs) held() []*run {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*run
	for _, one := range r.all {
		if one.lease != nil {
			all = append(all, one)
		}
	}
	return all
}

// abort ends the attempts of one job.
func (r *runs) abort(id string, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, one := range r.all {
		if key.id == id {
			one.end(why)
		}
	}
}

// abortAll ends every attempt, and returns how many there were.
func (r *runs) abortAll(why error) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		one.end(why)
	}
	return len(r.all)
}

// stop lets no attempt start any more, neither new ones nor those that wait for their slot.
func (r *runs) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.stopped = true
		close(r.stopping)
	}
}

// giveUp ends the repeating of settlements that Redis doesn't answer. It must be called once.
func (r *runs) giveUp() { close(r.leaving) }

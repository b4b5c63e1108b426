package leaky

import (
	"time"

	"github.com/forebay/forebay/internal/jobs"
)

// Release is the result of Line.Release.
type Release struct {
	Now     int64         // µs, Redis's clock
	Tickets []Ticket      // granted, in order of Due
	Wait    time.Duration // until the next call is of use, unless a wake-up comes before
	// Reason is why no more was granted: OnIdle, OnRate, OnConcurrency, OnPaused, OnQueuePaused or
	// OnCooldown; "" if the bound of one call was reached.
	Reason   string
	Returned int     // jobs that went back to the head because their lease had expired
	Ended    []Ended // jobs that this call ended
	// Lapsed has the overrides that have ended by themselves, if this call is the first to find it.
	Lapsed Override
}

// Ended is a job that reached a final state without a worker: expired, canceled, or failed with
// worker_lost.
type Ended struct {
	ID    string
	State jobs.State
	Code  string // of jobs.Failure; "" for canceled
}

// StartOutcome is the outcome of Start.
type StartOutcome string

const (
	Go   StartOutcome = "go"   // the caller has the job: call the backend at Due
	Gone StartOutcome = "gone" // the ticket is no longer the job's newest: do nothing
	// Back: the job is at the head of the line again. The line is paused, its gate is closed,
	// another job probes, or it is too late for the slot or the deadline.
	Back StartOutcome = "back"
)

// Started is the result of Start. Without Go only Outcome and Now are set.
type Started struct {
	Outcome StartOutcome
	Now     int64         // µs, Redis's clock
	Due     int64         // µs; later than the ticket's if the slot was missed
	Attempt int           // from 1
	Job     jobs.Job      // with its payload
	Waited  time.Duration // since it was accepted
	Ends    int64         // µs: max_age; the call should not outlive it
}

// Renewal is the result of Renew for one ticket.
type Renewal string

const (
	Held Renewal = "held" // the lease is renewed
	Stop Renewal = "stop" // the lease is renewed, and the job is to be canceled: abort the call
	Lost Renewal = "lost" // the lease has expired: abort the call, and don't settle
)

// Settlement is the outcome of one attempt.
type Settlement struct {
	Ticket
	Owner string
	// To is Succeeded, Failed, Canceled or Expired (final), Delayed (retry after Delay), or Waiting
	// (back to the head of the line without having used an attempt: a throttled call, or a worker
	// that stops). A job that is to be canceled gets no further attempt: Delayed and Waiting end it
	// as Canceled. If feedback is off, there is no gate, so a throttled job that is Waiting is
	// delayed by Gate, or by 1 s if that is 0.
	To    jobs.State
	Delay time.Duration // Delayed: the backoff
	Sign  Sign          // the call's sign of the backend's health
	// Throttled: its Retry-After; 0: none, and the line takes 1 s, doubling to 1 m.
	Gate    time.Duration
	Failure jobs.Failure  // Failed, Delayed, Waiting: why
	Result  jobs.Meta     // the backend's answer, if it is kept
	Body    []byte        // its bytes
	Took    time.Duration // length of the call: the line predicts waits from it
}

// SettleOutcome is the outcome of Settle.
type SettleOutcome string

const (
	Settled   SettleOutcome = "settled"
	Forfeited SettleOutcome = "forfeited" // the lease had expired: the attempt doesn't count
)

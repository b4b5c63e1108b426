package leaky

import (
	"time"

	"github.com/forebay/forebay/internal/jobs"
)

// Release is what one call to the drain granted.
type Release struct {
	Now      int64         // µs, Redis's clock
	Tickets  []Ticket      // granted, in order of Due
	Wait     time.Duration // asking again sooner is of no use, unless a wake-up comes
	Reason   string        // why no more was granted: OnIdle, OnRate, OnConcurrency, OnPaused, OnQueuePaused, OnCooldown; "" when the call's bound was reached
	Returned int           // jobs whose lease had run out and that went back to the head
	Ended    []Ended       // jobs that this call ended
}

// Ended is a job that reached a final state without a worker: expired, canceled, or failed with worker_lost.
type Ended struct {
	ID    string
	State jobs.State
	Code  string // of jobs.Failure; "" for canceled
}

// StartVerdict is what Start says.
type StartVerdict string

const (
	Go   StartVerdict = "go"   // the job is ours: call the backend at Due
	Gone StartVerdict = "gone" // the ticket is no longer the job's newest: do nothing
	Back StartVerdict = "back" // paused, gate closed, another job probes, or too late for its slot or deadline: the job is at the head of the line again
)

// Started is Start's answer. All but Verdict and Now are set on Go only.
type Started struct {
	Verdict StartVerdict
	Now     int64         // µs, Redis's clock
	Due     int64         // µs; later than the ticket's where the slot had been missed
	Attempt int           // from 1
	Job     jobs.Job      // with its payload
	Waited  time.Duration // since it was accepted
	Ends    int64         // µs: max_age; the call should not outlive it
}

// Renewal is what Renew says of one ticket.
type Renewal string

const (
	Held Renewal = "held" // the lease is ours for another term
	Stop Renewal = "stop" // ours, and the job is to be canceled: abort the call
	Lost Renewal = "lost" // not ours any more: abort the call and say nothing
)

// Settlement is how one attempt ended.
type Settlement struct {
	Ticket
	Owner string
	// To is Succeeded, Failed, Canceled or Expired (final), Delayed (retry after Delay), or Waiting (back to the head of
	// the line without having used an attempt: a throttled call, or a worker that stops). A job that is to be canceled
	// gets no further attempt: Delayed and Waiting end it as Canceled. Where feedback is off, a throttled job that is
	// Waiting is delayed by Gate, or 1 s: it has no gate to wait at.
	To      jobs.State
	Delay   time.Duration // Delayed: the backoff
	Sign    Sign          // what the call says of the backend
	Gate    time.Duration // Throttled: how long it asked to be left alone; 0: it didn't say, the line chooses 1 s doubling to 1 m
	Failure jobs.Failure  // Failed, Delayed, Waiting: why
	Result  jobs.Meta     // the backend's answer, where there is one to keep
	Body    []byte        // its bytes
	Took    time.Duration // length of the call: the line predicts waits from it
}

// SettleVerdict is what Settle says.
type SettleVerdict string

const (
	Settled   SettleVerdict = "settled"
	Forfeited SettleVerdict = "forfeited" // the lease was lost before: the outcome counts for nothing
)

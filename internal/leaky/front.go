package leaky

import (
	"time"

	"github.com/forebay/forebay/internal/jobs"
)

// Outcome is the line's answer to an offered job. The job was written only if it is Accepted, or
// Joined and not a refresh.
type Outcome string

const (
	Accepted Outcome = "accepted"
	// A job with this id, or one of Offer.Others, is on record.
	Exists      Outcome = "exists"
	Limited     Outcome = "limited"       // the limits of Offer.Charge have no room
	LineFull    Outcome = "line_full"     // Capacity jobs wait
	ClientShare Outcome = "client_share"  // the client has its share of the line
	WaitTooLong Outcome = "wait_too_long" // the predicted wait is over MaxWait or StartWithin
	StoredFull  Outcome = "stored_full"   // the client's jobs take Offer.MaxStored
	// Joined: a job with this Join is under way, and the offer is now a subscription to it. A
	// refresh is not: nothing was written.
	Joined Outcome = "joined"
	// Spent: the id is from an Idempotency-Key, and its job was purged before its record expired.
	Spent Outcome = "spent"
	// Again: the client has a subscription already, Place.ID. The Holds of the offer were given
	// back.
	Again Outcome = "again"
)

// Values of Reason of a Release and of WaitingOn of a Place: what the next job waits on.
const (
	OnRate        = "rate"
	OnConcurrency = "concurrency"
	OnPaused      = "paused"
	OnQueuePaused = "queue_paused" // the queue of tickets is paused; see QueuePaused
	OnCooldown    = "cooldown"     // the backend's gate is closed, or a probe is under way
	OnIdle        = "idle"         // nothing waits
)

// Offer is a job that is offered to the line.
type Offer struct {
	Job         jobs.Job
	Weight      float64       // tier weight × priority weight; > 0
	StartWithin time.Duration // how long the job may wait for its first start; 0: as long as MaxAge
	MaxAge      time.Duration // how long it may live before its final state; > 0
	Keep        time.Duration // how long record and result outlive the final state; > 0
	// MaxStored bounds the bytes of the client's jobs on this backend, including this one. A job
	// that waits or runs counts with its payload and metadata (some hundred bytes, 2.5 KiB at
	// most); one that has ended also with its result. A result is counted and never refused. 0:
	// unbounded, and this job's bytes aren't counted. A shared job counts for its first caller.
	MaxStored int64

	// Join identifies the work, and the callers that may share its answer; "": the job isn't
	// shared. Offers with one Join share a job until it ends. Each caller has a subscription to it
	// (Job.Of), with its own id, status, cancel and Holds. An offer with StartWithin isn't shared,
	// because a deadline of one caller isn't for others.
	//
	// A client has one subscription to a job for each Callback. Anonymous callers, who only have an
	// address in common, have one for each offer, and so do offers with a Fingerprint, whose ids
	// are fixed.
	//
	// If the shared job waits and a job of the offer's own would stand earlier, it moves to that
	// place, and takes the turn of that client. Otherwise it has the place of its first caller,
	// even after that one has left.
	Join string
	// Others are the ids of other jobs, of any backend, that this job's Idempotency-Key may have
	// made. If one of them is on record, it is the answer (Exists). If one was purged, the key is
	// Spent. On Redis Cluster they must be of this backend.
	Others []string
	// Charge is the job's charge to the limits (see Line.Limited). With it the job's permits
	// (Job.Holds) are taken together with its place. nil: no charge, or it was made before.
	Charge any
	// Refresh marks a job that is placed only if no job with its Join is under way. Otherwise the
	// outcome is Joined, and nothing is written.
	Refresh bool
}

// Place is the line's answer to an Offer.
type Place struct {
	Outcome Outcome
	// On Redis's clock, different for each job of the backend; zero: not accepted now.
	AcceptedAt time.Time
	Position   int64         // accepted: 1 is next
	Wait       time.Duration // predicted, from now to the start; 0 while paused
	WaitingOn  string        // what the next job waits on
	// ID is, with Again, the id of the client's subscription. With Exists it is the id of the one
	// of Offer.Others that is on record, or "".
	ID string
	// RetryAfter is set if the offer was refused: after it an equal offer is accepted, if no other
	// comes before it and calls take as long as now; ≥ 1 µs. With StoredFull it is 30 s if jobs
	// have to end first.
	RetryAfter time.Duration
}

// Look is a job and its standing, with its place in the line if it waits.
type Look struct {
	Job       jobs.Job // without Payload
	Standing  jobs.Standing
	Position  int64         // waiting: 1 is next; otherwise 0
	Wait      time.Duration // waiting: predicted, as in Place
	WaitingOn string        // waiting
	CallTime  time.Duration // smoothed length of the backend's calls; 0: not known
	Now       time.Time     // the time of the look, on Redis's clock
}

// CancelOutcome is the outcome of Cancel.
type CancelOutcome string

const (
	Canceled     CancelOutcome = "canceled" // the job is canceled now, or was before
	Aborting     CancelOutcome = "aborting" // its call is being aborted
	AlreadyFinal CancelOutcome = "final"    // it has another final state: nothing changed
)

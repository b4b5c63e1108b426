package leaky

import (
	"time"

	"github.com/forebay/forebay/internal/jobs"
)

// Outcome is what the line says to an offered job.
type Outcome string

const (
	Accepted    Outcome = "accepted"
	Exists      Outcome = "exists"        // a job of this id, or one of Offer.Others, is on record: nothing was written
	Limited     Outcome = "limited"       // the limits of Offer.Charge have no room: nothing was written
	LineFull    Outcome = "line_full"     // Capacity jobs wait
	ClientShare Outcome = "client_share"  // the client holds its share of the line
	WaitTooLong Outcome = "wait_too_long" // the predicted wait is over MaxWait or StartWithin
	StoredFull  Outcome = "stored_full"   // the client's jobs take Offer.MaxStored
	Joined      Outcome = "joined"        // the same is under way: the job is a share in it. Of a refresh: that, or such a one failed just now: nothing was written
	Spent       Outcome = "spent"         // its id, of a client's key, is that of a job that was purged and would be on record still: nothing was written
	Again       Outcome = "again"         // the client has a share in what is under way, Place.Share: nothing was written, and Holds were given back
)

// What a waiting job waits on, as Reason of a release and WaitingOn of a prediction.
const (
	OnRate        = "rate"
	OnConcurrency = "concurrency"
	OnPaused      = "paused"
	OnQueuePaused = "queue_paused" // the queue that brings tickets to the workers stands still; see QueuePaused
	OnCooldown    = "cooldown"     // the backend is left alone: its gate is closed, or one call tries whether it is well again
	OnIdle        = "idle"         // nothing waits
)

// Offer is a job that asks for a place in the line.
type Offer struct {
	Job         jobs.Job
	Weight      float64       // tier weight × priority weight; > 0
	StartWithin time.Duration // how long the job may wait for its first start; 0: as long as MaxAge
	MaxAge      time.Duration // how long it may live before its final state; > 0
	Keep        time.Duration // how long record and result outlive the final state; > 0
	// MaxStored is how many bytes the client's jobs of this backend may take, this one's included: of
	// those that wait or run their payloads, and what is noted beside them (some hundred bytes,
	// 2.5 KiB at most); of those that are kept also their results. 0: any number, and this job's bytes aren't
	// counted. A result is counted and never refused. A job that callers share counts for the first of
	// them, a refresh for nobody.
	MaxStored int64

	// Join names what is asked for, and who may share its answer; "": the job is nobody else's. Offers of one Join whose jobs haven't
	// ended share one job: each caller has a share in it, with an id, a status, a cancel and Holds of its own (Job.Of). A job with
	// StartWithin is nobody else's, whatever Join says: one caller's deadline is none of another's. A client has one share in a job;
	// but callers without a key, who only share an address, one for each offer, and so offers with a Fingerprint, whose ids are
	// their own; with another Callback it is another share. Where the job waits and an offer's own would stand earlier, it moves
	// there: the turn is that client's then. Else its place is the first caller's, also after that one has left.
	Join string
	// Others are the ids of the other jobs that the Idempotency-Key of this one may have made, of this backend or of others: where one of
	// them is on record, it is the answer (Exists), and where one was purged, the key is Spent. On Redis Cluster only those of this backend can
	// be asked about.
	Others []string
	// Charge is what the job takes of limits (Line.Limited), as those know it; nil: nothing, or it was charged before. Then the job's permits
	// (Job.Holds) are taken along with its place.
	Charge any
	// Refresh marks a job that no caller waits for, of a Join: it is placed only where nothing of that Join is under way, and has no share,
	// no Callback and no place in its client's list. One that fails, and that no caller has joined meanwhile, isn't listed and is kept for a
	// minute at most; none is placed after it for 10 s, twice as long after each further one that fails, 10 min at most, until a job of that
	// Join succeeds.
	Refresh bool
}

// Place is the line's answer.
type Place struct {
	Outcome    Outcome
	AcceptedAt time.Time     // where the job is on record now: by Redis's clock, and another µs for each job of the backend
	Position   int64         // accepted: 1 is next
	Wait       time.Duration // predicted, from now to the start; 0 while paused: a pause has no predicted end
	WaitingOn  string        // what the line waits on
	Share      string        // again: the id of the share that the client has; exists: of that of Offer.Others which is on record, or ""
	RetryAfter time.Duration // refused: after it an equal offer fits, if nobody else comes and calls take what they took; ≥ 1 µs. StoredFull: 30 s where that hangs on jobs that haven't ended
}

// Look is where one job stands, with its place where it waits.
type Look struct {
	Job       jobs.Job // without Payload
	Standing  jobs.Standing
	Position  int64         // waiting: 1 is next; else 0
	Wait      time.Duration // waiting: predicted, as in Place
	WaitingOn string        // waiting
	CallTime  time.Duration // smoothed length of the backend's calls; 0: not known
	Now       time.Time     // when this was so, by Redis's clock
}

// CancelOutcome is what Cancel found.
type CancelOutcome string

const (
	Canceled     CancelOutcome = "canceled" // it is final now, or was canceled before
	Aborting     CancelOutcome = "aborting" // its call is being aborted
	AlreadyFinal CancelOutcome = "final"    // it ended otherwise: nothing changed
)

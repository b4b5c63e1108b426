package admission

import (
	"time"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
)

// Outcome is the result of a request: one of *Accepted, *Joined, *Replayed, *Stored, *Fixed,
// *Passed and *Refused.
type Outcome interface{ About() *Terms }

// Terms are the parts of every Outcome.
type Terms struct {
	// Reason is one word for logs, metrics and clients: one of the Reason constants, the name of
	// the limit that refused, or a leaky.Outcome. A degraded answer has the reason of the refusal
	// that it replaces. "": the refusal's By is the reason.
	Reason string
	// Plan has the limits that applied, and Verdict is their result. If Verdict is nil, the limits
	// were not asked, and nothing was charged.
	Plan    *Plan
	Verdict *limits.Verdict
	// Missed: a stored answer was looked for, and none could be served.
	Missed bool
	// StoreError is the store's failure on the way to this outcome; nil: none.
	StoreError error
}

// About returns t, so that each type that embeds Terms is an Outcome.
func (t *Terms) About() *Terms { return t }

// Reasons of outcomes that no limit and no line gave.
const (
	ReasonNew        = "new"
	ReasonFresh      = "fresh"             // a stored answer that is as good as a new one
	ReasonJoined     = "joined"            // a job for the same request was under way
	ReasonReplayed   = "replayed"          // the Idempotency-Key had made the job before
	ReasonChecked    = "checked"           // a gateway asked
	ReasonSick       = "backend_sick"      // stale answers go first while the backend is sick
	ReasonOnlyCached = "only_if_cached"    // the request accepts stored answers only
	ReasonStore      = "store_unavailable" // Redis can't be asked
)

// Accepted: the request has a job of its own, or the first subscription to a shared one.
type Accepted struct {
	Terms
	Job
}

// Joined: the request has a subscription to a job that was under way.
type Joined struct {
	Terms
	Job
}

// Replayed: the request is a duplicate, and this is the job of the earlier one.
type Replayed struct {
	Terms
	Job
}

// Job is the job that answers a request.
type Job struct {
	Look     leaky.Look // where it stood when it was last looked at
	Fallback bool       // it is a job of a fallback operation
}

// Stored: a stored answer may be served.
type Stored struct {
	Terms
	Answer cache.Answer
	Fresh  bool // it is as good as a new one; otherwise it is stale
	// FreshFor is how old a fresh answer may become.
	FreshFor time.Duration
}

// Fixed: the answer is a JSON text of the config.
type Fixed struct {
	Terms
	Body []byte
}

// Passed: a gateway may let the request through.
type Passed struct{ Terms }

// Refused: the request is refused, and nothing replaces its job.
type Refused struct {
	Terms
	By         By
	RetryAfter time.Duration // exact for rate limits, a prediction for the line; 0: none is known
	// Line is why the line refused, if By is ByLine.
	Line leaky.Outcome
}

// By says what refused a request.
type By int

const (
	// ByLimits: a limit has no room. Terms.Verdict says which, and when there is room.
	ByLimits By = iota
	// ByCost: the request takes more than a limit ever allows at once. No wait helps.
	ByCost
	// ByPart: the request takes more than this process's or region's part of a limit, though not
	// more than the whole limit, which may apply again later.
	ByPart
	// ByLine: the line is full, or the wait would be too long.
	ByLine
	// BySpentKey: the job of the Idempotency-Key was purged.
	BySpentKey
	// ByOtherRequest: the Idempotency-Key came with another request before.
	ByOtherRequest
	// ByNoAnswer: the request accepts stored answers only, and there is none.
	ByNoAnswer
	// ByStore: Redis failed or can't be called. The job may have been accepted.
	ByStore
)

package leaky

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/groupcommit"
	"github.com/forebay/forebay/internal/jobs"
)

// Settings are one backend's line and drain as its config sets them. Live overrides (Tune) go before them.
type Settings struct {
	Backend     string
	Rate        Rate          // the configured drain rate
	Burst       int           // slots that may be used at once after idling; ≥ 1
	Concurrency int           // jobs in flight over all workers; ≥ 1
	Capacity    int           // jobs that may wait, backoffs included; ≥ 1
	MaxWait     time.Duration // a job predicted to wait longer is refused
	ClientShare float64       // the part of Capacity that one client may hold; (0, 1]
	Attempts    int           // attempts of a job before it fails; ≥ 1
	Feedback    bool          // a sick backend is called less: factor, gate and probe
	KeepFailed  time.Duration // a failed job stays listed so long, and on record if its Keep isn't longer; 0: it isn't listed
	KeepLongest time.Duration // the longest MaxAge + Keep of a job: a client's list outlives its newest job by that and KeepFailed; 0: 61 days
}

// Line is one backend's line and its drain. Every method is one atomic step in Redis (one script call), on
// Redis's clock, and any number of processes may work on one line. Safe for concurrent use.
type Line struct {
	rdb      redis.UniversalClient
	settings Settings
	keys     []string
	now      func() any // "" for Redis's clock; tests give their own, in µs
	offers   *groupcommit.Collector[encoded, placed]
	looks    *groupcommit.Collector[string, looked]
	suspects suspects

	limits      Limits // nil: offers bring none
	offerScript *redis.Script

	shares, sharesEach int // the most in a job, and of one client that may have several; in tests fewer
}

// Bounds of one shared script call. 64 offers take Redis about 0.5 ms, the time that one call may hold it.
const (
	maxBatch    = 64
	callTimeout = 800 * time.Millisecond // the front answers within 1 s, whatever Redis does
)

// New returns the line of the backend that s names.
func New(rdb redis.UniversalClient, s Settings) *Line {
	l := &Line{rdb: rdb, settings: s, keys: keys(s.Backend), now: func() any { return "" }, offerScript: offerScript, shares: maxShares, sharesEach: maxSharesEach}
	l.offers = groupcommit.New(maxBatch, callTimeout, l.offer).Weigh(encoded.bytes).Overlap(2)
	l.looks = groupcommit.New(maxBatch, callTimeout, l.look)
	return l
}

// Settings returns what New was given.
func (l *Line) Settings() Settings { return l.settings }

// ErrUnknownJob says that no such job is on record: it never was, or its record's time is over.
var ErrUnknownJob = errors.New("unknown job")

// ErrNoResult says that a job has no stored answer: none yet, none ever, or no longer.
var ErrNoResult = errors.New("no result")

// Ticket is one job's right to start: what a release grants and an attempt runs on.
type Ticket = jobs.Ticket

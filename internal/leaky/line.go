package leaky

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/groupcommit"
	"github.com/forebay/forebay/internal/jobs"
)

// Settings are one backend's line and drain as its config sets them. Live overrides (Tune) go before
// them.
type Settings struct {
	Backend string
	Drain
	Room
	Attempts    int           // attempts of a job before it fails; ≥ 1
	Feedback    bool          // a backend in trouble is called less: factor, gate and probe
	KeepFailed  time.Duration // how long a failed job stays listed, and on record if its Keep isn't longer; 0: it isn't listed
	KeepLongest time.Duration // the longest MaxAge + Keep of a job: a client's list outlives its newest job by that and KeepFailed; 0: 61 days
}

// Drain is the pace at which a backend is given jobs, over all workers together. Package
// strictyaml reads its tags and those of Room: they are the keys of the config's file.
type Drain struct {
	Rate Rate `key:"rate" required:"what the backend can bear, such as 5/s, 6/m or unlimited"`
	// Burst is how many slots may be used at once after idling.
	Burst int `key:"burst" default:"1" range:"1 to 10000"`
	// Concurrency is how many calls may run at once. Each is a connection, and a worker takes at most
	// jobs.MaxConcurrency.
	Concurrency int `key:"concurrency" default:"10" range:"1 to 10000"`
}

// Room is how many jobs may wait, and for how long.
type Room struct {
	// Capacity is how many jobs may wait, those in backoff included. Each takes its payload and up to a
	// few kilobytes in Redis.
	Capacity int `key:"capacity" default:"1000" range:"1 to 10000000"`
	// MaxWait is the longest predicted wait at which a job is still accepted.
	MaxWait time.Duration `key:"max_wait" default:"5m" range:"100ms to 30d"`
	// ClientShare is the part of Capacity that one client may hold: above 0, at most 1.
	ClientShare float64 `key:"client_share" default:"1"`
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

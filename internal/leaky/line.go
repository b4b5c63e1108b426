package leaky

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/groupcommit"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/units"
)

// Settings are the configured settings of one backend's line and drain. Live overrides (Tune) take
// precedence.
type Settings struct {
	Backend string
	Drain
	Room
	Attempts int          // attempts of a job before it fails; ≥ 1
	Feedback units.Switch // a sick backend is called less: factor, gate and probe
	Paused   bool         // no job is started; only an override sets it
	// KeepFailed is how long a failed job stays listed, and on record if its Keep isn't longer; 0:
	// it isn't listed.
	KeepFailed time.Duration
	// KeepLongest is the longest MaxAge + Keep of a job; 0: 61 days. A client's list outlives its
	// newest job by that and KeepFailed.
	KeepLongest time.Duration
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

// Line is one backend's line and its drain. Every method is one atomic step in Redis (one script
// call), on Redis's clock, and any number of processes may work on one line. Safe for concurrent
// use.
type Line struct {
	rdb      redis.UniversalClient
	settings Settings
	keys     []string
	now      func() any // "" for Redis's clock; tests set their own, in µs
	offers   *groupcommit.Collector[encoded, placed]
	looks    *groupcommit.Collector[string, looked]
	suspects suspects

	limits      Limits // nil: offers have no charge
	offerScript *redis.Script

	// maxSubscriptions and maxSubscriptionsEach; lower in tests.
	subscriptions, subscriptionsEach int
}

// Bounds of one shared script call. 64 offers take Redis about 0.5 ms, the time that one call may
// hold it.
const (
	maxBatch    = 64
	callTimeout = 800 * time.Millisecond // so that the front answers within 1 s in any case
)

// New returns the line of the backend that s names.
func New(rdb redis.UniversalClient, s Settings) *Line {
	l := &Line{rdb: rdb, settings: s, keys: keys(s.Backend), offerScript: offerScript,
		subscriptions: maxSubscriptions, subscriptionsEach: maxSubscriptionsEach,
		now: func() any { return "" }}
	l.offers = groupcommit.New(maxBatch, callTimeout, l.offer).Weigh(encoded.bytes).Overlap(2)
	l.looks = groupcommit.New(maxBatch, callTimeout, l.look)
	return l
}

// Settings returns the settings given to New.
func (l *Line) Settings() Settings { return l.settings }

// ErrUnknownJob means that there is no such job on record: there never was, or its record has
// expired.
var ErrUnknownJob = errors.New("unknown job")

// ErrNoResult means that a job has no stored answer: not yet, never, or no longer.
var ErrNoResult = errors.New("no result")

// Ticket is the right to start one job, granted by a release.
type Ticket = jobs.Ticket

package httpapi

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/web"
)

// Config is what a Server is put together from. It was checked: every name in it that stands for something else in it is there, and
// the limits that meet in one request have different names.
type Config struct {
	Identity   Identifier
	Limiter    Limiter
	Newcomers  Newcomers                     // nil: no tier has a grace
	Overrides  func(client string) *Override // by client id; see Override. nil: nobody has any
	Shadows    Shadows                       // nil: nobody wants to know
	Degrader   Degrader
	Store      Store
	Finals     Finals
	Lines      map[string]Line // by backend; unless Apart they take charges
	Apart      bool            // no script reaches both limits and lines, or two lines: Redis Cluster
	Tiers      map[string]Tier
	Operations []Operation
	Limits     []Limit // of every caller

	Callbacks  Callbacks  // nil: no job's end is told
	Deliveries Deliveries // nil: operators can't look at what was told
	Secret     Secret     // of the deployment
	Health     Health     // nil: no backend is ever sick
	Stored     Stored     // nil: operators can't look at stored answers

	OnFailure   string  // OnFailureDegrade (also "") or OnFailureReject: what a request for a job gets while the store is lost
	Checks      Decider // decides gateways' checks of operations with CheckLocal: as Limiter, or by itself where the store is unavailable
	CheckMethod string  // the field in which a gateway that is a trusted proxy tells the original request's method; "": none is told

	MaxBody int64 // bytes of a POST's body
	// MaxBuffered bounds the bytes of all POSTs' bodies that are in memory at one time, and by as much
	// again those of all answers that clients haven't read yet; 0: no bound.
	MaxBuffered int64
	Legacy      LegacyHeaders // "": Epoch
	AdminToken  string        // "": the admin API asks for none, and must not be reachable from elsewhere

	Web   *web.Server  // speaks HTTP, logs, and takes the metrics
	Audit *slog.Logger // of changes that operators make, which shouldn't depend on how much else is logged; nil: Web's
}

// Values of Config.OnFailure.
const (
	OnFailureDegrade = "degrade" // a stored answer that may be served, or the operation's fixed one; else 503
	OnFailureReject  = "reject"  // 503 at once
)

// Values of Operation.OnFailure.
const (
	CheckLocal  = "local"  // Config.Checks goes on deciding
	CheckAllow  = "allow"  // 200
	CheckRefuse = "refuse" // 503
)

// Limit is a limit and the requests that it applies to.
type Limit struct {
	Rule *limits.Rule
	When When
}

// When is a condition on requests. An empty list means any; of those that aren't, all must fit.
type When struct {
	Tiers      []string
	Operations []string // such a limit doesn't apply to calls without an operation, such as a job's status
	Countries  []string // as identity.Client.Country says them
}

// Tier is a set of limits and a weight.
type Tier struct {
	Weight    float64 // in the line; > 0
	MaxStored int64   // of each client's jobs on a backend, as leaky.Offer has it; 0: no bound
	Limits    []Limit
	Reads     []Limit // of lists, in jobs that they look at; none of an operation, nor on jobs at one time
	Grace     Grace   // the zero value: none
}

// Grace is what a tier gives to clients that are new: for Period since they were first seen, the limits that count a client by itself
// (per client and client+operation) allow Factor times as much. A caller without a key is never new: an address is nobody.
type Grace struct {
	Period time.Duration
	Factor float64 // above 1; 0: no grace
}

// Override is what one client has instead of its tier's. It never changes: another override is another pointer, and the same pointer is
// given for as long as it holds, since what is computed from it is remembered by it.
type Override struct {
	Weight float64 // 0: the tier's
	Limits []Limit // each replaces the tier's limits of the same name, or is one more
}

// Operation is one expensive thing that clients may request.
type Operation struct {
	Name     string
	Backend  string
	Tiers    []string // who may; empty: all
	Cost     Cost
	Limits   []Limit
	Overload degrade.Policy
	Coalesce bool          // requests for the same, of those who share its answers, share one job
	Keep     time.Duration // how long a finished job and its result are remembered
	MaxAge   time.Duration // how long a job may live before it must have ended; its backend's
	// OnFailure is what a gateway's check gets while the store is unavailable: CheckLocal, CheckAllow or
	// CheckRefuse (also "").
	OnFailure string
}

// may reports whether a tier may request the operation.
func (o *Operation) may(tier string) bool { return len(o.Tiers) == 0 || slices.Contains(o.Tiers, tier) }

// Cost is what one request takes of each limit that counts costs: Fixed, or what its payload says.
type Cost struct {
	Fixed   int64  // ≥ 1, where From is ""
	From    string // JSON Pointer (RFC 6901) into the payload, such as "/pages"
	Default int64  // ≥ 1: where the payload has nothing there
	Max     int64  // most that the payload may say
}

// Secret is a text that all processes on one store share and nobody else knows.
type Secret interface {
	Text(ctx context.Context) (string, error)
}

// Callbacks are the webhooks that tell of jobs' ends.
type Callbacks interface {
	// For is the URL that the end of a client's job is told to: what the request asks for, or the client's own ("" where it has none). An
	// error is fit for the client: why it can't have that.
	For(client, asked string) (url string, err error)
}

// Health knows how the backends are, at no cost. Safe for concurrent use.
type Health interface {
	// Sick reports whether a backend's gate is closed, or what feedback leaves of its rate is under the given part.
	Sick(backend string, below float64) bool
}

// Stored are the answers that are kept, for operators.
type Stored interface {
	Holding(ctx context.Context, operation string) (cache.Holding, error)
	Inspect(ctx context.Context, key string) (cache.Entry, bool, error)
	Purge(ctx context.Context, f cache.Filter) (removed int, err error)
}

// Newcomers knows which clients are new. Until says when that ends; the zero time, where it has ended. An answer from memory may come
// although ctx has ended. On an error the client counts as not new. Safe for concurrent use.
type Newcomers interface {
	Until(ctx context.Context, client string, period time.Duration) (time.Time, error)
}

// Shadows keeps the books on whom shadow limits would have refused. Note never blocks. Safe for concurrent use.
type Shadows interface {
	Note(limit, client, operation string)
	Top(context.Context) ([]limits.ShadowCount, error) // of the last 24 h, the largest counts first
}

package admission

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
)

// Config has the dependencies and settings of an Admission. Its names must be known, and limits
// that apply to one request must have different names.
type Config struct {
	Rules
	Parts

	// Policy describes a plan for clients (Plan.Policy). It is called once for each plan. If it is
	// nil, so is Plan.Policy.
	Policy func(*Plan) []string

	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Rules are the tiers, operations and limits of requests.
type Rules struct {
	Tiers      map[string]Tier
	Operations []Operation
	Limits     []Limit                       // on the requests of every caller
	Overrides  func(client string) *Override // by client id; nil: no client has any
	// RejectOnFailure refuses requests at once while the store is unavailable. Otherwise they get
	// a stored answer or the operation's fixed one, where there is any.
	RejectOnFailure bool
}

// Parts are what an Admission calls.
type Parts struct {
	Limiter   Limiter
	Lines     map[string]Line // by backend
	Cluster   bool            // no script reaches both limits and lines, or two lines
	Answers   Answers
	Store     Store
	Secret    Secret    // of the deployment
	Health    Health    // nil: no backend is ever sick
	Newcomers Newcomers // nil: no tier has a grace period
	Shadows   Shadows   // nil: shadow refusals are only counted
	// LocalChecks decides the checks of operations with CheckLocal. It decides as Limiter does, or
	// by itself while the store is unavailable. It may be nil if no operation has CheckLocal.
	LocalChecks Decider
}

// Limit is a limit and the requests that it applies to.
type Limit struct {
	Rule *limits.Rule
	When When
}

// When is a condition on requests. Its countries are as identity.Client.Country.
type When = limits.When

// Tier is a set of limits and a weight.
type Tier struct {
	Weight    float64 // in the line; > 0
	MaxStored int64   // as leaky.Offer.MaxStored, for each client; 0: no bound
	Limits    []Limit
	Reads     []Limit // on lists, in jobs looked at; none of an operation, none on jobs at one time
	Grace     Grace   // the zero value: none
}

// Grace is what a tier gives to new clients: for Period after a client was first seen, the limits
// that count a client by itself (per client, per client and operation) allow Factor times as much.
// A caller without a key is never new.
type Grace struct {
	Period time.Duration
	Factor float64 // above 1; 0: no grace
}

// Override has the settings that one client has instead of its tier's. It is immutable, and plans
// are remembered by its pointer: a client has the same pointer as long as its settings are the
// same, and another one after a change.
type Override struct {
	Weight float64 // 0: the tier's
	Limits []Limit // each replaces the tier's limits of the same name, or is one more
}

// asks reports whether one of the override's limits is on a country.
func (o *Override) asks(country string) bool {
	return o != nil && slices.ContainsFunc(o.Limits, func(l Limit) bool {
		return slices.Contains(l.When.Countries, country)
	})
}

// Operation is one expensive kind of work that clients may request.
type Operation struct {
	Name     string
	Backend  string
	Tiers    limits.Names // that may request it
	Cost     Cost
	Limits   []Limit
	Overload degrade.Policy
	Coalesce bool          // equal requests of callers that share answers share one job
	Keep     time.Duration // how long a finished job and its result are kept
	MaxAge   time.Duration // how long a job may live before it ends; its backend's
	// OnFailure says how a gateway's check is answered while the store is unavailable: CheckLocal,
	// CheckAllow or CheckRefuse ("" means CheckRefuse).
	OnFailure string
}

// Values of Operation.OnFailure.
const (
	CheckLocal  = "local"  // Config.LocalChecks goes on deciding
	CheckAllow  = "allow"  // the check passes
	CheckRefuse = "refuse" // the check is an error of the store
)

// Open reports whether a tier may request the operation.
func (o *Operation) Open(tier string) bool { return o.Tiers.Have(tier) }

// Limiter decides whether requests may enter, as limits.Limiter does.
type Limiter interface {
	Decider
	// Peek spends nothing.
	Peek(context.Context, limits.Request) (limits.Verdict, error)
	// Settle refunds what an allowed verdict spent beyond a cost.
	Settle(ctx context.Context, v limits.Verdict, cost int64) error
	// Along decides in one step with an offer to a line.
	Along(ctx context.Context, r limits.Request,
		step func(*limits.Part) (limits.Ending, error)) (limits.Verdict, error)
}

// Decider decides whether a request may enter. It spends all that the request costs, or nothing.
type Decider interface {
	Decide(context.Context, limits.Request) (limits.Verdict, error)
}

// Line is one backend's line as admission uses it. Each method is atomic. Offer is idempotent by
// job id.
type Line interface {
	Offer(context.Context, leaky.Offer) (leaky.Place, error)
	Look(ctx context.Context, id string) (leaky.Look, error)
}

// Answers finds the last good answer to a request, whatever its age. Its body is shared and must
// not be written to. While the store is unavailable it finds answers in memory only.
type Answers interface {
	Known(ctx context.Context, key string) (cache.Answer, bool, error)
}

// Store reports whether Redis can be called.
type Store interface {
	Healthy() bool // false: a call would fail, or hang
}

// Secret is a text that all processes of a deployment share and no client knows.
type Secret interface {
	Text(ctx context.Context) (string, error)
}

// Health knows the state of the backends from memory. Safe for concurrent use.
type Health interface {
	// Sick reports whether a backend's gate is closed, or its effective rate is below the given
	// part of its rate.
	Sick(backend string, below float64) bool
}

// Newcomers knows which clients are new. Until returns when a client's time as a new one ends, or
// the zero time if it has ended. It may answer from memory after ctx has ended. On an error the
// client counts as not new. Safe for concurrent use.
type Newcomers interface {
	Until(ctx context.Context, client string, period time.Duration) (time.Time, error)
}

// Shadows counts the clients' requests that shadow limits would have refused. Note never blocks.
// Safe for concurrent use.
type Shadows interface {
	Note(limit, client, operation string)
}

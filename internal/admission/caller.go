package admission

import (
	"context"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/limits"
)

// Admission decides what requests get. Safe for concurrent use.
type Admission struct {
	Config
	operations map[string]*Operation
	planner    *planner
	metrics    metrics
	recent     recent
	trials     trials
	refreshes  refreshes
	storeLog   rate.Sometimes // during an outage, every request would log the same
}

// New returns an Admission. It registers its metrics with c.Metrics.
func New(c Config) *Admission {
	a := &Admission{Config: c, operations: make(map[string]*Operation, len(c.Operations)),
		metrics: newMetrics(c.Metrics), refreshes: newRefreshes(),
		storeLog: rate.Sometimes{Interval: time.Second}}
	for i := range c.Operations {
		a.operations[c.Operations[i].Name] = &c.Operations[i]
	}
	a.planner = newPlanner(c, a.operations, a.metrics.of)
	return a
}

// Operation returns the operation of a name; nil if there is none.
func (a *Admission) Operation(name string) *Operation { return a.operations[name] }

// Open returns the names of the operations that a tier may request, sorted.
func (a *Admission) Open(tier string) []string {
	var names []string
	for name, o := range a.operations {
		if o.Open(tier) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Reasons returns the names of the limits that may refuse a tier's requests for an operation,
// without clients' own limits.
func (a *Admission) Reasons(tier string, o *Operation) []string {
	return a.planner.reasons(tier, o)
}

// Caller is an identified client with the settings that apply to it at the moment.
type Caller struct {
	identity.Client
	Override *Override // nil: none
	NewUntil time.Time // the end of its time as a new client; zero: it isn't new
}

// Caller returns the settings that apply to a client. It asks the store only to learn whether the
// client is new, if that isn't in memory. An error is the store's; the client then counts as not
// new.
func (a *Admission) Caller(ctx context.Context, client identity.Client) (c Caller, err error) {
	c.Client = client
	if client.Anonymous {
		return c, nil
	}
	if a.Overrides != nil {
		c.Override = a.Overrides(client.ID)
	}
	g := a.Tiers[client.Tier].Grace
	if g.Factor == 0 || a.Newcomers == nil {
		return c, nil
	}
	if !a.Store.Healthy() {
		ctx = ended
	}
	until, err := a.Newcomers.Until(ctx, client.ID, g.Period)
	if err != nil {
		return c, err
	}
	c.NewUntil = until
	return c, nil
}

// ended is the context of look-ups in memory only.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// key is the plan key of a caller's requests for an operation.
func (c Caller) key(operation string) planKey {
	return planKey{tier: c.Tier, operation: operation, country: c.Country, override: c.Override,
		grace: !c.NewUntil.IsZero()}
}

// Plan returns the limits and the weight that apply to a caller's requests for an operation, or for
// "", to calls that name none.
func (a *Admission) Plan(c Caller, operation string) *Plan {
	return a.planner.plan(c.key(operation))
}

// CheckPlan is Plan for work whose end isn't reported, such as a request that a gateway asks about:
// it leaves out concurrency limits.
func (a *Admission) CheckPlan(c Caller, operation string) *Plan {
	k := c.key(operation)
	k.check = true
	return a.planner.plan(k)
}

// ReadsPlan returns the limits that apply to a caller's lists. It is the same for new clients.
func (a *Admission) ReadsPlan(c Caller) *Plan {
	return a.planner.plan(planKey{tier: c.Tier, country: c.Country, reads: true})
}

// Subject returns what limits count when a client requests an operation; "": a call that names
// none.
func Subject(client identity.Client, operation string) limits.Subject {
	s := limits.Subject{Client: client.ID, Address: client.Address, Operation: operation,
		Tier: client.Tier, Country: client.Country}
	if s.Country == "" {
		s.Country = unknownCountry
	}
	return s
}

// Decide lets a plan's limits decide on a request, whose Rules it sets, and counts each limit's
// result.
func (a *Admission) Decide(ctx context.Context, p *Plan, r limits.Request) (limits.Verdict, error) {
	return a.decideBy(ctx, a.Limiter, p, r)
}

func (a *Admission) decideBy(ctx context.Context, by Decider, p *Plan,
	r limits.Request) (limits.Verdict, error) {
	r.Rules = p.Rules
	v, err := by.Decide(ctx, r)
	if err == nil {
		a.note(p, r, v)
	}
	return v, err
}

// note counts the results of a plan's limits for a request, and remembers where they stand.
func (a *Admission) note(p *Plan, r limits.Request, v limits.Verdict) {
	// Otherwise the verdict may be about this process's part of the limits only.
	if a.Store.Healthy() && !p.Reads {
		a.recent.decision(p, r, v)
	}
	for i, s := range v.Standings {
		if s.Rule.Limit().Shadow {
			// A request that was refused anyway doesn't show the effect of a shadow limit.
			if v.Allowed && p.counts[i].shadow(s.Violated) && a.Shadows != nil {
				a.Shadows.Note(s.Rule.Limit().Name, r.Subject.Client, r.Subject.Operation)
			}
			continue
		}
		p.counts[i].enforced(v.Allowed, s.Violated)
	}
}

// Recent returns where a plan's limits stood for a subject, no longer ago than within, or nil if
// this process doesn't remember that. It doesn't call the store.
func (a *Admission) Recent(p *Plan, s limits.Subject, within time.Duration) *limits.Verdict {
	return a.recent.recall(p, s, within)
}

// Peek reads where a plan's limits stand for a subject, and remembers it for Recent.
func (a *Admission) Peek(ctx context.Context, p *Plan, s limits.Subject) (limits.Verdict, error) {
	began := time.Now()
	v, err := a.Limiter.Peek(ctx, limits.Request{Rules: p.Rules, Cost: 1, Subject: s})
	if err == nil {
		a.recent.peek(p, s, v, began)
	}
	return v, err
}

// Forget drops a client's recent limits. It is for changes that no verdict reports: a canceled job
// returns its permits.
func (a *Admission) Forget(client string) { a.recent.forget(client) }

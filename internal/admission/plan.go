package admission

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/forebay/forebay/internal/limits"
)

// unknownCountry is the country of callers whose country isn't known, in limits per country.
const unknownCountry = "unknown"

// Plan has the limits that apply to one kind of request, and the weight of its job. It is
// immutable.
type Plan struct {
	Weight float64 // in the line
	Rules  []*limits.Rule
	Own    int  // Rules[Own:] count this operation's requests only
	Bytes  bool // a limit counts bytes
	Reads  bool // the limits are on lists
	// Policy is what Config.Policy made of the plan.
	Policy []string

	grace  []float64       // by which each rule was raised; nil: the client isn't new
	counts []checkCounters // of each rule
}

// Grace returns the factor by which the i-th rule was raised for a new client, or 1.
func (p *Plan) Grace(i int) float64 {
	if p.grace == nil {
		return 1
	}
	return p.grace[i]
}

// planKey determines which limits apply to a request.
type planKey struct {
	tier      string    // "": the caller has no valid credentials
	operation string    // "": the call names none, or failed before its operation was known
	country   string    // "": not known, or no limit asks for it
	override  *Override // nil: none
	grace     bool      // the client is new
	check     bool      // a gateway asks: nothing reports the end of the work, so no permits
	reads     bool      // a list: limits on reads only
}

// applied is a limit as it applies to a request.
type applied struct {
	rule  *limits.Rule
	grace float64 // the factor for new clients; 1: none
}

// applying is the only function that decides which limits apply to a request. It is pure. common
// are the limits on all of the caller's requests, own those on requests for the operation only.
func (p *planner) applying(k planKey) (common, own []applied) {
	var ofOperation []Limit
	if o := p.operations[k.operation]; o != nil {
		ofOperation = o.Limits
	}
	add := func(l Limit, operations bool) {
		limit := l.Rule.Limit()
		operations = operations || len(l.When.Operations) > 0 || limit.Per.OfOperation()
		switch {
		case !l.When.Fits(k.tier, k.operation, k.country), operations && k.operation == "":
			return
		case k.tier == "" && limit.Per != limits.PerIP:
			return // only the address is known
		case k.check && limit.Algorithm == limits.Concurrency:
			return
		}
		a := applied{rule: l.Rule, grace: 1}
		if k.grace && limit.Per.OfClient() {
			a = p.special.Load().graced(l.Rule, p.tiers[k.tier].Grace.Factor)
		}
		if operations {
			own = append(own, a)
		} else {
			common = append(common, a)
		}
	}
	if k.reads {
		for _, l := range p.tiers[k.tier].Reads {
			add(l, false)
		}
		return common, nil
	}
	for _, l := range ofTier(p.tiers[k.tier], k.override) {
		add(l, false)
	}
	for _, l := range p.limits {
		add(l, false)
	}
	for _, l := range ofOperation {
		add(l, true)
	}
	return common, own
}

// ofTier returns a tier's limits for a client that may have its own.
func ofTier(t Tier, o *Override) []Limit {
	if o == nil {
		return t.Limits
	}
	replaced := func(l Limit) bool {
		return slices.ContainsFunc(o.Limits, func(own Limit) bool {
			return own.Rule.Limit().Name == l.Rule.Limit().Name
		})
	}
	return append(slices.DeleteFunc(slices.Clone(t.Limits), replaced), o.Limits...)
}

// planner finds plans, and makes each once. Safe for concurrent use.
type planner struct {
	tiers      map[string]Tier
	operations map[string]*Operation
	limits     []Limit
	count      func(limits.Limit) checkCounters
	policy     func(*Plan) []string // may be nil

	countries map[string]bool   // that some limit of the config asks for
	plain     map[planKey]*Plan // of callers without grace or override: made at the start
	special   atomic.Pointer[madePlans]
}

// madePlans are the plans that were made on request.
type madePlans struct {
	plans sync.Map // planKey → *Plan
	rules sync.Map // for new clients: applied (the rule of others, the factor) → applied
	count atomic.Int64
}

// maxSpecial bounds the plans that are made on request, of about 1 KiB each. Plans of overrides
// that are no longer in force stay until the bound is reached. Then all plans are dropped, and made
// again on request.
const maxSpecial = 10_000

func newPlanner(c Config, operations map[string]*Operation,
	count func(limits.Limit) checkCounters) *planner {
	p := &planner{tiers: c.Tiers, operations: operations, limits: c.Limits, count: count,
		policy: c.Policy, countries: map[string]bool{}, plain: map[planKey]*Plan{}}
	p.special.Store(&madePlans{})
	for _, l := range p.all() {
		count(l.Rule.Limit()) // so that its metrics begin at 0
		for _, country := range l.When.Countries {
			p.countries[country] = true
		}
	}
	for tier := range c.Tiers {
		for _, reads := range []bool{false, true} {
			k := planKey{tier: tier, reads: reads}
			p.plain[k] = p.make(k)
		}
		for name := range operations {
			k := planKey{tier: tier, operation: name}
			p.plain[k] = p.make(k)
		}
	}
	p.plain[planKey{}] = p.make(planKey{})
	return p
}

// all returns the config's limits.
func (p *planner) all() []Limit {
	all := slices.Clone(p.limits)
	for _, t := range p.tiers {
		all = append(all, t.Limits...)
		all = append(all, t.Reads...)
	}
	for _, o := range p.operations {
		all = append(all, o.Limits...)
	}
	return all
}

// plan returns the plan of a key, whose country may be any.
func (p *planner) plan(k planKey) *Plan {
	if k.country != "" && !p.countries[k.country] && !k.override.asks(k.country) {
		k.country = ""
	}
	if found := p.plain[k]; found != nil {
		return found
	}
	made := p.special.Load()
	if found, ok := made.plans.Load(k); ok {
		return found.(*Plan)
	}
	fresh := p.make(k)
	if _, was := made.plans.LoadOrStore(k, fresh); !was && made.count.Add(1) >= maxSpecial {
		p.special.CompareAndSwap(made, &madePlans{})
	}
	return fresh
}

func (p *planner) make(k planKey) *Plan {
	common, own := p.applying(k)
	made := &Plan{Weight: p.tiers[k.tier].Weight, Own: len(common), Reads: k.reads}
	if k.override != nil && k.override.Weight > 0 {
		made.Weight = k.override.Weight
	}
	for _, a := range slices.Concat(common, own) {
		limit := a.rule.Limit()
		made.Rules = append(made.Rules, a.rule)
		made.counts = append(made.counts, p.count(limit))
		made.Bytes = made.Bytes || limit.Bytes
		if k.grace {
			made.grace = append(made.grace, a.grace)
		}
	}
	if p.policy != nil {
		made.Policy = p.policy(made)
	}
	return made
}

// graced returns the form of a rule for new clients, or the rule itself if it can't allow more. All
// plans share the result, because other packages remember rules by their pointers.
func (m *madePlans) graced(r *limits.Rule, factor float64) applied {
	k := applied{r, factor}
	if found, ok := m.rules.Load(k); ok {
		return found.(applied)
	}
	raised := applied{r, 1}
	if scaled, err := r.Scaled(factor); err == nil && scaled.Limit() != r.Limit() {
		raised = applied{scaled, factor}
	}
	found, _ := m.rules.LoadOrStore(k, raised)
	return found.(applied)
}

// reasons returns the names of the limits that may refuse a tier's requests for an operation, in
// any country. Limits of clients' own are left out: they come and go.
func (p *planner) reasons(tier string, o *Operation) (names []string) {
	for _, l := range slices.Concat(p.tiers[tier].Limits, p.limits, o.Limits) {
		if l.When.MayFit(tier, o.Name) && !l.Rule.Limit().Shadow {
			names = append(names, l.Rule.Limit().Name)
		}
	}
	return names
}

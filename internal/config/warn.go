package config

import (
	"iter"
	"slices"
	"strings"

	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/strictyaml"
)

// warn finds what is allowed but rarely intended. It is called on a config without errors.
func (c *Config) warn(r *report) {
	for n, p := range c.HTTP.TrustedProxies {
		if p.Bits() == 0 {
			r.Warnf(strictyaml.At("http.trusted_proxies", n), "trusts every address, so any "+
				"caller can invent its own; name only your proxies")
		}
	}
	if c.Identity.Anonymous != "" && c.HTTP.TrustedProxies == nil &&
		!r.Given("http.trusted_proxies") {
		r.Warnf("identity.anonymous", "behind a proxy all callers without a key would count as "+
			"one; name your proxies in http.trusted_proxies, or write [] if there are none")
	}
	used := c.usedTiers()
	c.warnTiers(r, used)
	c.warnLimits(r)
	for _, name := range names(c.Operations) {
		c.warnOperation(r, name, used)
	}
	for _, name := range names(c.Backends) {
		c.warnBackend(r, name)
	}
}

// usedTiers returns the tiers that some caller has, each with the config's key that says so.
func (c *Config) usedTiers() map[string]string {
	used := map[string]string{}
	if a := c.Identity.Anonymous; a != "" {
		used[a] = "identity.anonymous"
	}
	for n, client := range c.Identity.Clients {
		if used[client.Tier] == "" {
			used[client.Tier] = strictyaml.At("identity.clients", n) + ".tier"
		}
	}
	return used
}

// openEnded reports whether any tier may have callers, since the clients of a clients file aren't
// known here.
func (c *Config) openEnded() bool { return c.Identity.ClientsFile != "" }

func (c *Config) warnTiers(r *report, used map[string]string) {
	for _, tier := range names(c.Tiers) {
		if at := used[tier]; at != "" && len(c.openTo(tier)) == 0 {
			r.Warnf(at, "no operation allows tier %s, so its callers can do nothing; add it to "+
				"the tiers of an operation", tier)
		}
		if used[tier] != "" || c.openEnded() {
			c.warnUnlimited(r, tier)
		}
		if c.Tiers[tier].Grace != (Grace{}) {
			c.warnGrace(r, tier)
		}
	}
}

// openTo returns the operations that a tier may use.
func (c *Config) openTo(tier string) []string {
	closed := func(name string) bool { return !c.Operations[name].Tiers.Have(tier) }
	return slices.DeleteFunc(names(c.Operations), closed)
}

// warnUnlimited finds callers that only the lines limit.
func (c *Config) warnUnlimited(r *report, tier string) {
	// A limit on some countries doesn't apply to others; a shadow limit refuses no request.
	holds := func(l placed) bool { return l.Enforce && len(l.When.Countries) == 0 }
	free := slices.DeleteFunc(c.openTo(tier), func(name string) bool {
		return slices.ContainsFunc(c.meeting(tier, name), holds)
	})
	if len(free) > 0 {
		r.Warnf(strictyaml.Join("tiers", tier), "no limit applies to all its callers on %s: one "+
			"of them alone can fill the line; add tiers.%s.limits or "+
			"limits", strictyaml.List(free), tier)
	}
}

// warnGrace finds a grace that raises no limit, or is for no client.
func (c *Config) warnGrace(r *report, tier string) {
	key := strictyaml.Join("tiers", tier) + ".grace"
	has := func(client Client) bool { return client.Tier == tier }
	if !c.openEnded() && !slices.ContainsFunc(c.Identity.Clients, has) {
		r.Warnf(key, "has no effect: it is for clients, and no client has this tier (callers "+
			"without a key are never new); give it to one, or leave it out")
		return
	}
	for _, operation := range c.openTo(tier) {
		for _, l := range c.meeting(tier, operation) {
			if l.Per.OfClient() {
				return
			}
		}
	}
	r.Warnf(key, "has no effect: no limit of its clients has per: client or client+operation; add "+
		"one, or leave it out")
}

// warnLimits finds limits that can never have an effect, and keys for limits that don't exist.
func (c *Config) warnLimits(r *report) {
	counted, requests := false, c.requests()
	for _, list := range c.lists() {
		for n, l := range list.limits {
			key := list.at(n)
			counted = counted || l.Per == limits.PerCountry || len(l.When.Countries) > 0
			for i, country := range l.When.Countries {
				if at := strictyaml.At(key+".when.country", i); !identity.IsCountry(country) {
					r.Warnf(at, "%s stands for no country. Its callers count as "+
						"unknown, so it never applies; take it out", r.Shown(at, country))
				}
			}
			if !reachable(requests, list, l) {
				r.Warnf(key+".when", "holds for no request that its list is for, so the limit "+
					"never applies; name operations that these tiers may use")
			}
			if s := c.Region.Share; s > 0 && float64(l.Limit)*s < 1 {
				r.Warnf(key+".limit", "the region's share of it is under 1 and is rounded up to "+
					"that, so the regions together may allow more; use a larger limit and window")
			}
		}
	}
	if counted || c.openEnded() {
		return
	}
	const idle = "has no effect: no limit has per: country or when.country; add one, or leave " +
		"this out"
	if c.Identity.CountryHeader != "" {
		r.Warnf("identity.country_header", idle)
	}
	if c.Identity.CountryDatabase != "" {
		r.Warnf("identity.country_database", idle)
	}
}

// reachable reports whether the condition of a limit in a list may apply to some request.
func reachable(requests iter.Seq2[string, string], in limitList, l Limit) bool {
	if len(l.When.Tiers)+len(l.When.Operations) == 0 {
		return true
	}
	reach := within(l.When, in)
	for tier, operation := range requests {
		if reach.MayFit(tier, operation) && l.When.MayFit(tier, operation) {
			return true
		}
	}
	return false
}

func (c *Config) warnOperation(r *report, name string, used map[string]string) {
	o, key := c.Operations[name], strictyaml.Join("operations", name)
	if !c.openEnded() && !slices.ContainsFunc(names(used), o.Tiers.Have) {
		r.Warnf(key+".tiers", "no caller has one of these tiers (%s), so nobody can use it; give "+
			"one to a client", strings.Join(o.Tiers, ", "))
	}
	if o.Cache.StaleFor == 0 && o.triesStale() && r.Given(key+".on_overload") {
		r.Warnf(key+".on_overload",
			"stale has no effect without cache.stale_for; set that, or write [reject]")
	}
	if o.Cache.StaleFor == 0 && o.Cache.FreshFor == 0 && !o.Coalesce {
		for _, at := range []string{key + ".cache.share", key + ".cache.key"} {
			if r.Given(at) {
				r.Warnf(at, "has no effect without cache.stale_for, cache.fresh_for or coalesce; "+
					"set one, or leave it out")
			}
		}
	}
	if o.Degrade != (Degrade{}) && !bool(c.Backends[o.Backend].Feedback) {
		r.Warnf(key+".degrade", "has no effect: with feedback: off backend %s is never found "+
			"sick; turn that on, or leave this out", o.Backend)
	}
	if o.Cost.From != "" {
		c.warnCost(r, name)
	}
}

// warnCost finds the first limit that an operation's costliest requests never fit.
func (c *Config) warnCost(r *report, operation string) {
	o := c.Operations[operation]
	for _, tier := range names(c.Tiers) {
		if !o.Tiers.Have(tier) {
			continue
		}
		for _, l := range c.meeting(tier, operation) {
			if most, share := c.fits(l.Limit); most < o.Cost.Max {
				r.Warnf(strictyaml.Join("operations", operation)+".cost.max", "is more than limit "+
					"%s (%s) can ever allow%s: dearer requests are refused for good; lower max, "+
					"or raise the limit",
					r.Shown(l.key()+".name", l.Name), l.key(), mostOf(r, l.key(), most, share))
				return
			}
		}
	}
}

func (c *Config) warnBackend(r *report, name string) {
	b, key := c.Backends[name], strictyaml.Join("backends", name)
	calls := func(operation string) bool { return c.Operations[operation].Backend == name }
	if !slices.ContainsFunc(names(c.Operations), calls) {
		r.Warnf(key, "no operation uses it; point one at it, or remove it")
	}
	if b.Line.MaxWait > b.MaxAge {
		r.Warnf(key+".line.max_wait", "is longer than max_age (%s), so jobs may be accepted only "+
			"to expire; lower max_wait or raise max_age", r.Shown(key+".max_age", b.MaxAge))
	}
}

package config

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/strictyaml"
)

// warn finds settings that are allowed and rarely intended. It is called on a config without
// errors.
func (c *Config) warn(r *strictyaml.Report) {
	for n, p := range c.HTTP.TrustedProxies {
		if p.Bits() == 0 {
			r.Warnf(fmt.Sprintf("http.trusted_proxies[%d]", n), "trusts every address, so any "+
				"caller can invent its own; name only your proxies")
		}
	}

	if c.Identity.Anonymous != "" && c.HTTP.TrustedProxies == nil &&
		!r.Given("http.trusted_proxies") {
		r.Warnf("identity.anonymous", "behind a proxy all callers without a key would count as "+
			"one; name your proxies in http.trusted_proxies, or write [] if there are none")
	}

	inUse := map[string]string{} // tier: the key that gives it to callers
	if a := c.Identity.Anonymous; a != "" {
		inUse[a] = "identity.anonymous"
	}
	for n, client := range c.Identity.Clients {
		if inUse[client.Tier] == "" {
			inUse[client.Tier] = fmt.Sprintf("identity.clients[%d].tier", n)
		}
	}
	openEnded := c.Identity.ClientsFile != "" // any tier may have clients
	for _, tier := range names(c.Tiers) {
		at, used := inUse[tier]
		if used && !slices.ContainsFunc(names(c.Operations),
			func(o string) bool { return c.Operations[o].Tiers.Have(tier) }) {
			r.Warnf(at, "no operation allows tier %s, so its callers can do nothing; add it to "+
				"the tiers of an operation", tier)
		}
		if used || openEnded {
			c.warnUnlimited(r, tier)
		}
	}

	c.warnLimits(r)

	called := map[string]bool{}
	for _, name := range names(c.Operations) {
		o, key := c.Operations[name], strictyaml.Join("operations", name)
		called[o.Backend] = true
		if !openEnded && !slices.ContainsFunc(names(inUse), o.Tiers.Have) {
			r.Warnf(key+".tiers", "no caller has one of these tiers (%s), so nobody can use it; "+
				"give one to a client", strings.Join(o.Tiers, ", "))
		}
		if o.Cache.StaleFor == 0 && o.triesStale() && r.Given(key+".on_overload") {
			r.Warnf(key+".on_overload", "stale has no effect without cache.stale_for; set that, "+
				"or write [reject]")
		}
		if o.Cache.StaleFor == 0 && o.Cache.FreshFor == 0 && !o.Coalesce {
			for _, of := range []string{".cache.share", ".cache.key"} {
				if r.Given(key + of) {
					r.Warnf(key+of, "has no effect without cache.stale_for, cache.fresh_for or "+
						"coalesce; set one, or leave it out")
				}
			}
		}
		if b, known := c.Backends[o.Backend]; known && o.Degrade != (Degrade{}) &&
			!bool(b.Feedback) {
			r.Warnf(key+".degrade", "has no effect: with feedback: off backend %s is never found "+
				"sick; turn that on, or leave this out", o.Backend)
		}
	}
	for _, name := range names(c.Backends) {
		b, key := c.Backends[name], strictyaml.Join("backends", name)
		if !called[name] {
			r.Warnf(key, "no operation uses it; point one at it, or remove it")
		}
		if b.Line.MaxWait > b.MaxAge {
			r.Warnf(key+".line.max_wait", "is longer than max_age (%s), so jobs may be accepted "+
				"only to expire; lower max_wait or raise max_age",
				r.Shown(key+".max_age", b.MaxAge))
		}
	}
}

// warnUnlimited finds callers that only the lines hold back.
func (c *Config) warnUnlimited(r *strictyaml.Report, tier string) {
	var free []string
	for _, name := range names(c.Operations) {
		if !c.Operations[name].Tiers.Have(tier) {
			continue
		}
		// A limit with a condition on countries doesn't apply in others, and a shadow limit refuses
		// nothing.
		if !slices.ContainsFunc(c.meeting(tier, name),
			func(l placed) bool { return l.Enforce && len(l.When.Countries) == 0 }) {
			free = append(free, name)
		}
	}
	if len(free) > 0 {
		r.Warnf(strictyaml.Join("tiers", tier), "no limit applies to all its callers on %s: one "+
			"of them alone can fill the line; add tiers.%s.limits or limits",
			strictyaml.List(free), tier)
	}
}

// warnLimits finds limits that never apply or can't apply as written, and keys that only absent
// limits need.
func (c *Config) warnLimits(r *strictyaml.Report) {
	counted, requests := false, c.requests()
	for _, list := range c.lists() {
		for n, l := range list.limits {
			key := strictyaml.At(list.key(), n)
			counted = counted || l.Per == limits.PerCountry || len(l.When.Countries) > 0
			for i, country := range l.When.Countries {
				if at := fmt.Sprintf("%s.when.country[%d]", key, i); nowhere(country) {
					r.Warnf(at, "%s stands for no country, and whoever comes with it counts as "+
						"unknown, so it never holds; take it out", r.Shown(at, country))
				}
			}
			if !c.reachable(requests, list, l) {
				r.Warnf(key+".when", "holds for no request that its list is for, so the limit "+
					"never applies; name operations that these tiers may use")
			}
			if s := c.Region.Share; s > 0 && float64(l.Limit)*s < 1 {
				r.Warnf(key+".limit", "the region's share of it is under 1 and is rounded up to "+
					"that, so the regions together may allow more; use a larger limit and window")
			}
		}
	}
	if id := c.Identity; !counted && id.ClientsFile == "" {
		const text = "has no effect: no limit has per: country or when.country; " +
			"add one, or leave this out"
		if id.CountryHeader != "" {
			r.Warnf("identity.country_header", text)
		}
		if id.CountryDatabase != "" {
			r.Warnf("identity.country_database", text)
		}
	}
	for _, name := range names(c.Tiers) {
		if c.Tiers[name].Grace != (Grace{}) {
			c.warnGrace(r, name)
		}
	}
	for _, name := range names(c.Operations) {
		c.warnCost(r, name)
	}
}

// reachable reports whether a limit of a list may apply to any request, by its condition.
func (c *Config) reachable(requests iter.Seq2[string, string], in limitList, l Limit) bool {
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

// warnGrace finds a grace without clients, or without limits to widen.
func (c *Config) warnGrace(r *strictyaml.Report, tier string) {
	key, id := strictyaml.Join("tiers", tier)+".grace", c.Identity
	if id.ClientsFile == "" &&
		!slices.ContainsFunc(id.Clients, func(client Client) bool { return client.Tier == tier }) {
		r.Warnf(key, "has no effect: it is for clients, and no client has this tier (callers "+
			"without a key are never new); give it to one, or leave it out")
		return
	}
	for _, operation := range names(c.Operations) {
		if c.Operations[operation].Tiers.Have(tier) &&
			slices.ContainsFunc(c.meeting(tier, operation),
				func(l placed) bool { return l.Per.OfClient() }) {
			return
		}
	}
	r.Warnf(key, "has no effect: no limit of its clients has per: client or client+operation; add "+
		"one, or leave it out")
}

// warnCost finds the first limit that an operation's most expensive requests never fit.
func (c *Config) warnCost(r *strictyaml.Report, operation string) {
	cost := c.Operations[operation].Cost
	if cost.From == "" {
		return
	}
	for _, tier := range names(c.Tiers) {
		if !c.Operations[operation].Tiers.Have(tier) {
			continue
		}
		for _, l := range c.meeting(tier, operation) {
			if most, share := c.fits(l.Limit); most < cost.Max {
				r.Warnf(strictyaml.Join("operations", operation)+".cost.max",
					"is more than limit %s (%s) can ever allow%s: dearer requests are refused for "+
						"good; lower max, or raise the limit",
					r.Shown(l.key()+".name", l.Name), l.key(), mostOf(r, l.key(), most, share))
				return
			}
		}
	}
}

// nowhere reports whether two letters stand for no country, though proxies and databases send them:
// for unknown, for many, or (A*, Q*, X*, Z*) for private use.
func nowhere(code string) bool {
	switch code {
	case "XK": // Kosovo, everywhere
		return false
	case "AA", "AP", "EU", "EZ", "UN", "ZZ":
		return true
	}
	return code[0] == 'X' || code[0] == 'Q' && code[1] >= 'M'
}

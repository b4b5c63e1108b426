package config

import (
	"fmt"
	"slices"
	"strings"
)

// warn finds what is allowed and yet is rarely meant. It is called on a config without errors.
func (c *Config) warn(r *report) {
	for n, p := range c.HTTP.TrustedProxies {
		if p.Bits() == 0 {
			r.warnf(fmt.Sprintf("http.trusted_proxies[%d]", n), "trusts every address, so any caller can invent its own; name only your proxies")
		}
	}

	inUse := map[string]string{} // tier: the key that gives it to somebody
	if a := c.Identity.Anonymous; a != "" {
		inUse[a] = "identity.anonymous"
	}
	for n, client := range c.Identity.Clients {
		if inUse[client.Tier] == "" {
			inUse[client.Tier] = fmt.Sprintf("identity.clients[%d].tier", n)
		}
	}
	for _, tier := range names(inUse) {
		if !slices.ContainsFunc(names(c.Operations), func(o string) bool { return c.Operations[o].allows(tier) }) {
			r.warnf(inUse[tier], "no operation allows tier %s, so its callers can do nothing; add it to the tiers of an operation", tier)
		}
		c.warnUnlimited(r, tier)
	}

	called := map[string]bool{}
	for _, name := range names(c.Operations) {
		o, key := c.Operations[name], join("operations", name)
		called[o.Backend] = true
		if !slices.ContainsFunc(names(inUse), o.allows) {
			r.warnf(key+".tiers", "no caller has one of these tiers (%s), so nobody can use it; give one to a client", strings.Join(o.Tiers, ", "))
		}
		if o.Cache.StaleFor == 0 && slices.Contains(o.OnOverload, "stale") && r.given(key+".on_overload") {
			r.warnf(key+".on_overload", "stale has no effect without cache.stale_for; set that, or write [reject]")
		}
		if o.Cache.StaleFor == 0 && r.given(key+".cache.share") {
			r.warnf(key+".cache.share", "has no effect without cache.stale_for; set that, or leave it out")
		}
	}
	for _, name := range names(c.Backends) {
		b, key := c.Backends[name], join("backends", name)
		if !called[name] {
			r.warnf(key, "no operation uses it; point one at it, or remove it")
		}
		if b.Line.MaxWait > b.MaxAge {
			r.warnf(key+".line.max_wait", "is longer than max_age (%s), so jobs may be accepted only to expire; lower max_wait or raise max_age", r.shown(key+".max_age", formatDuration(b.MaxAge)))
		}
	}
}

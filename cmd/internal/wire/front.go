package wire

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"forebay/internal/admission"
	"forebay/internal/cache"
	"forebay/internal/config"
	"forebay/internal/degrade"
	"forebay/internal/httpapi"
	"forebay/internal/identity"
	"forebay/internal/leaky"
	"forebay/internal/store"
)

// fixedCost is what a request takes of each limit.
const fixedCost = 1

// Front puts the api's server together.
func Front(c *config.Config, s *store.Store, lines map[string]*leaky.Line, finals httpapi.Finals, metrics *prometheus.Registry, log *slog.Logger) (*httpapi.Server, error) {
	front := httpapi.Config{
		Identity:   identity.New(identityConfig(c)),
		Limiter:    admission.New(s.Client(), s.Cluster()),
		Degrader:   degrade.New(cache.New(s.Client())),
		Store:      s,
		Finals:     finals,
		Lines:      map[string]httpapi.Line{},
		Tiers:      map[string]httpapi.Tier{},
		MaxBody:    int64(c.HTTP.MaxBody),
		Legacy:     httpapi.LegacyHeaders(c.HTTP.LegacyRateLimitHeaders),
		AdminToken: string(c.Admin.Token),
		Metrics:    metrics,
		Log:        log,
	}
	for name, line := range lines {
		front.Lines[name] = line
	}
	var err error
	if front.Limits, err = rules("limits", c.Limits); err != nil {
		return nil, err
	}
	for name, t := range c.Tiers {
		limits, err := rules("tier:"+name, t.Limits)
		if err != nil {
			return nil, err
		}
		front.Tiers[name] = httpapi.Tier{Weight: t.Weight, Limits: limits}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Operations)) {
		o := c.Operations[name]
		limits, err := rules("operation:"+name, o.Limits)
		if err != nil {
			return nil, err
		}
		front.Operations = append(front.Operations, httpapi.Operation{Name: name, Backend: o.Backend, Tiers: o.Tiers, Cost: fixedCost,
			Limits: limits, Overload: policy(o), Keep: o.KeepResult, MaxAge: c.Backends[o.Backend].MaxAge})
	}
	return httpapi.New(front), nil
}

func identityConfig(c *config.Config) identity.Config {
	out := identity.Config{Anonymous: c.Identity.Anonymous, TrustedProxies: c.HTTP.TrustedProxies, Header: c.HTTP.ClientIPHeader, IPv6Prefix: c.HTTP.IPv6Prefix}
	for _, client := range c.Identity.Clients {
		registered := identity.Registered{Name: client.Name, Tier: client.Tier}
		for _, digest := range client.KeySHA256 {
			registered.Keys = append(registered.Keys, identity.Digest(digest))
		}
		out.Clients = append(out.Clients, registered)
	}
	return out
}

// rules compiles the limits of one owner: the name by which limits of the same name in different places are told apart.
func rules(owner string, limits []config.Limit) ([]*admission.Rule, error) {
	var out []*admission.Rule
	for _, l := range limits {
		rule, err := admission.Compile(admission.Limit{Name: l.Name, Owner: owner, Algorithm: admission.Algorithm(l.Algorithm), Per: admission.Per(l.Per),
			Amount: l.Limit, Window: l.Window, Burst: l.Burst})
		if err != nil {
			return nil, fmt.Errorf("%s: limit %s: %w", owner, l.Name, err)
		}
		out = append(out, rule)
	}
	return out, nil
}

func policy(o config.Operation) degrade.Policy {
	p := degrade.Policy{StaleFor: o.Cache.StaleFor, Share: o.Cache.Share}
	for _, step := range o.OnOverload {
		p.Steps = append(p.Steps, degrade.Step(step))
	}
	return p
}

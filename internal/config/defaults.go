package config

import (
	"net/netip"
	"path/filepath"
	"time"

	"github.com/forebay/forebay/internal/strictyaml"
)

// Default returns every default that doesn't belong to a named thing. It has no backend, no operation,
// no tier and no callers, so it isn't valid by itself.
func Default() *Config {
	c := &Config{}
	strictyaml.SetDefaults(c)
	return c
}

// settle fills in the defaults that depend on other keys. dir is where the config lies.
func (c *Config) settle(dir string) {
	if c.Redis.URL == "" {
		c.Worker.Embedded = true
	}
	own, centre := &c.Redis.TLS, &c.Region.Sync.TLS
	for _, path := range []*string{&c.Identity.CountryDatabase, &c.Identity.ClientsFile,
		&own.CA, &own.Cert, &own.Key, &centre.CA, &centre.Cert, &centre.Key} {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	for _, list := range c.lists() {
		settleLimits(list.limits)
	}
}

func settleLimits(limits []Limit) {
	for n := range limits {
		if l := &limits[n]; l.bucket() && l.Burst == 0 {
			l.Burst = l.Limit
		}
	}
}

// Demo returns what runs without a config file: embedded Redis and worker, anonymous callers, an
// operation that may be answered from stock (report) and one that may not (thumbnail), each on its
// own backend. The backends, reports and thumbnails, have no URL yet. The limit is wide enough to
// fill both lines first and narrow enough to be met within a minute of trying. Check completes it.
func Demo() *Config {
	c := Default()
	c.ShutdownDelay = 0 // no load balancer stands before it, and Ctrl-C should be quick
	c.Worker.Embedded = true
	c.HTTP.TrustedProxies = []netip.Prefix{} // there are none: no warning
	c.Identity.Anonymous = "free"
	var free Tier
	strictyaml.SetDefaults(&free)
	free.Limits = []Limit{{Name: "per-minute", Per: "client", Algorithm: SlidingWindowCounter, Limit: 60, Window: Window(time.Minute), Enforce: true}}
	c.Tiers = map[string]Tier{"free": free}

	var reports, thumbnails Backend
	strictyaml.SetDefaults(&reports)
	reports.Drain.Rate, reports.Line.Capacity = "2/s", 20
	strictyaml.SetDefaults(&thumbnails)
	thumbnails.Drain.Rate, thumbnails.Line.Capacity = "1/s", 5
	c.Backends = map[string]Backend{"reports": reports, "thumbnails": thumbnails}

	var report, thumbnail Operation
	strictyaml.SetDefaults(&report)
	report.Backend, report.Path = "reports", "/report"
	report.Cache = Cache{StaleFor: time.Hour, Share: "all"}
	strictyaml.SetDefaults(&thumbnail)
	thumbnail.Backend, thumbnail.Path = "thumbnails", "/thumbnail"
	thumbnail.OnOverload = []Step{{Word: "reject"}}
	// The embedded Redis has a bound on its keys: a flood for a day must not reach it.
	report.KeepResult, thumbnail.KeepResult = time.Hour, time.Hour
	c.Operations = map[string]Operation{"report": report, "thumbnail": thumbnail}
	return c
}

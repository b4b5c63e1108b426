package config

import (
	"path/filepath"

	"github.com/forebay/forebay/internal/strictyaml"
)

// Default returns every default that doesn't belong to a named thing. It has no backend, no
// operation, no tier and no callers, so it isn't valid by itself.
func Default() *Config {
	c := &Config{}
	strictyaml.SetDefaults(c)
	return c
}

// settle fills in the defaults that depend on other keys. dir is the config's directory.
func (c *Config) settle(dir string) {
	if c.Redis.URL == "" {
		c.Worker.Embedded = true
	}
	own, center := &c.Redis.TLS, &c.Region.Sync.TLS
	for _, path := range []*string{&c.Identity.CountryDatabase, &c.Identity.ClientsFile,
		&own.CA, &own.Cert, &own.Key, &center.CA, &center.Cert, &center.Key} {
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
		if l := &limits[n]; l.Algorithm.HasBurst() && l.Burst == 0 {
			l.Burst = l.Limit
		}
	}
}

// demo runs without a config file, and its backends have no URL yet. The limit is wide enough to
// fill both lines first and narrow enough to be met within a minute of trying. No load balancer
// stands before it, and Ctrl-C should be quick. The embedded Redis has a bound on its keys: a flood
// for a day must not reach it.
const demo = `
http: {trusted_proxies: []}
worker: {embedded: true}
identity: {anonymous: free}
shutdown_delay: 0s
tiers:
  free: {limits: [{name: per-minute, algorithm: sliding-window-counter, limit: 60, window: 1m}]}
backends:
  reports: {drain: {rate: 2/s}, line: {capacity: 20}}
  thumbnails: {drain: {rate: 1/s}, line: {capacity: 5}}
operations:
  report: {backend: reports, path: /report, cache: {stale_for: 1h, share: all}, keep_result: 1h}
  thumbnail: {backend: thumbnails, path: /thumbnail, on_overload: [reject], keep_result: 1h}
`

// Demo returns the config that is used where there is no file: embedded Redis and worker, callers
// without a key, an operation that may be answered from stock (report) and one that may not
// (thumbnail), each on its own backend. The backends, reports and thumbnails, have no URL yet.
// Check completes it.
func Demo() *Config {
	c := Default()
	if r, err := strictyaml.Read("demo", []byte(demo), nil, c); err != nil || r.Err() != nil {
		panic("config: the demo is no config")
	}
	return c
}

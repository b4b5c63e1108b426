package config

import (
	"path/filepath"

	"github.com/forebay/forebay/internal/strictyaml"
)

// Default returns a config with all defaults. It has no backend, operation, tier or callers, so it
// isn't valid by itself.
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

// demo is the config without a file; its backends have no URL yet. The limit is high enough to fill
// both lines first and low enough to be reached within a minute of trying. There is no load
// balancer to wait for, and Ctrl-C should be quick. Jobs are kept so briefly that a day's flood
// doesn't reach the embedded Redis's bound on keys.
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

// Demo returns the config that is used if there is no file: embedded Redis and worker, callers
// without a key, an operation with stored answers (report) and one without (thumbnail), each on its
// own backend. The backends, reports and thumbnails, have no URL yet. Check completes it.
func Demo() *Config {
	c := Default()
	if r, err := strictyaml.Read("demo", []byte(demo), nil, c); err != nil || r.Err() != nil {
		panic("config: the demo is no config")
	}
	return c
}

package config

import (
	"net/netip"
	"path/filepath"
	"time"
)

// Default returns every default that doesn't belong to a named thing. It has no backend, no
// operation, no tier and nobody who may ask, so it isn't valid by itself.
func Default() *Config {
	return &Config{
		HTTP: HTTP{
			Listen:                 ":8080",
			MaxBody:                1 << 20,
			MaxBuffered:            256 << 20,
			ClientIPHeader:         "X-Forwarded-For",
			IPv6Prefix:             64,
			LegacyRateLimitHeaders: "epoch",
		},
		Admin:  Admin{Listen: "127.0.0.1:8081"},
		Redis:  Redis{OnFailure: "degrade"},
		Checks: Checks{OnFailure: "local", Processes: 1},
		Callbacks: Callbacks{Timeout: 15 * time.Second, Schedule: []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute,
			2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour}},
		Shutdown:      30 * time.Second,
		ShutdownDelay: 5 * time.Second,
	}
}

// setDefaults is called on each element of a map or list before its keys are read.
func (t *Tier) SetDefaults() {
	t.Weight = 1
	t.Reads = []Limit{{Name: "reads", Per: "client", Algorithm: TokenBucket, Limit: 60_000, Window: Window(time.Minute), Burst: 10_000, Enforce: true}}
}

func (l *Limit) SetDefaults() { l.Per, l.Enforce = "client", true }

func (b *Backend) SetDefaults() {
	*b = Backend{
		Drain:   Drain{Burst: 1, Concurrency: 10},
		Line:    Line{Capacity: 1000, MaxWait: 5 * time.Minute, ClientShare: 1},
		Timeout: 30 * time.Second,
		Retry: Retry{Attempts: 4, Base: time.Second, Cap: time.Minute, On: []int{408, 425, 500, 502, 504, 507},
			Rest: []int{429, 503, 529}},
		MaxAge: 24 * time.Hour,

		Feedback:   true,
		KeepFailed: 7 * day,
	}
}

func (o *Operation) SetDefaults() {
	*o = Operation{
		Method:     "POST",
		Cost:       Cost{Fixed: 1},
		Cache:      Cache{Share: "client"},
		OnOverload: []Step{{Word: "stale"}, {Word: "reject"}},
		KeepResult: 24 * time.Hour,
		MaxResult:  1 << 20,
	}
}

// settle fills in the defaults that depend on other keys. dir is where the config lies.
func (c *Config) settle(dir string) {
	if c.Redis.URL == "" {
		c.Worker.Embedded = true
	}
	if c.Region.Sync.Redis != "" && c.Region.Sync.Every == 0 {
		c.Region.Sync.Every = time.Second
	}
	for name, o := range c.Operations {
		if o.Degrade != (Degrade{}) && o.Degrade.When.Below == 0 {
			o.Degrade.When.Below = 0.5
			c.Operations[name] = o
		}
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
	free.SetDefaults()
	free.Limits = []Limit{{Name: "per-minute", Per: "client", Algorithm: SlidingWindowCounter, Limit: 60, Window: Window(time.Minute), Enforce: true}}
	c.Tiers = map[string]Tier{"free": free}

	var reports, thumbnails Backend
	reports.SetDefaults()
	reports.Drain.Rate, reports.Line.Capacity = "2/s", 20
	thumbnails.SetDefaults()
	thumbnails.Drain.Rate, thumbnails.Line.Capacity = "1/s", 5
	c.Backends = map[string]Backend{"reports": reports, "thumbnails": thumbnails}

	var report, thumbnail Operation
	report.SetDefaults()
	report.Backend, report.Path = "reports", "/report"
	report.Cache = Cache{StaleFor: time.Hour, Share: "all"}
	thumbnail.SetDefaults()
	thumbnail.Backend, thumbnail.Path = "thumbnails", "/thumbnail"
	thumbnail.OnOverload = []Step{{Word: "reject"}}
	// The embedded Redis has a bound on its keys: a flood for a day must not reach it.
	report.KeepResult, thumbnail.KeepResult = time.Hour, time.Hour
	c.Operations = map[string]Operation{"report": report, "thumbnail": thumbnail}
	return c
}

// SetDefaults is called where the cost is given by keys.
func (c *Cost) SetDefaults() { c.Default = 1 }

package config

import (
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/forebay/forebay/internal/strictyaml"
)

type report = strictyaml.Report

// check finds what reading single values can't: keys that are missing, out of bounds or contradict
// another key.
func (c *Config) check(r *report) {
	r.Check(*c)
	c.checkListeners(r)
	c.checkRedis(r)
	c.checkRegion(r)
	c.checkIdentity(r)

	checkNames(r, "tiers", c.Tiers,
		"has no tier; add one, such as free: {}, and name it where callers get their tier")
	checkNames(r, "backends", c.Backends, "has no backend; add the service to protect")
	checkNames(r, "operations", c.Operations, "has no operation; add what clients may ask for")
	for _, name := range names(c.Tiers) {
		c.checkTier(r, strictyaml.Join("tiers", name), c.Tiers[name])
	}
	for _, name := range names(c.Backends) {
		c.Backends[name].check(r, strictyaml.Join("backends", name))
	}
	for _, name := range names(c.Operations) {
		c.checkOperation(r, strictyaml.Join("operations", name), c.Operations[name])
	}
	for _, list := range c.lists() {
		c.checkList(r, list)
	}
	c.checkLimitNames(r)
	for tier, operation := range c.requests() {
		c.checkMeeting(r, tier, operation)
	}
	for n, client := range c.Identity.Clients {
		c.checkOwn(r, strictyaml.At("identity.clients", n), client)
	}
}

func (c *Config) checkListeners(r *report) {
	checkAddress(r, "http.listen", c.HTTP.Listen)
	strictyaml.Within(r, "http.max_buffered", c.HTTP.MaxBuffered, 2*c.HTTP.MaxBody, 64<<30)
	checkAddress(r, "admin.listen", c.Admin.Listen)
	if overlap(c.Admin.Listen, c.HTTP.Listen) {
		r.Errorf("admin.listen", "takes the port of http.listen; the two are apart so that "+
			"clients can't reach the admin API")
	}
	token := string(c.Admin.Token)
	hidden := func(c rune) bool { return c <= ' ' || c > '~' }
	switch {
	case token != "" || r.Given("admin.token"):
		if len(token) < 16 || len(token) > 512 || strings.ContainsFunc(token, hidden) {
			r.Errorf("admin.token", "must be 16 to 512 visible ASCII characters: openssl rand "+
				"-hex 32")
		}
	case !isLoopback(c.Admin.Listen):
		r.Errorf("admin.listen", "%s can be reached from other hosts; set admin.token, or listen "+
			"on 127.0.0.1", r.Shown("admin.listen", c.Admin.Listen))
	}
}

// overlap reports whether two listeners can't both be opened on one host.
func overlap(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	same := hostA == hostB || all(hostA) || all(hostB) || isLoopback(a) && isLoopback(b)
	return portA == portB && portA != "0" && same
}

// all reports whether a listener's host means all addresses.
func all(host string) bool {
	a, _ := netip.ParseAddr(host)
	return host == "" || a.IsUnspecified()
}

// isLoopback reports whether only this host can reach a listener.
func isLoopback(listen string) bool {
	host, _, _ := net.SplitHostPort(listen)
	a, _ := netip.ParseAddr(host)
	return host == "localhost" || a.Unmap().IsLoopback()
}

func (c *Config) checkRedis(r *report) {
	header := "check.method_header"
	switch {
	case c.Checks.MethodHeader == "" && !r.Given(header):
	case !headerName.MatchString(c.Checks.MethodHeader):
		r.Errorf(header, "%s isn't the name of a header field; write it as in X-Original-Method",
			r.Shown(header, c.Checks.MethodHeader))
	case len(c.HTTP.TrustedProxies) == 0:
		r.Errorf(header, "is believed from http.trusted_proxies alone, and there are none; name "+
			"the gateway's address there")
	}
	if c.Redis.URL != "" {
		return
	}
	if c.Redis.RedisLogin != (RedisLogin{}) {
		r.Errorf("redis.url",
			"is required beside what logs in to it, such as redis://127.0.0.1:6379/0")
	}
	if r.Given("worker.embedded") && !r.Given("redis.url") && !c.Worker.Embedded {
		r.Errorf("worker.embedded", "can't be false without redis.url: nobody else can reach the "+
			"embedded Redis; set redis.url, or leave this out")
	}
}

func (c *Config) checkRegion(r *report) {
	g := c.Region
	if g == (Region{}) && !r.Given("region") {
		return
	}
	checkName(r, "region.name", g.Name)
	synced := g.Sync != (Sync{}) || r.Given("region.sync")
	const share = "the part of every limit that this region decides over"
	switch {
	case g.Share != 0 || r.Given("region.share"):
		checkPart(r, "region.share", g.Share, 0, 1, share)
	case !synced:
		r.Errorf("region.share", "is required without region.sync: %s, such as 0.4", share)
	}
	if synced && g.Sync.Redis == c.Redis.URL {
		r.Errorf("region.sync.redis", "is also redis.url; regions that share one Redis count "+
			"together without this, so leave region out")
	}
}

func (c *Config) checkTier(r *report, key string, t Tier) {
	if stored := key + ".max_stored"; t.MaxStored != 0 || r.Given(stored) {
		strictyaml.Within(r, stored, t.MaxStored, max(2*c.HTTP.MaxBody, 64<<10), 1<<40)
	}
	if grace := key + ".grace"; t.Grace != (Grace{}) || r.Given(grace) {
		checkPart(r, grace+".factor", t.Grace.Factor, 1, maxGrace,
			"what a new client's limits are multiplied by")
	}
}

// The checks below are shared by many keys.

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

const nameMend = "isn't a name; write lower-case letters, digits and dashes, a letter first, at " +
	"most 63"

// checkName checks a name that is the value at key.
func checkName(r *report, key, name string) {
	if !nameForm.MatchString(name) {
		r.Errorf(key, "%s %s", r.Shown(key, name), nameMend)
	}
}

// checkNames checks the names in the map at key, and that there are some.
func checkNames[V any](r *report, key string, m map[string]V, none string) {
	if len(m) == 0 {
		r.Errorf(key, "%s", none)
	}
	for _, name := range names(m) {
		if !nameForm.MatchString(name) {
			r.Errorf(strictyaml.Join(key, name), "%s %s", strictyaml.Quote(name), nameMend)
		}
	}
}

// checkTwice reports the elements that a list has twice.
func checkTwice[T comparable](r *report, key string, list []T) {
	for n, v := range list {
		if at := strictyaml.At(key, n); slices.Contains(list[:n], v) {
			r.Errorf(at, "%s stands in the list twice", r.Shown(at, v))
		}
	}
}

// checkPart checks a number that is above a bound and at most another.
func checkPart(r *report, key string, n, above, most float64, of string) {
	if n <= above || n > most {
		r.Errorf(key, "%s is out of bounds; write %s, above %v and at most %v",
			r.Shown(key, n), of, above, most)
	}
}

func checkAddress(r *report, key, listen string) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		r.Errorf(key, "%s isn't host:port; write it as in 127.0.0.1:8080, or :8080 for all "+
			"addresses",
			r.Shown(key, listen))
		return
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil || !isHost(host) && host != "" {
		r.Errorf(key, "%s isn't host:port with a port of 0 to 65535; write it as in 127.0.0.1:8080",
			r.Shown(key, listen))
	}
}

var (
	hostForm    = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?$`)
	numbersForm = regexp.MustCompile(`^[0-9.]+$`)
)

// isHost reports whether text is an address, or may be a name. Numbers alone are never a name.
func isHost(text string) bool {
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	return hostForm.MatchString(text) && !numbersForm.MatchString(text) && len(text) <= 253
}

// names returns the keys of a map, sorted, so that a file always gives the same messages.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

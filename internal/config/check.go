package config

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// check finds everything that reading single values can't: what is missing, out of bounds or
// contradicts another key.
func (c *Config) check(r *report) {
	c.checkListeners(r)
	r.duration("shutdown", c.Shutdown, 100*time.Millisecond, time.Hour)
	r.duration("shutdown_delay", c.ShutdownDelay, 0, 5*time.Minute)
	c.checkRedis(r)
	c.checkRegion(r)

	if len(c.Tiers) == 0 {
		r.errorf("tiers", "has no tier; add one, such as free: {}, and name it where callers get their tier")
	}
	for _, name := range names(c.Tiers) {
		key := join("tiers", name)
		r.name(key, name, brief(name))
		r.number(key+".weight", c.Tiers[name].Weight, minWeight, maxWeight)
		if stored := c.Tiers[name].MaxStored; stored != 0 || r.given(key+".max_stored") {
			r.size(key+".max_stored", stored, max(2*c.HTTP.MaxBody, minStored), maxStored)
		}
		c.Tiers[name].Grace.check(r, key+".grace")
	}
	c.checkIdentity(r)
	c.Callbacks.check(r, "callbacks")

	if len(c.Backends) == 0 {
		r.errorf("backends", "has no backend; add the service to protect")
	}
	for _, name := range names(c.Backends) {
		key := join("backends", name)
		r.name(key, name, brief(name))
		c.Backends[name].check(r, key)
	}

	if len(c.Operations) == 0 {
		r.errorf("operations", "has no operation; add what clients may ask for")
	}
	for _, name := range names(c.Operations) {
		key := join("operations", name)
		r.name(key, name, brief(name))
		c.checkOperation(r, key, c.Operations[name])
	}
	for _, list := range c.lists() {
		c.checkList(r, list)
	}
	c.checkNames(r)
	for tier, operation := range c.requests() {
		c.checkMeeting(r, tier, operation)
	}
	for n, client := range c.Identity.Clients {
		c.checkOwn(r, fmt.Sprintf("identity.clients[%d]", n), client)
	}
}

func (c *Config) checkListeners(r *report) {
	r.address("http.listen", c.HTTP.Listen)
	r.size("http.max_body", c.HTTP.MaxBody, 1<<10, 64<<20)
	r.size("http.max_buffered", c.HTTP.MaxBuffered, 2*c.HTTP.MaxBody, 64<<30)
	r.count("http.max_connections", c.HTTP.MaxConnections)
	r.count("http.max_connections_per_address", c.HTTP.MaxConnectionsPerAddress)
	r.oneOf("http.client_ip_header", c.HTTP.ClientIPHeader, "X-Forwarded-For", "Forwarded")
	r.number("http.ipv6_prefix", float64(c.HTTP.IPv6Prefix), 32, 128)
	r.oneOf("http.legacy_rate_limit_headers", c.HTTP.LegacyRateLimitHeaders, "epoch", "delta", "off")

	r.address("admin.listen", c.Admin.Listen)
	if overlap(c.Admin.Listen, c.HTTP.Listen) {
		r.errorf("admin.listen", "takes the port of http.listen; the two are apart so that clients can't reach the admin API")
	}
	token := string(c.Admin.Token)
	switch {
	case token == "" && !r.given("admin.token"):
		if !isLoopback(c.Admin.Listen) {
			r.errorf("admin.listen", "%s can be reached from other hosts; set admin.token, or listen on 127.0.0.1", r.shown("admin.listen", c.Admin.Listen))
		}
	case len(token) < 16 || len(token) > 512 || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }):
		r.errorf("admin.token", "must be 16 to 512 visible ASCII characters: openssl rand -hex 32")
	}
}

// overlap reports whether two listeners of one host can't both be opened.
func overlap(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	return portA == portB && portA != "0" && (hostA == hostB || all(hostA) || all(hostB) || isLoopback(a) && isLoopback(b))
}

// all reports whether a listener's host stands for all addresses.
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
	r.oneOf("redis.on_failure", c.Redis.OnFailure, "degrade", "reject")
	r.oneOf("check.on_failure", c.Checks.OnFailure, "local", "allow", "refuse")
	r.number("check.processes", float64(c.Checks.Processes), 1, 1000)
	switch {
	case c.Checks.MethodHeader == "" && !r.given("check.method_header"):
	case !headerName.MatchString(c.Checks.MethodHeader):
		r.errorf("check.method_header", "%s isn't the name of a header field; write it as in X-Original-Method", r.shown("check.method_header", c.Checks.MethodHeader))
	case len(c.HTTP.TrustedProxies) == 0:
		r.errorf("check.method_header", "is believed from http.trusted_proxies alone, and there are none; name the gateway's address there")
	}
	if c.Redis.URL == "" && c.Redis.RedisLogin != (RedisLogin{}) {
		r.errorf("redis.url", "is required beside what logs in to it, such as redis://127.0.0.1:6379/0")
	}
	if c.Redis.URL == "" && r.given("worker.embedded") && !r.given("redis.url") && !c.Worker.Embedded {
		r.errorf("worker.embedded", "can't be false without redis.url: nobody else can reach the embedded Redis; set redis.url, or leave this out")
	}
}

// redisRules reports what the rules of the one who connects say against a Redis whose URL is given at
// url; the keys of its login stand beside that.
func (r *report) redisRules(url string, to SecretURL, login RedisLogin, rules []Rules) {
	for _, rule := range rules {
		if rule.Redis == nil || to == "" {
			continue
		}
		if field, err := rule.Redis(to, login); err != nil {
			key := url
			if field != "url" {
				key = parent(url) + "." + field
			}
			r.errorf(key, "%v", err)
		}
	}
}

func (c *Config) checkRegion(r *report) {
	g := c.Region
	if g == (Region{}) && !r.given("region") {
		return
	}
	r.nameKey("region.name", g.Name)
	synced := g.Sync != (Sync{}) || r.given("region.sync")
	switch {
	case g.Share == 0 && !r.given("region.share"):
		if !synced {
			r.errorf("region.share", "is required without region.sync: the part of every limit that this region decides over, such as 0.4")
		}
	case g.Share <= 0 || g.Share > 1:
		r.errorf("region.share", "%s is out of bounds; write the part of every limit that this region decides over, above 0 and at most 1",
			r.shown("region.share", g.Share))
	}
	if !synced {
		return
	}
	switch {
	case g.Sync.Redis == "":
		r.errorf("region.sync.redis", "is required: the URL of a Redis that all regions reach, such as redis://centre.example.com:6379/0")
	case g.Sync.Redis == c.Redis.URL:
		r.errorf("region.sync.redis", "is also redis.url; regions that share one Redis count together without this, so leave region out")
	}
	if g.Sync.Every != 0 || r.given("region.sync.every") {
		r.duration("region.sync.every", g.Sync.Every, 100*time.Millisecond, time.Minute)
	}
}

// The checks below are shared by many keys.

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// name checks the name of a thing that is given at key; shown is how a message has it.
func (r *report) name(key, name, shown string) {
	if !nameForm.MatchString(name) {
		r.errorf(key, "%s isn't a name; write lower-case letters, digits and dashes, a letter first, at most 63", shown)
	}
}

// nameKey is the check of a name that is the value of a key of its own.
func (r *report) nameKey(key, name string) {
	if name == "" {
		r.errorf(key, "is required")
		return
	}
	r.name(key, name, r.shown(key, name))
}

// known reports a name that nothing of a kind has. Where those were not understood themselves
// that is error enough.
func (r *report) known(key, name, kind string, known []string) {
	if slices.Contains(known, name) || r.failed[kind+"s"] {
		return
	}
	mend := fmt.Sprintf("known %ss: %s", kind, list(known))
	if near := nearest(name, known); near != "" {
		mend = fmt.Sprintf("did you mean %s?", near)
	}
	r.errorf(key, "there is no %s %s; %s", kind, r.shown(key, name), mend)
}

func (r *report) oneOf(key, value string, choices ...string) {
	if !slices.Contains(choices, value) {
		r.errorf(key, "%s is none of %s", r.shown(key, value), strings.Join(choices, ", "))
	}
}

func (r *report) duration(key string, d, least, most time.Duration) {
	bounded(r, key, d, least, most, formatDuration)
}

func (r *report) size(key string, s, least, most Size) {
	bounded(r, key, s, least, most, Size.String)
}

func (r *report) number(key string, n, least, most float64) {
	bounded(r, key, n, least, most, func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) })
}

// count checks a number of connections that may be left out.
func (r *report) count(key string, n int) {
	if n != 0 || r.given(key) {
		r.number(key, float64(n), 1, 1_000_000)
	}
}

func bounded[T cmp.Ordered](r *report, key string, v, least, most T, format func(T) string) {
	if v < least || v > most {
		r.errorf(key, "%s is out of bounds; write %s to %s", r.shown(key, format(v)), format(least), format(most))
	}
}

func (r *report) address(key, listen string) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		r.errorf(key, "%s isn't host:port; write it as in 127.0.0.1:8080, or :8080 for all addresses", r.shown(key, listen))
		return
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil || !isHost(host) && host != "" {
		r.errorf(key, "%s isn't host:port with a port of 0 to 65535; write it as in 127.0.0.1:8080", r.shown(key, listen))
	}
}

var hostForm = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?$`)
var numbersForm = regexp.MustCompile(`^[0-9.]+$`)

// isHost reports whether text is an address, or may be a name. Numbers alone are never a name.
func isHost(text string) bool {
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	return hostForm.MatchString(text) && !numbersForm.MatchString(text) && len(text) <= 253
}

// names are the keys of a map in one order, so that the same file gives the same messages.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	if len(names) > 10 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:10], ", "), len(names)-10)
	}
	return strings.Join(names, ", ")
}

package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay/forebay/internal/strictyaml"
)

// check finds everything that reading single values can't: what is missing, out of bounds or
// contradicts another key.
func (c *Config) check(r *strictyaml.Report) {
	c.checkListeners(r)
	strictyaml.Within(r, "shutdown", c.Shutdown, 100*time.Millisecond, time.Hour)
	strictyaml.Within(r, "shutdown_delay", c.ShutdownDelay, 0, 5*time.Minute)
	c.checkRedis(r)
	c.checkRegion(r)

	if len(c.Tiers) == 0 {
		r.Errorf("tiers", "has no tier; add one, such as free: {}, and name it where callers get their tier")
	}
	for _, name := range names(c.Tiers) {
		key := strictyaml.Join("tiers", name)
		checkName(r, key, name, strictyaml.Quote(name))
		strictyaml.Within(r, key+".weight", c.Tiers[name].Weight, minWeight, maxWeight)
		if stored := c.Tiers[name].MaxStored; stored != 0 || r.Given(key+".max_stored") {
			strictyaml.Within(r, key+".max_stored", stored, max(2*c.HTTP.MaxBody, minStored), maxStored)
		}
		c.Tiers[name].Grace.check(r, key+".grace")
	}
	c.checkIdentity(r)
	c.Callbacks.check(r, "callbacks")

	if len(c.Backends) == 0 {
		r.Errorf("backends", "has no backend; add the service to protect")
	}
	for _, name := range names(c.Backends) {
		key := strictyaml.Join("backends", name)
		checkName(r, key, name, strictyaml.Quote(name))
		c.Backends[name].check(r, key)
	}

	if len(c.Operations) == 0 {
		r.Errorf("operations", "has no operation; add what clients may ask for")
	}
	for _, name := range names(c.Operations) {
		key := strictyaml.Join("operations", name)
		checkName(r, key, name, strictyaml.Quote(name))
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

func (c *Config) checkListeners(r *strictyaml.Report) {
	checkAddress(r, "http.listen", c.HTTP.Listen)
	strictyaml.Within(r, "http.max_body", c.HTTP.MaxBody, 1<<10, 64<<20)
	strictyaml.Within(r, "http.max_buffered", c.HTTP.MaxBuffered, 2*c.HTTP.MaxBody, 64<<30)
	checkCount(r, "http.max_connections", c.HTTP.MaxConnections)
	checkCount(r, "http.max_connections_per_address", c.HTTP.MaxConnectionsPerAddress)
	strictyaml.OneOf(r, "http.client_ip_header", c.HTTP.ClientIPHeader, "X-Forwarded-For", "Forwarded")
	strictyaml.Within(r, "http.ipv6_prefix", c.HTTP.IPv6Prefix, 32, 128)
	strictyaml.OneOf(r, "http.legacy_rate_limit_headers", c.HTTP.LegacyRateLimitHeaders, "epoch", "delta", "off")

	checkAddress(r, "admin.listen", c.Admin.Listen)
	if overlap(c.Admin.Listen, c.HTTP.Listen) {
		r.Errorf("admin.listen", "takes the port of http.listen; the two are apart so that clients can't reach the admin API")
	}
	token := string(c.Admin.Token)
	switch {
	case token == "" && !r.Given("admin.token"):
		if !isLoopback(c.Admin.Listen) {
			r.Errorf("admin.listen", "%s can be reached from other hosts; set admin.token, or listen on 127.0.0.1", r.Shown("admin.listen", c.Admin.Listen))
		}
	case len(token) < 16 || len(token) > 512 || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }):
		r.Errorf("admin.token", "must be 16 to 512 visible ASCII characters: openssl rand -hex 32")
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

func (c *Config) checkRedis(r *strictyaml.Report) {
	strictyaml.OneOf(r, "redis.on_failure", c.Redis.OnFailure, "degrade", "reject")
	strictyaml.OneOf(r, "check.on_failure", c.Checks.OnFailure, "local", "allow", "refuse")
	strictyaml.Within(r, "check.processes", c.Checks.Processes, 1, 1000)
	switch {
	case c.Checks.MethodHeader == "" && !r.Given("check.method_header"):
	case !headerName.MatchString(c.Checks.MethodHeader):
		r.Errorf("check.method_header", "%s isn't the name of a header field; write it as in X-Original-Method", r.Shown("check.method_header", c.Checks.MethodHeader))
	case len(c.HTTP.TrustedProxies) == 0:
		r.Errorf("check.method_header", "is believed from http.trusted_proxies alone, and there are none; name the gateway's address there")
	}
	if c.Redis.URL == "" && c.Redis.RedisLogin != (RedisLogin{}) {
		r.Errorf("redis.url", "is required beside what logs in to it, such as redis://127.0.0.1:6379/0")
	}
	if c.Redis.URL == "" && r.Given("worker.embedded") && !r.Given("redis.url") && !c.Worker.Embedded {
		r.Errorf("worker.embedded", "can't be false without redis.url: nobody else can reach the embedded Redis; set redis.url, or leave this out")
	}
}

// redisRules reports what the rules of the one who connects say against a Redis whose URL is given at
// url; the keys of its login stand beside that.
func redisRules(r *strictyaml.Report, url string, to strictyaml.SecretURL, login RedisLogin, rules []Rules) {
	for _, rule := range rules {
		if rule.Redis == nil || to == "" {
			continue
		}
		if field, err := rule.Redis(to, login); err != nil {
			key := url
			if field != "url" {
				key = url[:strings.LastIndex(url, ".")+1] + field
			}
			r.Errorf(key, "%v", err)
		}
	}
}

func (c *Config) checkRegion(r *strictyaml.Report) {
	g := c.Region
	if g == (Region{}) && !r.Given("region") {
		return
	}
	checkNameKey(r, "region.name", g.Name)
	synced := g.Sync != (Sync{}) || r.Given("region.sync")
	switch {
	case g.Share == 0 && !r.Given("region.share"):
		if !synced {
			r.Errorf("region.share", "is required without region.sync: the part of every limit that this region decides over, such as 0.4")
		}
	case g.Share <= 0 || g.Share > 1:
		r.Errorf("region.share", "%s is out of bounds; write the part of every limit that this region decides over, above 0 and at most 1",
			r.Shown("region.share", g.Share))
	}
	if !synced {
		return
	}
	switch {
	case g.Sync.Redis == "":
		r.Errorf("region.sync.redis", "is required: the URL of a Redis that all regions reach, such as redis://centre.example.com:6379/0")
	case g.Sync.Redis == c.Redis.URL:
		r.Errorf("region.sync.redis", "is also redis.url; regions that share one Redis count together without this, so leave region out")
	}
	if g.Sync.Every != 0 || r.Given("region.sync.every") {
		strictyaml.Within(r, "region.sync.every", g.Sync.Every, 100*time.Millisecond, time.Minute)
	}
}

// The checks below are shared by many keys.

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// checkName checks the name of a thing that is given at key; shown is how a message has it.
func checkName(r *strictyaml.Report, key, name, shown string) {
	if !nameForm.MatchString(name) {
		r.Errorf(key, "%s isn't a name; write lower-case letters, digits and dashes, a letter first, at most 63", shown)
	}
}

// checkNameKey is the check of a name that is the value of a key of its own.
func checkNameKey(r *strictyaml.Report, key, name string) {
	if name == "" {
		r.Errorf(key, "is required")
		return
	}
	checkName(r, key, name, r.Shown(key, name))
}

// checkCount checks a number of connections that may be left out.
func checkCount(r *strictyaml.Report, key string, n int) {
	if n != 0 || r.Given(key) {
		strictyaml.Within(r, key, n, 1, 1_000_000)
	}
}

func checkAddress(r *strictyaml.Report, key, listen string) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		r.Errorf(key, "%s isn't host:port; write it as in 127.0.0.1:8080, or :8080 for all addresses", r.Shown(key, listen))
		return
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil || !isHost(host) && host != "" {
		r.Errorf(key, "%s isn't host:port with a port of 0 to 65535; write it as in 127.0.0.1:8080", r.Shown(key, listen))
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

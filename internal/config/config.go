// Package config reads Forebay's one YAML file. The structs below are its manual: keys,
// units, defaults (all set in defaults.go), bounds and their reasons.
//
// A file says what it means or is refused: unknown and doubled keys, a number without its
// unit and contradictions are errors that name file, line, key and the mend, all of them at
// once. Durations are written 500ms, 30s, 5m, 12h, 7d; sizes 512B, 64KiB, 1MiB, 10MB; rates
// 5/s, 0.2/s, 6/m, 100/d or unlimited.
//
// ${NAME} inside a value stands for an environment variable, $${ for a plain ${. A variable
// becomes text of that one value: nothing in it is read as YAML, and it is never printed.
//
// A key that is named "required" has no default. Names of backends, operations, tiers, limits
// and clients are [a-z][a-z0-9-]*, at most 63 characters: they become parts of job ids, Redis
// keys, header fields and metric labels.
package config

import (
	"net/netip"
	"time"

	"github.com/forebay/forebay/internal/strictyaml"
	"github.com/forebay/forebay/internal/units"
)

// Config is a whole file. Its zero value is not valid: begin with Default or Load.
type Config struct {
	HTTP     HTTP     `key:"http"`
	Admin    Admin    `key:"admin"`
	Redis    Redis    `key:"redis"`
	Checks   Checks   `key:"check"`
	Region   Region   `key:"region" absent:"one region: limits count everything"`
	Worker   Worker   `key:"worker"`
	Identity Identity `key:"identity"`
	// Callbacks are webhooks: they tell clients that a job has ended.
	Callbacks Callbacks `key:"callbacks"`

	// Shutdown is how long a process that is told to stop lets its running requests and calls
	// end; what still runs then is given back to the line. Default 30s; 100ms to 1h.
	Shutdown time.Duration `key:"shutdown"`
	// ShutdownDelay is for how long an api that is told to stop goes on as before, but for /readyz,
	// which is red, so that load balancers send their requests elsewhere before it closes. Default
	// 5s, which is what two looks of a load balancer take; 0s to 5m.
	ShutdownDelay time.Duration `key:"shutdown_delay"`

	// Tiers are named sets of limits; every client has one. Required, at least one.
	Tiers map[string]Tier `key:"tiers" max:"1000"`
	// Limits apply to every caller, beside those of its tier and of the operation.
	Limits []Limit `key:"limits" max:"20"`
	// Backends are the services that are protected. Required. At most 100: a worker runs a
	// dispatcher and a server for each.
	Backends map[string]Backend `key:"backends" max:"100"`
	// Operations are what clients may ask for. Required.
	Operations map[string]Operation `key:"operations" max:"1000"`

	written strictyaml.Written // what Describe shows instead of the environment's values
}

// HTTP is the public listener.
type HTTP struct {
	// Listen is host:port; without host all addresses. Default ":8080".
	Listen string `key:"listen"`
	// MaxBody bounds a request's body. Default 1MiB; 1KiB to 64MiB, since a body is held in
	// memory whole, once for each request under way.
	MaxBody units.Size `key:"max_body"`
	// MaxBuffered bounds the memory for all requests' bodies together, and by as much again that for
	// all answers until they are read. A request that finds no room gets 503, or 429 where its own
	// client takes the room. Default 256MiB; twice MaxBody, so that not every body waits for another,
	// to 64GiB.
	MaxBuffered units.Size `key:"max_buffered"`
	// MaxConnections bounds the listener's connections at one time. Where it is reached, idle ones are
	// closed to make room, and new ones where there are none. 1 to 1,000,000; at most 20000 where it
	// is absent.
	MaxConnections int `key:"max_connections" absent:"what the process's file limit leaves (ulimit -n)"`
	// MaxConnectionsPerAddress bounds those from one address, or IPv6 network as of IPv6Prefix, so
	// that no one takes all; TrustedProxies are without this bound. 1 to 1,000,000.
	MaxConnectionsPerAddress int `key:"max_connections_per_address" absent:"a quarter of max_connections"`
	// TrustedProxies are networks (CIDR) or addresses whose word about the caller's address is
	// believed. Default none: the peer of the connection is the caller.
	TrustedProxies []netip.Prefix `key:"trusted_proxies" max:"1000" absent:"the peer of the connection is the caller"`
	// ClientIPHeader is the one header that those proxies write: X-Forwarded-For (default) or
	// Forwarded.
	ClientIPHeader string `key:"client_ip_header"`
	// IPv6Prefix is how many leading bits of an IPv6 address make one caller. Default 64, the
	// smallest network that one user is given; 32 to 128: below 32 lie whole providers.
	IPv6Prefix int `key:"ipv6_prefix"`
	// LegacyRateLimitHeaders says how X-RateLimit-Reset counts: epoch (default, Unix seconds) or
	// delta (seconds from now); off sends no X-RateLimit fields.
	LegacyRateLimitHeaders string `key:"legacy_rate_limit_headers"`
}

// Admin is the listener of operators: live tuning, metrics.
type Admin struct {
	// Listen is host:port. Default "127.0.0.1:8081".
	Listen string `key:"listen"`
	// Token is what operators send as "Authorization: Bearer <token>". Required where Listen isn't a
	// loopback address; 16 to 512 visible ASCII characters, so that it can't be guessed.
	Token strictyaml.Secret `key:"token" absent:"whoever reaches the listener may use it"`
}

// Redis is where everything is kept.
type Redis struct {
	// URL is redis://, unix://, redis+sentinel:// (user:password@host:port,host:port/master/db) or
	// redis+cluster:// (host:port,host:port); rediss instead of redis is with TLS. Absent: a Redis inside
	// the process, for trying out, that keeps nothing.
	URL strictyaml.SecretURL `key:"url" absent:"embedded, in memory: nothing is kept"`
	RedisLogin
	// OnFailure is what a request for a job gets while Redis is lost: degrade (default: the last good
	// answer from memory where the operation permits one, else 503) or reject (503 at once).
	OnFailure string `key:"on_failure"`
}

// RedisLogin is what a Redis needs beside its URL.
type RedisLogin struct {
	// Username and Password are those of the server, master or nodes, taken literally: no character of
	// them is special, as it would be in the URL. They are given here or there.
	Username string            `key:"username"`
	Password strictyaml.Secret `key:"password"`
	// SentinelUsername and SentinelPassword are those of the sentinels, which may ask for others than
	// the servers that they watch. Absent: the sentinels ask for none.
	SentinelUsername string            `key:"sentinel_username"`
	SentinelPassword strictyaml.Secret `key:"sentinel_password"`
	// TLS is for servers that the system's authorities don't vouch for, or that ask for certificates.
	// It needs a URL with TLS.
	TLS RedisTLS `key:"tls" absent:"servers with TLS are verified against the system's authorities"`
}

// RedisTLS says how servers and this client know each other. Paths that aren't absolute begin where
// the config lies.
type RedisTLS struct {
	// CA is a PEM file of the only authorities that are trusted. Default: the system's.
	CA string `key:"ca"`
	// Cert and Key are PEM files of this client's certificate and its private key; both or neither.
	Cert string `key:"cert"`
	Key  string `key:"key"`
	// ServerName must be in each server's certificate. Default: the host of the server's address.
	ServerName string `key:"server_name"`
}

// Checks are what gateways ask before they let a request through (GET /v1/check).
type Checks struct {
	// OnFailure is what they are told while Redis is lost: local (default: each process decides by
	// itself, with its part of every limit), allow or refuse.
	OnFailure string `key:"on_failure"`
	// Processes is how many api processes there are at least. They count each other in Redis; one that starts while Redis is away
	// goes by this. Default 1; 1 to 1000.
	Processes int `key:"processes"`
	// MethodHeader is the one field in which the gateway tells the method of the request that it asks about: X-Original-Method,
	// X-Forwarded-Method or any other that it always sets itself, so that its clients can't. By it a CORS preflight, which carries no
	// key, is let through uncounted. It is believed from http.trusted_proxies alone.
	MethodHeader string `key:"method_header" absent:"no method is told: a preflight is a request like any other"`
}

// Region is this config's part of a service that runs in several regions with a Redis each, none of
// which sees what the others count. It is given where there is more than one.
type Region struct {
	Name string `key:"name"` // required, and different in each region
	// Share is the part of every limit that this region decides over: above 0, at most 1, and 1 over
	// all regions together. An amount is rounded down, but never below 1. Required without Sync; with
	// it, the share holds while the centre is lost, and is by default the same for each region last seen.
	Share float64 `key:"share" absent:"while the centre of sync is lost, the same for each region last seen"`
	Sync  Sync    `key:"sync" absent:"this region decides over its share by itself"`
}

// Sync lets regions tell each other what they counted, through a Redis in the centre. Each still
// decides by itself, so together they go over a limit by at most what comes within one interval.
// Jobs at one time (concurrency) are not told: each region counts its own.
type Sync struct {
	// Redis is the centre, with the forms of redis.url. Required, and another than redis.url.
	Redis strictyaml.SecretURL `key:"redis"`
	RedisLogin
	// Every is the interval. Default 1s; 100ms to 1m: a longer one is no limit any more.
	Every time.Duration `key:"every"`
}

// Worker is the back path inside the api process.
type Worker struct {
	// Embedded makes the api process drain the lines too. Default false; always true with embedded
	// Redis, which no other process can reach.
	Embedded bool `key:"embedded"`
}

// Identity says who may ask. It names a tier for callers without a key, or clients, or both.
type Identity struct {
	// Anonymous is the tier of callers without a key. Limits count them by address. A job of theirs belongs to the
	// bearer of its id, as strangers may share an address.
	Anonymous string `key:"anonymous" absent:"a key is required"`
	// CountryHeader is the header in which the trusted proxies say the caller's country in two letters, such
	// as CF-IPCountry. It needs http.trusted_proxies: anybody else could write anything in it.
	CountryHeader string `key:"country_header" absent:"no header tells a caller's country"`
	// CountryDatabase is a MaxMind file (.mmdb) of countries, asked about addresses that the header says
	// nothing of. A path that isn't absolute begins where this config lies.
	CountryDatabase string `key:"country_database" absent:"no database tells a caller's country"`
	// ClientsFile holds further clients under the one key "clients", and is read again when it changes
	// and on SIGHUP. A broken one is refused at the start, and later the clients stay as they were. The
	// path is as for CountryDatabase.
	ClientsFile string `key:"clients_file" absent:"the clients are those of this file"`
	// Clients are the owners of API keys.
	Clients []Client `key:"clients" max:"10000"`
}

// Client is an owner of API keys.
type Client struct {
	Name string `key:"name"` // required, unique
	Tier string `key:"tier"` // required
	// KeySHA256 are the SHA-256 digests of its keys in hexadecimal: printf %s "$KEY" | sha256sum.
	// Required; up to 10, so that a new key can be rolled out before the old one goes.
	KeySHA256 []Digest `key:"key_sha256" max:"10"`
	// Weight is its own instead of the tier's, with the same bounds.
	Weight float64 `key:"weight" absent:"that of its tier"`
	// Limits are its own: each replaces the tier's limit of the same name, or comes on top.
	Limits []Limit `key:"limits" max:"20" absent:"those of its tier"`
	// Callback is where the ends of its jobs are told.
	Callback Callback `key:"callback" absent:"its jobs' ends aren't told"`
}

// Callback is a client's part of its webhooks.
type Callback struct {
	// URL is told of the jobs for which the request names no callback_url. It follows the rules of Callbacks.
	URL string `key:"url" absent:"the jobs whose requests name a callback_url are told of"`
	// Secrets sign what is sent (Standard Webhooks): whsec_ and the base64 of 24 to 64 random bytes. Required; up to 5, each of which
	// signs, so that a new one can be rolled out before the old one goes.
	Secrets []strictyaml.Secret `key:"secrets" max:"5"`
}

// Callbacks are the rules for webhooks, whoever names them.
type Callbacks struct {
	// Allow are networks (CIDR) or addresses that may be called although they aren't public. Default none: an address is looked at when
	// the connection is made, and one that is private, of this host, or stands for such a one is refused.
	Allow []netip.Prefix `key:"allow" max:"1000" absent:"public addresses alone are called"`
	// Ports are those that may be called beside 80 and 443. Default none; 1 to 65535.
	Ports []int `key:"ports" max:"50" absent:"ports 80 and 443 alone are called"`
	// HTTP is whether http:// is allowed beside https://. Default false.
	HTTP bool `key:"http"`
	// Timeout is how long one attempt may take. Default 15s; 100ms to 1m.
	Timeout time.Duration `key:"timeout"`
	// Schedule are the waits after each failed attempt, up to a tenth longer by chance; after the last one the delivery is given up.
	// Default that of Standard Webhooks: 5s, 5m, 30m, 2h, 5h, 10h, 14h, 20h, 24h. Up to 20, of 100ms to 7d each; [] tries once.
	Schedule []time.Duration `key:"schedule" max:"20"`
}

// Tier is a named set of limits and a weight.
type Tier struct {
	// Weight is the tier's share where clients of several tiers wait in one line: with weight 4 a
	// client gets four slots for each one of weight 1. Default 1; 0.001 to 1000: beyond that the
	// light ones all but never get their turn.
	Weight float64 `key:"weight"`
	// MaxStored is how many bytes each client's jobs may take in Redis, on each backend: payloads and
	// results of those that wait, run and are kept. At least 64KiB, and twice HTTP.MaxBody, so that
	// no job takes all of it; at most 1024GiB.
	MaxStored units.Size `key:"max_stored" absent:"a client's jobs may take any number of bytes"`
	// Grace is for clients of the tier that are new here.
	Grace Grace `key:"grace" absent:"new clients have the same limits as others"`
	// Limits apply to each client of the tier.
	Limits []Limit `key:"limits" max:"20"`
	// Reads are limits of each client's lists of jobs, counted in jobs that are looked at. Not
	// per operation, and without when and concurrency. Default: a token-bucket of 60000 in 1m
	// and a burst of 10000, by which a client with 10,000 jobs may look at all of them at once,
	// and then takes under 1% of Redis's time; [] is no limit.
	Reads []Limit `key:"reads" max:"20"`
}

// Grace widens, for a client's first time, the limits that count it by itself: those per client and
// client+operation, whichever list they are in. A caller without a key has none: an address is nobody.
type Grace struct {
	// Period begins when the client is first seen. Required; 1m to 366d.
	Period time.Duration `key:"period"`
	// Factor is what amounts and bursts are multiplied by. Required; above 1, at most 100.
	Factor float64 `key:"factor"`
}

// Limit is one rule. Among all that apply to one request (of its tier, of all callers, of its operation and
// of its client) names are unique, since a refusal is told by name. At most 4 of them may limit concurrency.
type Limit struct {
	Name string `key:"name"` // required
	// Per is what is counted apart: client (default), ip, operation, client+operation, tier, country or
	// global. country needs identity.country_header or country_database.
	Per string `key:"per"`
	// When narrows the requests that the limit applies to.
	When When `key:"when" absent:"whatever it is listed for"`
	// Algorithm is one of these. Required.
	//   token-bucket            a steady rate, and bursts after idling
	//   leaky-bucket            fills by the cost, leaks at limit/window, holds burst
	//   sliding-window-counter  an amount in any window, within a few percent
	//   sliding-window-log      an amount in any window, exactly, for more memory: limit is at most 10000
	//   fixed-window            an amount in each window of the clock or the calendar: quotas
	//   concurrency             jobs that wait and run at one time; no window
	Algorithm string `key:"algorithm"`
	// Limit is how much Window allows, in units of the operations' cost, or as Cost says; for
	// concurrency how many jobs. Required; 1 to 1,000,000,000, and at least 1024 bytes.
	Limit int64 `key:"limit"`
	// Window is required but for concurrency; 1ms to 366d, and for a fixed-window also day or month of the
	// UTC calendar. Limit and Window are counted exactly, in whole numbers: where they have no common
	// measure (such as 1000003 in 24h) a rounder pair may be asked for.
	Window Window `key:"window"`
	// Burst is how much a token-bucket allows at once after idling, or a leaky-bucket holds. Default:
	// Limit; 1 to 1,000,000,000. Buckets only.
	Burst int64 `key:"burst"`
	// Enforce is whether the limit refuses. Default true; with false it is a shadow: counted and shown,
	// to see whom it would refuse.
	Enforce bool `key:"enforce"`
	// Cost is what a request takes of it.
	Cost LimitCost `key:"cost" absent:"a request takes its operation's cost, or one job"`
}

// LimitCost is what a request takes of a limit in place of its operation's cost.
type LimitCost struct {
	// Bytes is whether it takes the bytes of its body. Default false. Not for concurrency, nor for
	// reads.
	Bytes bool `key:"bytes"`
}

// When names the requests that a limit applies to: all of the lists that are given must hold the request's.
type When struct {
	Tier      []string `key:"tier" max:"1000" absent:"every tier"`
	Operation []string `key:"operation" max:"1000" absent:"every operation"`
	// Country are two capital letters each (ISO 3166-1). A caller whose country isn't known is in none.
	Country []string `key:"country" max:"250" absent:"every country"`
}

// Backend is a service that is protected.
type Backend struct {
	// URL is http:// or https:// with a host and maybe a path, which operations' paths are appended
	// to. Required. No query, fragment or user: secrets belong in Headers.
	URL   string `key:"url"`
	Drain Drain  `key:"drain"`
	Line  Line   `key:"line"`
	// Timeout is how long one call may take. Default 30s; 10ms to 24h.
	Timeout time.Duration `key:"timeout"`
	Retry   Retry         `key:"retry"`
	// MaxAge is how old a job may be when an attempt begins; an older one expires. Default 24h;
	// 1s to 30d, since its payload stays in Redis so long.
	MaxAge time.Duration `key:"max_age"`
	// Feedback is whether a backend that is in trouble is called less: fewer slots, none while it asks
	// for rest, then one call to try. Default on.
	Feedback strictyaml.Switch `key:"feedback"`
	// KeepFailed is how long a failed job stays listed, so that an operator can see why it failed and put
	// it back into the line; it stays on record at least so long. Default 168h; 1s to 30d.
	KeepFailed time.Duration `key:"keep_failed"`
	// Headers are sent with every call; values may hold secrets from the environment. Not those that
	// the service itself sets (Idempotency-Key, Forebay-*, Host, Content-Length and the like).
	Headers map[string]strictyaml.Secret `key:"headers" max:"50"`
}

// Drain is the pace at which a backend is given jobs, over all workers together.
type Drain struct {
	// Rate is slots per s, m, h or d, such as 5/s, 0.2/s or 6/m, or unlimited. Required. At most
	// 100000/s, which is 10 µs between slots, under what a timer can keep; at least one in 30 days.
	// It is kept as it was written.
	Rate string `key:"rate"`
	// Burst is how many slots may be used at once after idling. Default 1; 1 to 10000.
	Burst int `key:"burst"`
	// Concurrency is how many calls may run at once. Default 10; 1 to 10000: each is a connection.
	Concurrency int `key:"concurrency"`
}

// Line is where a backend's jobs wait.
type Line struct {
	// Capacity is how many jobs may wait. Default 1000; 1 to 10,000,000: each takes its payload and
	// up to a few kilobytes in Redis.
	Capacity int `key:"capacity"`
	// MaxWait is the longest predicted wait at which a job is still accepted. Default 5m; 100ms to 30d.
	MaxWait time.Duration `key:"max_wait"`
	// ClientShare is the part of Capacity that one client may hold. Default 1; above 0, at most 1.
	ClientShare float64 `key:"client_share"`
}

// Retry is what happens after a call that failed for the moment.
type Retry struct {
	// Attempts is how often a job is tried in all. Default 4; 1 to 100.
	Attempts int `key:"attempts"`
	// Base is the longest wait before the second attempt; it doubles with each further one, up to
	// Cap. The wait is drawn at random below that. Defaults 1s and 1m; 1ms to 24h.
	Base time.Duration `key:"base"`
	Cap  time.Duration `key:"cap"`
	// On are the backend's statuses after which a job is tried again; timeouts and broken connections
	// always count, and statuses of 500 and more that no standard knows, such as a CDN's 520 to 524,
	// count as 500. Default [408, 425, 500, 502, 504, 507]; 400 to 599.
	On []int `key:"on" max:"50"`
	// Rest are the statuses by which the backend asks for rest: they close its gate for everybody and
	// use up no attempt. Default [429, 503, 529]; 400 to 599, and none of On.
	Rest []int `key:"rest" max:"50"`
}

// Operation is a named expensive thing that clients may ask for.
type Operation struct {
	Backend string `key:"backend"` // required
	// Method is GET, POST (default), PUT, PATCH or DELETE.
	Method string `key:"method"`
	// Path begins with / and is appended to the backend's URL; it may end with a query. Required.
	Path string `key:"path"`
	// Tiers may use it. Default: all.
	Tiers []string `key:"tiers" max:"1000" absent:"every tier may use it"`
	// Cost is what one request takes of each limit but those of concurrency.
	Cost  Cost  `key:"cost"`
	Cache Cache `key:"cache"`
	// Coalesce has requests for the same, of those who share its answers (Cache), share one job while it waits or runs. Default false.
	Coalesce bool `key:"coalesce"`
	// OnOverload is what is tried in order when a request is refused. reject comes last. Default [stale, reject].
	//   stale              the last good answer, as Cache permits
	//   {operation: name}  a job of another, cheaper operation, by that one's own limits and line; at most 3
	//   {body: {...}}      a fixed answer
	//   reject             429
	OnOverload []Step `key:"on_overload" max:"10"`
	// Degrade says when stale answers are served before the line is tried.
	Degrade Degrade `key:"degrade" absent:"a stale answer is served only where a request is refused"`
	// OnFailure is what gateways' checks of the operation get while Redis is unavailable: local, allow or
	// refuse. See Checks.
	OnFailure string `key:"on_failure" absent:"as check.on_failure"`
	// KeepResult is how long a finished job and its result can be fetched. Default 24h; 1s to 30d.
	KeepResult time.Duration `key:"keep_result"`
	// MaxResult bounds the backend's answer; a longer one fails the job. Default 1MiB; 1B to 64MiB,
	// since it is held in memory and in Redis whole.
	MaxResult units.Size `key:"max_result"`
	// Limits apply to requests for this operation.
	Limits []Limit `key:"limits" max:"20"`
}

// Cost is a number, or where in the payload to find one. Default 1.
type Cost struct {
	// Fixed is the number; 1 to 1,000,000,000. 0 where From is given.
	Fixed int64 `scalar:"a number, or {from: /pages, default: 1, max: 100}"`
	// From is a JSON Pointer to a whole number in the payload, such as /pages.
	From string `key:"from"`
	// Default is the cost of a payload that has nothing there. Default 1; 1 to Max.
	Default int64 `key:"default"`
	// Max is the highest cost that is accepted. Required beside From, since clients write payloads; 1 to
	// 1,000,000,000.
	Max int64 `key:"max"`
}

// Step is one thing to try when a request is refused.
type Step struct {
	// Word is stale or reject; "" where one of the others is given.
	Word      string          `scalar:"stale, reject, {operation: name} or {body: {...}}"`
	Operation string          `key:"operation"`
	Body      strictyaml.JSON `key:"body"` // at most 64KiB
}

// Degrade says when an operation's stale answers come first.
type Degrade struct {
	When DegradeWhen `key:"when"`
}

// DegradeWhen is a condition on the operation's backend.
type DegradeWhen struct {
	// Backend is sick. Required.
	Backend string `key:"backend"`
	// Below is the part of its rate under which the backend counts as sick, by what feedback leaves of it; a backend that asks for rest
	// is sick anyway. Default 0.5; above 0, at most 1.
	Below float64 `key:"below"`
}

// Cache says which stored answers may be served.
type Cache struct {
	// FreshFor is how old an answer may be that is served to any request for the same, as if it were new; 1s to 366d.
	FreshFor time.Duration `key:"fresh_for" absent:"no answer is served as new"`
	// StaleFor is how old a stale answer may be; 1s to 366d.
	StaleFor time.Duration `key:"stale_for" absent:"no stale answer is served"`
	// Share is who sees one client's answers: client (default, nobody else), tier or all. Callers without a key
	// are no client: they take part with tier and all alone.
	Share string `key:"share"`
	// Key are JSON Pointers to what in the payload tells answers apart. Up to 16.
	Key []string `key:"key" max:"16" absent:"the whole payload tells answers apart"`
	// Refresh has an answer that was served stale be asked for anew, by one job that no client waits for, where the line has room.
	// Default false.
	Refresh bool `key:"refresh"`
}

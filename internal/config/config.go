// Package config reads Forebay's YAML file. The structs below are its manual: their tags have each
// key, its default, its bounds and the meaning of its absence; the comments have the reasons.
//
// Unknown and doubled keys, numbers without their unit and contradictions are errors, which name
// file, line, key and correction. All of them are reported at once (see package strictyaml).
// Durations are written 500ms, 30s, 5m, 12h, 7d; sizes 512B, 64KiB, 1MiB, 10MB; rates 5/s, 0.2/s,
// 6/m, 100/d or unlimited.
//
// ${NAME} inside a value stands for an environment variable, $${ for a plain ${. A variable's text
// becomes part of that one value: it is never parsed as YAML, and never printed.
//
// Names of backends, operations, tiers, limits and clients are [a-z][a-z0-9-]*, at most 63
// characters: they become parts of job ids, Redis keys, header fields and metric labels.
package config

import (
	"net/netip"
	"time"

	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/strictyaml"
	"github.com/forebay/forebay/internal/units"
	"github.com/forebay/forebay/internal/webhook"
	"github.com/forebay/forebay/internal/worker"
)

// Config is a whole file. Its zero value is not valid: start with Default or Load.
type Config struct {
	Deployment
	Identity Identity `key:"identity"`
	// Callbacks are the rules for webhooks, which notify clients of the ends of jobs.
	Callbacks webhook.Policy `key:"callbacks"`
	Stop

	// Tiers are named sets of limits; every client has one. At least one is required.
	Tiers map[string]Tier `key:"tiers" max:"1000"`
	// Limits apply to every caller, beside those of its tier and of the operation.
	Limits []Limit `key:"limits" max:"20"`
	// Backends are the services that are protected. At least one is required. A worker runs a
	// dispatcher and a server for each.
	Backends map[string]Backend `key:"backends" max:"100"`
	// Operations are the kinds of work that clients may request. At least one is required.
	Operations map[string]Operation `key:"operations" max:"1000"`

	written strictyaml.Written // what Describe shows instead of the environment's values
}

// Deployment is where the processes listen, where they keep their data, and how many there are.
type Deployment struct {
	HTTP   HTTP   `key:"http"`
	Admin  Admin  `key:"admin"`
	Redis  Redis  `key:"redis"`
	Checks Checks `key:"check"`
	Region Region `key:"region" absent:"one region: limits count everything"`
	Worker Worker `key:"worker"`
}

// Stop is how a process shuts down.
type Stop struct {
	// Shutdown is how long running requests and calls may go on. Jobs whose calls are still running
	// then return to the line.
	Shutdown time.Duration `key:"shutdown" default:"30s" range:"100ms to 1h"`
	// ShutdownDelay is how long an api goes on as before, except that /readyz fails, so that load
	// balancers send requests elsewhere before it closes. The default is time for two of their
	// usual checks.
	ShutdownDelay time.Duration `key:"shutdown_delay" default:"5s" range:"0s to 5m"`
}

// HTTP is the public listener.
type HTTP struct {
	// Listen is host:port; without host all addresses.
	Listen string `key:"listen" default:":8080"`
	// MaxBody bounds a request's body. Each request under way has its whole body in memory.
	MaxBody units.Size `key:"max_body" default:"1MiB" range:"1KiB to 64MiB"`
	// MaxBuffered bounds the memory of all requests' bodies together, and separately that of all
	// answers until they are read. A request that finds no room gets 503, or 429 where its own
	// client takes the room. At least twice MaxBody, so that not every body waits for another; at
	// most 64GiB.
	MaxBuffered units.Size `key:"max_buffered" default:"256MiB"`
	// MaxConnections bounds the listener's connections at one time. When it is reached, idle ones
	// are closed to make room, or if there are none, new ones. The value derived from the file
	// limit is at most 20000.
	MaxConnections int `key:"max_connections" range:"1 to 1000000" absent:"what the process's file limit leaves (ulimit -n)"`
	// MaxConnectionsPerAddress bounds those from one address, or one IPv6 network (see IPv6Prefix),
	// so that none takes all. It doesn't apply to TrustedProxies.
	MaxConnectionsPerAddress int `key:"max_connections_per_address" range:"1 to 1000000" absent:"a quarter of max_connections"`
	// TrustedProxies are networks (CIDR) or addresses of proxies whose headers are believed about
	// the caller's address.
	TrustedProxies []netip.Prefix `key:"trusted_proxies" max:"1000" absent:"the peer of the connection is the caller"`
	// ClientIPHeader is the one header in which those proxies write the caller's address.
	ClientIPHeader string `key:"client_ip_header" default:"X-Forwarded-For" words:"X-Forwarded-For, Forwarded"`
	// IPv6Prefix is how many leading bits of an IPv6 address make one caller. 64 is the smallest
	// network that a user gets; networks under 32 are whole providers.
	IPv6Prefix int `key:"ipv6_prefix" default:"64" range:"32 to 128"`
	// LegacyRateLimitHeaders says how X-RateLimit-Reset counts: epoch is Unix seconds, delta
	// seconds from now. With off, there are no X-RateLimit fields.
	LegacyRateLimitHeaders string `key:"legacy_rate_limit_headers" default:"epoch" words:"epoch, delta, off"`
}

// Admin is the listener of operators: live tuning, metrics.
type Admin struct {
	Listen string `key:"listen" default:"127.0.0.1:8081"` // host:port
	// Token is sent by operators as "Authorization: Bearer <token>". It is required if Listen isn't
	// a loopback address; 16 to 512 visible ASCII characters, so that it can't be guessed.
	Token strictyaml.Secret `key:"token" absent:"every caller that reaches the listener may use it"`
}

// Redis is the store of all data.
type Redis struct {
	// URL is redis://, unix://, redis+sentinel:// (user:password@host:port,host:port/master/db) or
	// redis+cluster:// (host:port,host:port); rediss instead of redis means TLS. Without a URL, a
	// Redis inside the process is used, for trying out.
	URL strictyaml.SecretURL `key:"url" absent:"embedded, in memory: nothing is kept"`
	RedisLogin
	// OnFailure is what a request for a job gets while Redis is unavailable. degrade: the last good
	// answer from memory if the operation permits one, and otherwise 503. reject: 503 at once.
	OnFailure string `key:"on_failure" default:"degrade" words:"degrade, reject"`
}

// RedisLogin is the login to a Redis beside its URL.
type RedisLogin struct {
	// Username and Password are those of the server, master or nodes. They are given here or in the
	// URL. Here they are taken literally: no character is special, as some are in the URL.
	Username string            `key:"username"`
	Password strictyaml.Secret `key:"password"`
	// SentinelUsername and SentinelPassword are those of the sentinels, which may differ from those
	// of the servers that they watch. Absent: the sentinels ask for none.
	SentinelUsername string            `key:"sentinel_username"`
	SentinelPassword strictyaml.Secret `key:"sentinel_password"`
	// TLS is for servers whose certificates the system's authorities didn't sign, or that ask for
	// certificates. It needs a URL with TLS.
	TLS RedisTLS `key:"tls" absent:"servers with TLS are verified against the system's authorities"`
}

// RedisTLS says how servers and this client verify each other. Relative paths start at the config's
// directory.
type RedisTLS struct {
	// CA is a PEM file of the only authorities that are trusted. Default: the system's.
	CA string `key:"ca"`
	// Cert and Key are PEM files of this client's certificate and its private key; both or neither.
	Cert string `key:"cert"`
	Key  string `key:"key"`
	// ServerName must be in each server's certificate. Default: the host of the server's address.
	ServerName string `key:"server_name"`
}

// Checks are the questions of gateways before they let a request through (GET /v1/check).
type Checks struct {
	// OnFailure is their answer while Redis is unavailable. With local, each process decides by
	// itself, with its part of every limit.
	OnFailure string `key:"on_failure" default:"local" words:"local, allow, refuse"`
	// Processes is how many api processes there are at least. They count each other in Redis; one
	// that starts while Redis is unavailable uses this number.
	Processes int `key:"processes" default:"1" range:"1 to 1000"`
	// MethodHeader is the one field in which the gateway names the method of the request that it
	// asks about: X-Original-Method, X-Forwarded-Method or any other that it always sets itself, so
	// that its clients can't. With it, a CORS preflight, which carries no key, passes and isn't
	// counted. It is believed only from http.trusted_proxies.
	MethodHeader string `key:"method_header" absent:"no field names the method: a preflight is a request like any other"`
}

// Region is this config's part of a service that runs in several regions. Each has a Redis of its
// own and doesn't see the counts of the others.
type Region struct {
	Name string `key:"name" required:""` // different in each region
	// Share is this region's part of every limit: above 0, at most 1, and 1 over all regions
	// together. An amount is rounded down, but never below 1. Required without Sync; with it, the
	// share applies while the centre is lost.
	Share float64 `key:"share" absent:"while the centre of sync is lost, the same for each region last seen"`
	Sync  Sync    `key:"sync" absent:"this region decides over its share by itself"`
}

// Sync makes regions exchange their counts through a central Redis, the centre. Each still decides
// by itself, so together they exceed a limit by at most the requests that arrive within one
// interval. Jobs at one time (concurrency) are not exchanged: each region counts its own.
type Sync struct {
	// Redis is the centre's URL, in the forms of redis.url. It must differ from redis.url.
	Redis strictyaml.SecretURL `key:"redis" required:"the URL of a Redis that all regions reach, such as redis://centre.example.com:6379/0"`
	RedisLogin
	// Every is the interval. With a longer one than a minute, limits would hardly limit.
	Every time.Duration `key:"every" default:"1s" range:"100ms to 1m"`
}

// Worker is the back path inside the api process.
type Worker struct {
	// Embedded makes the api process drain the lines too. It always does with embedded Redis, which
	// no other process can reach.
	Embedded bool `key:"embedded"`
}

// Identity names the callers that may send requests: callers without a key, clients, or both.
type Identity struct {
	// Anonymous is the tier of callers without a key. Limits count them by address. Their jobs
	// belong to the bearers of the ids, since strangers may share an address.
	Anonymous string `key:"anonymous" absent:"a key is required"`
	// CountryHeader is the header in which the trusted proxies name the caller's country in two
	// letters, such as CF-IPCountry. It needs http.trusted_proxies, since any caller can write such
	// a header.
	CountryHeader string `key:"country_header" absent:"no header tells a caller's country"`
	// CountryDatabase is a MaxMind file (.mmdb) of countries, used for addresses for which the
	// header gives none. A relative path starts at the config's directory.
	CountryDatabase string `key:"country_database" absent:"no database tells a caller's country"`
	// ClientsFile holds further clients under the one key "clients", and is read again when it
	// changes and on SIGHUP. If it is broken, a process doesn't start; later the clients stay as
	// they were. The path is as for CountryDatabase.
	ClientsFile string `key:"clients_file" absent:"the clients are those of this file"`
	// Clients are the owners of API keys.
	Clients []Client `key:"clients" max:"10000"`
}

// Client is an owner of API keys.
type Client struct {
	Name string `key:"name" required:""` // unique
	Tier string `key:"tier"`             // required
	// KeySHA256 are the SHA-256 digests of its keys in hexadecimal: printf %s "$KEY" | sha256sum.
	// One is required; there may be more, so that a new key can be introduced before the old one is
	// removed.
	KeySHA256 []identity.Digest `key:"key_sha256" max:"10"`
	// Weight replaces the tier's.
	Weight float64 `key:"weight" range:"0.001 to 1000" absent:"that of its tier"`
	// Limits are the client's own: each replaces the tier's limit of the same name, or is added.
	Limits []Limit `key:"limits" max:"20" absent:"those of its tier"`
	// Callback is the webhook that is notified of the ends of its jobs.
	Callback Callback `key:"callback" absent:"its jobs' ends aren't told"`
}

// Callback has a client's settings for its webhooks.
type Callback struct {
	// URL is for the jobs whose request names no callback_url. It follows the rules of Callbacks.
	URL string `key:"url" absent:"the jobs whose requests name a callback_url are told of"`
	// Secrets sign what is sent (Standard Webhooks): whsec_ and the base64 of 24 to 64 random
	// bytes. One is required. Webhooks are signed with each, so that a new one can be introduced
	// before the old one is removed.
	Secrets []webhook.Secret `key:"secrets" max:"5"`
}

// Tier is a named set of limits and a weight.
type Tier struct {
	// Weight is the tier's share where clients of several tiers wait in one line: a client of
	// weight 4 gets four slots for each slot of a client of weight 1. Beyond the bounds, clients of
	// small weight would hardly ever get a slot.
	Weight float64 `key:"weight" default:"1" range:"0.001 to 1000"`
	// MaxStored is how many bytes each client's jobs may take in Redis, on each backend: the
	// payloads and results of jobs that wait, run or are kept. At least 64KiB, and twice
	// HTTP.MaxBody, so that no job takes all of it; at most 1024GiB.
	MaxStored units.Size `key:"max_stored" absent:"a client's jobs may take any number of bytes"`
	// Grace is for new clients of the tier.
	Grace Grace `key:"grace" absent:"new clients have the same limits as others"`
	// Limits apply to each client of the tier.
	Limits []Limit `key:"limits" max:"20"`
	// Reads are limits on each client's lists of jobs, counted in jobs that are looked at. Not per
	// operation, and without when and concurrency; [] sets no limit. With the default, a client may
	// look at 10,000 jobs at once, and then takes under 1% of Redis's time.
	Reads []Limit `key:"reads" max:"20" default:"[{name: reads, algorithm: token-bucket, limit: 60000, window: 1m, burst: 10000}]"`
}

// Grace raises, for new clients, the limits that count each client by itself: those per client and
// client+operation, in all lists. A caller without a key has none: strangers may share an address.
type Grace struct {
	// Period begins when the client is first seen.
	Period time.Duration `key:"period" range:"1m to 366d" required:"how long a client counts as new, such as 7d"`
	// Factor multiplies amounts and bursts: above 1, at most 100.
	Factor float64 `key:"factor" required:"what a new client's limits are multiplied by, such as 2"`
}

// Limit is one rule. Among all that apply to one request (of its tier, of all callers, of its
// operation and of its client) names are unique, since a refusal names the limit. At most 4 of them
// may limit concurrency.
type Limit struct {
	Name string `key:"name" required:""`
	// Per is the subject that has a count of its own. country needs identity.country_header or
	// country_database.
	Per limits.Per `key:"per" default:"client"`
	// When narrows the requests that the limit applies to.
	When limits.When `key:"when" absent:"whatever it is listed for"`
	// Algorithm is one of these. Required.
	//   token-bucket            a steady rate, and bursts after idling
	//   leaky-bucket            fills by the cost, leaks at limit/window, holds burst
	//   sliding-window-counter  an amount in any window, within a few percent
	//   sliding-window-log      an amount in any window, exactly, for more memory; limit ≤ 10000
	//   fixed-window            an amount in each window of the clock or the calendar: quotas
	//   concurrency             jobs that wait and run at one time; no window
	Algorithm limits.Algorithm `key:"algorithm"`
	// Limit is the amount per Window, in units of the operations' cost, or as Cost says; for
	// concurrency the number of jobs. Required; 1 to 1,000,000,000, and at least 1024 bytes.
	Limit int64 `key:"limit"`
	// Window is required except for concurrency; 1ms to 366d, and for a fixed-window also day or
	// month of the UTC calendar. Limit and Window are counted exactly, in whole numbers: if they
	// have no common measure (such as 1000003 in 24h), a rounder pair may be required.
	Window Window `key:"window"`
	// Burst is how much a token-bucket allows at once after idling, or a leaky-bucket holds.
	// Default: Limit; 1 to 1,000,000,000. Buckets only.
	Burst int64 `key:"burst"`
	// Enforce is whether the limit refuses. With false it is a shadow limit: counted and shown, to
	// see which requests it would refuse.
	Enforce bool `key:"enforce" default:"true"`
	// Cost is the amount that a request takes of the limit.
	Cost LimitCost `key:"cost" absent:"a request takes its operation's cost, or one job"`
}

// LimitCost is the amount that a request takes of a limit instead of its operation's cost.
type LimitCost struct {
	// Bytes is whether a request takes the size of its body in bytes. Not for concurrency or reads.
	Bytes bool `key:"bytes"`
}

// Backend is a service that is protected.
type Backend struct {
	// URL is http:// or https:// with a host and maybe a path, to which operations' paths are
	// appended. Required. No query, fragment or user: secrets belong in Headers.
	URL   string      `key:"url"`
	Drain leaky.Drain `key:"drain"`
	Line  leaky.Room  `key:"line"`
	// Timeout is how long one call may take.
	Timeout time.Duration `key:"timeout" default:"30s" range:"10ms to 24h"`
	Retry   Retry         `key:"retry"`
	// MaxAge is how old a job may be when an attempt begins; an older one expires. Its payload may
	// stay in Redis for that long.
	MaxAge time.Duration `key:"max_age" default:"24h" range:"1s to 30d"`
	// Feedback is whether a backend in trouble is called less: it gets fewer slots, none while it
	// asks for rest, and then one call as a probe.
	Feedback units.Switch `key:"feedback" default:"on"`
	// KeepFailed is how long a failed job stays listed, so that an operator can see why it failed
	// and put it back into the line; it stays on record for at least as long.
	KeepFailed time.Duration `key:"keep_failed" default:"7d" range:"1s to 30d"`
	// Headers are sent with every call; values may hold secrets from the environment. Not those
	// that the service itself sets (Idempotency-Key, Forebay-*, Host, Content-Length and the like).
	Headers map[string]strictyaml.Secret `key:"headers" max:"50"`
}

// Retry is how calls that failed temporarily are repeated.
type Retry struct {
	// Attempts bounds the attempts of a job, the first one included.
	Attempts int `key:"attempts" default:"4" range:"1 to 100"`
	worker.Retry
}

// Operation is a named, expensive kind of work that clients may request.
type Operation struct {
	Call
	// Tiers may use it.
	Tiers limits.Names `key:"tiers" max:"1000" absent:"every tier may use it"`
	// Cost is the amount that one request takes of each limit, except those of concurrency.
	Cost  Cost  `key:"cost" default:"1"`
	Cache Cache `key:"cache"`
	// Coalesce makes requests for the same share one job while it waits or runs, if their callers
	// share its answers (Cache).
	Coalesce bool `key:"coalesce"`
	// OnOverload are the steps that are tried in order when a request is refused. reject comes
	// last.
	//   stale              the last good answer, as Cache permits
	//   {operation: name}  a job of a cheaper operation, by its own limits and line; at most 3
	//   {body: {...}}      a fixed answer
	//   reject             429
	OnOverload []Step `key:"on_overload" max:"10" default:"[stale, reject]"`
	// Degrade says when stale answers are served before the line is tried.
	Degrade Degrade `key:"degrade" absent:"a stale answer is served only where a request is refused"`
	// OnFailure is what gateways' checks of the operation get while Redis is unavailable. See
	// Checks.
	OnFailure string `key:"on_failure" words:"local, allow, refuse" absent:"as check.on_failure"`
	// KeepResult is how long a finished job and its result can be fetched.
	KeepResult time.Duration `key:"keep_result" default:"24h" range:"1s to 30d"`
	// MaxResult bounds the backend's answer, which is held whole in memory and in Redis; a longer
	// one fails the job.
	MaxResult units.Size `key:"max_result" default:"1MiB" range:"1B to 64MiB"`
	// Limits apply to requests for this operation.
	Limits []Limit `key:"limits" max:"20"`
}

// Call is how an operation's backend is called.
type Call struct {
	Backend string `key:"backend"` // required
	Method  string `key:"method" default:"POST" words:"GET, POST, PUT, PATCH, DELETE"`
	// Path begins with / and is appended to the backend's URL; it may end with a query.
	Path string `key:"path" required:"where the backend is called, such as /render"`
}

// Cost is a number, or where the payload has it.
type Cost struct {
	// Fixed is the number; 0 if From is given.
	Fixed int64 `scalar:"a number, or {from: /pages, default: 1, max: 100}" range:"1 to 1000000000"`
	// From is a JSON Pointer to a whole number in the payload.
	From string `key:"from" required:"a JSON Pointer to the number in the payload, such as /pages, or /options/pages for a field within another"`
	// Default is the cost of a payload without the number; at most Max.
	Default int64 `key:"default" default:"1" range:"1 to 1000000000"`
	// Max is the highest cost that is accepted, since clients write payloads.
	Max int64 `key:"max" range:"1 to 1000000000" required:"the highest cost that a request may have"`
}

// Step is one step of on_overload.
type Step struct {
	// Word is stale or reject; "" if one of the others is given.
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
	Backend string `key:"backend" required:"sick" words:"sick"`
	// Below makes the backend count as sick when feedback leaves less than this part of its rate:
	// above 0, at most 1. A backend that asks for rest is sick in any case.
	Below float64 `key:"below" default:"0.5"`
}

// Cache says which stored answers may be served.
type Cache struct {
	// FreshFor is up to which age an answer is served to any request for the same, as if it were
	// new.
	FreshFor time.Duration `key:"fresh_for" range:"1s to 366d" absent:"no answer is served as new"`
	// StaleFor bounds the age of a stale answer.
	StaleFor time.Duration `key:"stale_for" range:"1s to 366d" absent:"no stale answer is served"`
	// Share says which other clients get one client's answers: none (client), its tier or all.
	// Callers without a key get and give answers only with tier and all.
	Share string `key:"share" default:"client" words:"client, tier, all"`
	// Key are JSON Pointers to the parts of the payload that distinguish answers.
	Key []string `key:"key" max:"16" absent:"the whole payload tells answers apart"`
	// Refresh renews an answer that was served stale, by one low-priority job of the client that
	// got it, if the line has room.
	Refresh bool `key:"refresh"`
}

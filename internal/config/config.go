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
)

// Config is a whole file. Its zero value is not valid: begin with Default or Load.
type Config struct {
	HTTP     HTTP     `key:"http"`
	Admin    Admin    `key:"admin"`
	Redis    Redis    `key:"redis"`
	Worker   Worker   `key:"worker"`
	Identity Identity `key:"identity"`

	// Shutdown is how long a process that is told to stop lets its running requests and calls
	// end; what still runs then is given back to the line. Default 30s; 100ms to 1h.
	Shutdown time.Duration `key:"shutdown"`

	// Tiers are named sets of limits; every client has one. Required, at least one.
	Tiers map[string]Tier `key:"tiers" max:"1000"`
	// Limits apply to every caller, beside those of its tier and of the operation.
	Limits []Limit `key:"limits" max:"20"`
	// Backends are the services that are protected. Required. At most 100: a worker runs a
	// dispatcher and a server for each.
	Backends map[string]Backend `key:"backends" max:"100"`
	// Operations are what clients may ask for. Required.
	Operations map[string]Operation `key:"operations" max:"1000"`
}

// HTTP is the public listener.
type HTTP struct {
	// Listen is host:port; without host all addresses. Default ":8080".
	Listen string `key:"listen"`
	// MaxBody bounds a request's body. Default 1MiB; 1KiB to 64MiB, since a body is held in
	// memory whole, once for each request under way.
	MaxBody Size `key:"max_body"`
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
	Token Secret `key:"token" absent:"whoever reaches the listener may use it"`
}

// Redis is where everything is kept.
type Redis struct {
	// URL is redis://, unix://, redis+sentinel:// (user:password@host:port,host:port/master/db) or
	// redis+cluster:// (host:port,host:port); rediss instead of redis is with TLS. Absent: a Redis inside
	// the process, for trying out, that keeps nothing.
	URL SecretURL `key:"url" absent:"embedded, in memory: nothing is kept"`
}

// Worker is the back path inside the api process.
type Worker struct {
	// Embedded makes the api process drain the lines too. Default false; always true with embedded
	// Redis, which no other process can reach.
	Embedded bool `key:"embedded"`
}

// Identity says who may ask. It names a tier for callers without a key, or clients, or both.
type Identity struct {
	// Anonymous is the tier of callers without a key, who are told apart by address.
	Anonymous string `key:"anonymous" absent:"a key is required"`
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
}

// Tier is a named set of limits and a weight.
type Tier struct {
	// Weight is the tier's share where clients of several tiers wait in one line: with weight 4 a
	// client gets four slots for each one of weight 1. Default 1; 0.001 to 1000: beyond that the
	// light ones all but never get their turn.
	Weight float64 `key:"weight"`
	// Limits apply to each client of the tier.
	Limits []Limit `key:"limits" max:"20"`
}

// Limit is one rule. Among all that apply to one request (of its tier, of all callers and of its
// operation) names are unique, since a refusal is told by name.
type Limit struct {
	Name string `key:"name"` // required
	// Per is what is counted apart: client (default), ip, operation, client+operation or global.
	Per string `key:"per"`
	// Algorithm is token-bucket (a steady rate with bursts) or sliding-window-counter (an amount in
	// any window, within a few percent). Required.
	Algorithm string `key:"algorithm"`
	// Limit is how many requests Window allows. Required; 1 to 1,000,000,000.
	Limit int64 `key:"limit"`
	// Window is required; 1ms to 366d. Limit and Window are counted exactly, in whole numbers: where
	// they have no common measure (such as 1000003 in 24h) a rounder pair may be asked for.
	Window time.Duration `key:"window"`
	// Burst is how many requests a token bucket allows at once after idling. Default: Limit;
	// 1 to 1,000,000,000. Token buckets only.
	Burst int64 `key:"burst"`
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
	// Headers are sent with every call; values may hold secrets from the environment. Not those that
	// the service itself sets (Idempotency-Key, Forebay-*, Host, Content-Length and the like).
	Headers map[string]Secret `key:"headers" max:"50"`
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

// Retry is what happens after a call that failed for the moment. 429 and 503 are not among them:
// they close the backend's gate and use up no attempt.
type Retry struct {
	// Attempts is how often a job is tried in all. Default 4; 1 to 100.
	Attempts int `key:"attempts"`
	// Base is the longest wait before the second attempt; it doubles with each further one, up to
	// Cap. The wait is drawn at random below that. Defaults 1s and 1m; 1ms to 24h.
	Base time.Duration `key:"base"`
	Cap  time.Duration `key:"cap"`
	// On are the backend's statuses after which a job is tried again; timeouts and broken connections
	// always count. Default [408, 425, 500, 502, 504]; 400 to 599.
	On []int `key:"on" max:"50"`
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
	Cache Cache    `key:"cache"`
	// OnOverload is what is tried in order when a request is refused: stale (the last good answer, as
	// Cache permits) and reject, which comes last. Default [stale, reject].
	OnOverload []string `key:"on_overload" max:"10"`
	// KeepResult is how long a finished job and its result can be fetched. Default 24h; 1s to 30d.
	KeepResult time.Duration `key:"keep_result"`
	// MaxResult bounds the backend's answer; a longer one fails the job. Default 1MiB; 1B to 64MiB,
	// since it is held in memory and in Redis whole.
	MaxResult Size `key:"max_result"`
	// Limits apply to requests for this operation.
	Limits []Limit `key:"limits" max:"20"`
}

// Cache says which stored answers may be served.
type Cache struct {
	// StaleFor is how old a stale answer may be; 1s to 366d.
	StaleFor time.Duration `key:"stale_for" absent:"no stale answer is served"`
	// Share is who sees one client's answers: client (default, nobody else), tier or all.
	Share string `key:"share"`
}

package client

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Config configures a Client. The zero value has all defaults, and no key.
type Config struct {
	// Key is the caller's API key, of visible ASCII characters. It is sent in the Authorization
	// field of each request. No error shows it.
	Key string

	// HTTPClient makes the requests; nil means http.DefaultClient. Its CheckRedirect isn't used:
	// redirects are followed only within the base URL's scheme and host, and only if method and
	// body stay the same. If it has a Timeout, a long poll takes at most half of that, and a stream
	// isn't bound by it.
	HTTPClient *http.Client

	// Timeout is how long one try may take, including the answer's body. A try that waits for a job
	// (Prefer: wait) has that time in addition. Default 30 s. A try that times out is repeated. A
	// stream isn't bound by it.
	Timeout time.Duration

	// MaxElapsed is how long after a call's first failure its last try may begin. Default 2
	// minutes; negative: no bound.
	MaxElapsed time.Duration

	// MaxAttempts bounds the tries of one call. Default 10; negative: no bound.
	MaxAttempts int

	// Backoff determines the waits between tries.
	Backoff Backoff

	// MaxBody bounds an answer's body, in bytes, since it is held in memory. Default 64 MiB, the
	// largest result that a server can keep.
	MaxBody int64

	// Rand draws the jitter: uniform in [0, 1), and safe for concurrent use. Default
	// math/rand/v2's.
	Rand func() float64
}

// Defaults of a Config.
const (
	DefaultTimeout     = 30 * time.Second
	DefaultMaxElapsed  = 2 * time.Minute
	DefaultMaxAttempts = 10
	DefaultMaxBody     = 64 << 20
)

// Client calls one Forebay server. It is safe for concurrent use.
type Client struct {
	base        string // without a final slash
	authorize   func(http.Header)
	http        *http.Client
	streams     *http.Client  // http without its Timeout
	streamsFrom *atomic.Int64 // Unix nanoseconds before which streams aren't tried
	timeout     time.Duration
	maxElapsed  time.Duration
	maxAttempts int
	backoff     Backoff
	maxBody     int64
	rand        func() float64
}

// New returns a client of the server at baseURL, which may have a path if the server is behind a
// prefix: "https://example.com/jobs". It returns an error for a URL that isn't http or https, or
// that has more than a host and a path, and for an invalid Config.
func New(baseURL string, config Config) (*Client, error) {
	base, err := parseBase(baseURL)
	if err != nil {
		return nil, err
	}
	backoff, err := config.Backoff.withDefaults()
	if err != nil {
		return nil, err
	}
	authorize := func(http.Header) {}
	if key := config.Key; key != "" {
		if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, errors.New("forebay: Config.Key has characters that no key has, " +
				"such as a line's end")
		}
		// In a closure, so that printing a Client doesn't show it.
		authorize = func(h http.Header) { h.Set("Authorization", "Bearer "+key) }
	}
	if config.Timeout < 0 || config.MaxBody < 0 {
		return nil, errors.New("forebay: Config.Timeout and Config.MaxBody can't be negative")
	}
	c := &Client{base: base, authorize: authorize, backoff: backoff, rand: config.Rand,
		streamsFrom: new(atomic.Int64), timeout: or(config.Timeout, DefaultTimeout),
		maxElapsed:  or(config.MaxElapsed, DefaultMaxElapsed),
		maxAttempts: or(config.MaxAttempts, DefaultMaxAttempts),
		maxBody:     or(config.MaxBody, DefaultMaxBody)}
	if c.rand == nil {
		c.rand = rand.Float64
	}
	own := http.Client{}
	if config.HTTPClient != nil {
		own = *config.HTTPClient
	}
	own.CheckRedirect = checkRedirect
	c.http = &own
	unbound := own
	unbound.Timeout = 0
	c.streams = &unbound
	return c, nil
}

func or[T time.Duration | int | int64](value, otherwise T) T {
	if value == 0 {
		return otherwise
	}
	return value
}

func parseBase(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		// The parser's error would repeat the URL, and any secret in it.
		return "", errors.New("forebay: the base URL is malformed")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("forebay: the base URL has to begin with http:// or https:// " +
			"and a host")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("forebay: the base URL is a host and a path alone: " +
			"no user, no query, no fragment")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// maxRedirects bounds a chain of redirects. Proxies use one, for a slash or another prefix.
const maxRedirects = 5

// checkRedirect sends the key to no other host, and doesn't change requests. It follows redirects
// with the same method, scheme and host: 307 and 308, and others for a GET. Any other redirect is
// the answer to the call.
func checkRedirect(next *http.Request, before []*http.Request) error {
	first := before[0]
	if len(before) > maxRedirects || next.Method != first.Method ||
		next.URL.Scheme != first.URL.Scheme || next.URL.Host != first.URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// jobPath returns the path of a job. It refuses an id with anything but letters, digits and
// hyphens, which could name another path.
func jobPath(id string) (string, error) {
	if id == "" || strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-')
	}) {
		return "", fmt.Errorf("forebay: %q isn't a job's id", id)
	}
	return jobsPath + "/" + id, nil
}

const jobsPath = "/v1/jobs"

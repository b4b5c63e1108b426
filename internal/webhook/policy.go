package webhook

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Policy defines where webhooks may go, and when they are tried. Package strictyaml reads its tags,
// which are the keys of the config's file.
type Policy struct {
	// Allow are networks (CIDR) or addresses that may be called although they aren't public.
	// Addresses are checked when the connection is made. Otherwise those that are private, of this
	// host, or translated into such a one are refused.
	Allow []netip.Prefix `key:"allow" max:"1000" absent:"public addresses alone are called"`
	// Ports are those that may be called beside 80 and 443.
	Ports []int `key:"ports" max:"50" range:"1 to 65535" absent:"ports 80 and 443 alone are called"`
	// HTTP is whether http:// is allowed beside https://.
	HTTP bool `key:"http"`
	// Timeout is how long one attempt may take, from resolving the name to the answer's end.
	Timeout time.Duration `key:"timeout" default:"15s" range:"100ms to 1m"`
	// Schedule has the wait after each failed attempt, to which up to a tenth is added at random.
	// After the last wait there is one more attempt. The default is that of Standard Webhooks; []
	// means a single attempt.
	Schedule []time.Duration `key:"schedule" max:"20" range:"100ms to 7d" default:"[5s, 5m, 30m, 2h, 5h, 10h, 14h, 20h, 24h]"`
}

// maxURL bounds the bytes of a callback URL: it is in the job's record, which each look at the job
// reads.
const maxURL = 512

// Errors of Check for URLs that another Policy might permit.
var (
	ErrHTTP    = errors.New("must begin with https://: http:// isn't permitted here")
	ErrAddress = errors.New("must have a public address")
	ErrName    = errors.New("must have a public name: localhost, .internal and the like are " +
		"inner ones")
	ErrPort = errors.New("must have port 443 or 80: others aren't permitted here")
)

// Check returns an error if a URL can't be a callback. It doesn't resolve the host name: the
// address is checked at each attempt. The error is for the client: a sentence without its subject,
// such as "must be ...".
func (p Policy) Check(text string) error {
	if len(text) > maxURL {
		return errors.New("must be a URL of at most 512 bytes")
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			return errors.New("must be a URL of visible ASCII characters: a name in other " +
				"letters is written as xn--..., other bytes as %XX")
		}
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Opaque != "" {
		return errors.New("must be an absolute URL with a host, such as https://host/path")
	}
	switch {
	case u.Scheme == "http" && p.HTTP, u.Scheme == "https":
	case u.Scheme == "http":
		return ErrHTTP
	default:
		return errors.New("must begin with https://")
	}
	if u.User != nil {
		return errors.New("must have no user and no password in it")
	}
	if strings.Contains(text, "#") {
		return errors.New("must have no fragment: no receiver would see it")
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			return errors.New("must have a port from 1 to 65535, or none")
		}
		// On other ports, a POST may have an effect in another protocol.
		if n != 80 && n != 443 && !slices.Contains(p.Ports, n) {
			return ErrPort
		}
	}
	return p.checkHost(u.Hostname())
}

func (p Policy) checkHost(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		if !p.permits(addr) {
			return ErrAddress
		}
		return nil
	}
	// Some resolvers take 127.1, 2130706433 or 0x7f000001 for an address.
	last := strings.TrimSuffix(host, ".")
	last = last[strings.LastIndexByte(last, '.')+1:]
	if _, err := strconv.ParseUint(last, 0, 64); err == nil || last == "" ||
		strings.Trim(last, "0123456789") == "" {
		return errors.New("must have a host that is a name, or an address in its usual form")
	}
	// If any network is allowed, internal names are too. Their addresses must still be permitted.
	if len(p.Allow) == 0 &&
		(last == strings.TrimSuffix(host, ".") || slices.Contains(inner, strings.ToLower(last))) {
		return ErrName
	}
	return nil
}

// inner are the top-level domains without public hosts (IANA's special-use names). A name of one
// label isn't public either.
var inner = []string{"localhost", "local", "internal", "test", "invalid", "onion", "alt", "arpa"}

// retryAt returns the wait after attempt n of a round (from 1), and false if n was the last. Up to
// a tenth is added, so that deliveries that failed together aren't repeated together.
func (p Policy) retryAt(n int64, floor time.Duration) (time.Duration, bool) {
	if n > int64(len(p.Schedule)) {
		return 0, false
	}
	wait := max(p.Schedule[n-1], min(floor, maxRetryAfter))
	return wait + time.Duration(rand.Float64()*0.1*float64(wait)), true
}

// maxRetryAfter bounds a receiver's Retry-After: the longest wait of the usual schedule.
const maxRetryAfter = 24 * time.Hour

// Clients knows the URL at which a client wants to be notified, and the secrets that it shares, the
// newest first. They may change at any time. Safe for concurrent use.
type Clients interface {
	Callback(client string) (url string, secrets []Secret)
}

// Rules check the callbacks that requests ask for. Safe for concurrent use.
type Rules struct {
	Policy  Policy
	Clients Clients
}

// For returns the URL to notify of the end of a client's job: asked, or if that is "", the client's
// own ("" if it has none). Its errors are like those of Check.
func (r Rules) For(client, asked string) (string, error) {
	own, secrets := r.Clients.Callback(client)
	if asked == "" {
		return own, nil
	}
	if len(secrets) == 0 {
		return "", errors.New("can't be had by this client: it has no secret to sign with; " +
			"ask the operator for one")
	}
	if err := r.Policy.Check(asked); err != nil {
		return "", err
	}
	return asked, nil
}

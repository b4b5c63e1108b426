package adminapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/web"
)

// Operators recognizes operators' requests: those with the token, if there is one, and never one
// that a page of another site made a browser send. It guards the admin listeners of both commands.
// Safe for concurrent use.
type Operators struct {
	token     string                       // "": none is needed, and the listener is the loopback's
	digest    [sha256.Size]byte            // of the token
	address   func(r *http.Request) string // by which wrong tokens are counted
	sites     *http.CrossOriginProtection
	refusals  *prometheus.CounterVec
	brake     brake
	log       *slog.Logger
	sometimes rate.Sometimes
}

// Reasons of forebay_operator_refusals_total.
const (
	refusedNoToken    = "no_token"
	refusedWrongToken = "wrong_token"
	refusedBraked     = "too_many_wrong_tokens"
	refusedSite       = "cross_site"
)

// NewOperators returns a check for operators with the token; "": for all who reach the listener,
// which must be the loopback's. Wrong tokens are counted by what address returns for their
// request; nil: by the peer of the connection. It registers its metric with metrics.
func NewOperators(token string, address func(*http.Request) string, metrics prometheus.Registerer,
	log *slog.Logger) *Operators {
	if address == nil {
		address = remoteHost
	}
	o := &Operators{token: token, digest: sha256.Sum256([]byte(token)), address: address,
		sites: http.NewCrossOriginProtection(), log: log,
		sometimes: rate.Sometimes{Interval: time.Second},
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forebay_operator_refusals_total",
			Help: "Requests for the admin API that were refused, by why.",
		}, []string{"reason"})}
	metrics.MustRegister(o.refusals)
	for _, reason := range []string{refusedNoToken, refusedWrongToken, refusedBraked, refusedSite} {
		o.refusals.WithLabelValues(reason)
	}
	return o
}

// Check returns nil for an operator's request, otherwise the problem to answer with. It writes the
// problem's fields into h.
func (o *Operators) Check(h http.Header, r *http.Request) *api.Problem {
	if o.sites.Check(r) != nil || o.token == "" && !loopbackHost(r.Host) {
		// A site whose name points to the loopback is recognized by the Host of its page's
		// requests.
		o.refusals.WithLabelValues(refusedSite).Inc()
		return web.Problem(http.StatusForbidden, api.CodeCrossSite,
			"The admin API can't be used from pages of other sites, "+
				"or under a name that it doesn't have.")
	}
	if o.token == "" {
		return nil
	}
	reason := refusedNoToken
	if given, ok := bearer(r.Header); ok {
		// Digests are compared, so that the time that it takes reveals nothing about the token.
		digest, address := sha256.Sum256([]byte(given)), o.address(r)
		right, wait := o.brake.try(address, time.Now(), func() bool {
			return subtle.ConstantTimeCompare(o.digest[:], digest[:]) == 1
		})
		if right {
			return nil
		}
		reason = refusedWrongToken
		if wait > 0 {
			reason = refusedBraked
		}
		o.sometimes.Do(func() {
			o.log.Warn("operator refused", "reason", reason, "address", address)
		})
		if wait > 0 {
			o.refusals.WithLabelValues(reason).Inc()
			p := web.Problem(http.StatusTooManyRequests, api.CodeInvalidCredentials,
				"Too many wrong admin tokens came from this address.")
			p.RetryAfter = web.WholeSeconds(wait)
			return p
		}
	}
	o.refusals.WithLabelValues(reason).Inc()
	h.Set("WWW-Authenticate", `Bearer realm="forebay-admin"`)
	return web.Problem(http.StatusUnauthorized, api.CodeInvalidCredentials,
		"The admin token is required: send it as Authorization: Bearer <token>.")
}

// Guard passes operators' requests to next, and refuses all others.
func (o *Operators) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := o.Check(w.Header(), r)
		if p == nil {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h["Cache-Control"] = web.NoStore
		h.Set("Content-Type", "application/problem+json")
		if p.RetryAfter > 0 {
			h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
		}
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(p) // a client that has left needs no answer
	})
}

// bearer is the token that a request carries.
func bearer(h http.Header) (token string, ok bool) {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, token != "" && strings.EqualFold(scheme, "Bearer")
}

// loopbackHost reports whether a Host field is an address or localhost, and not a name that another
// party's DNS could resolve.
func loopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	_, err = netip.ParseAddr(host)
	return err == nil
}

// Bounds of wrong tokens from one address: typing mistakes and a scraper with an old token stay
// below, and guessing is hopeless.
const (
	wrongAtOnce = 10
	wrongEvery  = time.Second
	// maxBraked bounds the addresses that are remembered, some 100 bytes each. Beyond it, all new
	// addresses count as one.
	maxBraked = 10_000
)

// brake counts wrong tokens. The zero value has seen none. Safe for concurrent use.
type brake struct {
	mu sync.Mutex
	// until is, by address, when all wrong tokens that came from it are forgotten: wrongEvery for
	// each. Guarded by mu.
	until map[string]time.Time
}

// try reports whether a token is right. It checks the token only if the address has room for a
// wrong one; wait is the time until it has room again. Of many tokens that come at once no more
// than wrongAtOnce are tried.
func (b *brake) try(address string, now time.Time, isRight func() bool) (
	right bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	until, known := b.until[address]
	if !known && len(b.until) >= maxBraked {
		for a, end := range b.until {
			if !end.After(now) {
				delete(b.until, a)
			}
		}
		if len(b.until) >= maxBraked {
			address = ""
			until = b.until[address]
		}
	}
	if until.Before(now) {
		until = now
	}
	if wait = until.Add(wrongEvery).Sub(now) - wrongAtOnce*wrongEvery; wait > 0 {
		return false, wait
	}
	if isRight() {
		return true, 0
	}
	if b.until == nil {
		b.until = map[string]time.Time{}
	}
	b.until[address] = until.Add(wrongEvery)
	return false, 0
}

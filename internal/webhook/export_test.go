package webhook

import (
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/redis/go-redis/v9"
)

// Through makes the sender reach the outbox through another client.
func (s *Sender) Through(rdb redis.UniversalClient) { s.outbox = NewOutbox(rdb) }

// Script returns the script of a step.
func Script(step string) *redis.Script {
	return map[string]*redis.Script{"claim": claimScript, "begin": beginScript, "open": openScript,
		"settle": settleScript}[step]
}

// HoldFor sets how long a claim holds.
func (s *Sender) HoldFor(d time.Duration) { s.guard = d }

// LookEvery sets how late a relay notices a delivery without a wake-up.
func (s *Sender) LookEvery(d time.Duration) { s.look = d }

// Silence sets the silence after which the connection for wake-ups is given up.
func (s *Sender) Silence(d time.Duration) { s.silence = d }

// Trust sets the authorities that sign receivers' certificates.
func (s *Sender) Trust(roots *x509.CertPool) { s.transport = s.Policy.transport(roots, nil) }

// Ask sets the resolver of names.
func (s *Sender) Ask(names *net.Resolver) { s.transport = s.Policy.transport(nil, names) }

// Claim claims deliveries as a relay does.
var Claim = (*Outbox).claim

// Permits reports whether a webhook may go to an address.
func (p Policy) Permits(a netip.Addr) bool { return p.permits(a) }

// TransportOf returns the transport of a sender's requests.
func TransportOf(s *Sender) *http.Transport { return s.transport }

// RetryAfter reads a Retry-After field.
var RetryAfter = retryAfter

// Bounds that tests need.
const (
	MaxPerHost = maxPerHost
	MaxLog     = maxLog
	MaxPutOff  = maxPutOff
)

package webhook

import (
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/redis/go-redis/v9"
)

// Through has the outbox reached by another client.
func (s *Sender) Through(rdb redis.UniversalClient) { s.outbox = NewOutbox(rdb) }

// Script is the script of a step.
func Script(step string) *redis.Script {
	return map[string]*redis.Script{"claim": claimScript, "begin": beginScript, "open": openScript, "settle": settleScript}[step]
}

// HoldFor sets how long a claim holds.
func (s *Sender) HoldFor(d time.Duration) { s.guard = d }

// Trust sets whose certificates receivers may have.
func (s *Sender) Trust(roots *x509.CertPool) { s.transport = s.Policy.transport(roots, nil) }

// Ask sets who looks names up.
func (s *Sender) Ask(names *net.Resolver) { s.transport = s.Policy.transport(nil, names) }

// Claim takes deliveries on as a relay does, and does nothing about them.
var Claim = (*Outbox).claim

// Permits tells whether a webhook may go to an address.
func (p Policy) Permits(a netip.Addr) bool { return p.permits(a) }

// TransportOf is what requests are sent by.
func TransportOf(s *Sender) *http.Transport { return s.transport }

// RetryAfter reads a Retry-After field.
var RetryAfter = retryAfter

// Bounds that tests know of.
const (
	MaxPerHost = maxPerHost
	MaxLog     = maxLog
	MaxPutOff  = maxPutOff
)

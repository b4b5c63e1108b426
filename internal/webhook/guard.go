package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// notPublic are the networks that aren't public, or lead into ones that aren't (IANA's
// special-purpose registries). Of IPv6 only 2000::/3 is public. That excludes loopback, link-local,
// site-local, private, multicast, and IPv4 written as IPv6 by SIIT and NAT64.
var notPublic = prefixes(
	"0.0.0.0/8",         // this host
	"10.0.0.0/8",        // private
	"100.64.0.0/10",     // carriers' NAT, and a cloud's metadata
	"127.0.0.0/8",       // loopback
	"168.63.129.16/32",  // a cloud's agent, though the address is a public one
	"169.254.0.0/16",    // link-local: most clouds' metadata
	"172.16.0.0/12",     // private
	"192.0.0.0/24",      // protocol assignments, and a cloud's metadata
	"192.0.2.0/24",      // documentation
	"192.31.196.0/24",   // AS112: any network may announce it
	"192.52.193.0/24",   // AMT relays
	"192.88.99.0/24",    // 6to4 relays
	"192.168.0.0/16",    // private
	"192.175.48.0/24",   // AS112
	"198.18.0.0/15",     // benchmarks
	"198.51.100.0/24",   // documentation
	"203.0.113.0/24",    // documentation
	"224.0.0.0/4",       // multicast
	"240.0.0.0/4",       // reserved, and broadcast
	"2001::/23",         // protocol assignments: Teredo, AMT, AS112, ORCHID
	"2001:db8::/32",     // documentation
	"2002::/16",         // 6to4: any IPv4 address
	"2620:4f:8000::/48", // AS112
	"3fff::/20",         // documentation
)

var public6 = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// permits reports whether a webhook may go to an address.
func (p Policy) permits(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	for _, allowed := range p.Allow {
		if allowed.Contains(a) {
			return true
		}
	}
	for _, denied := range notPublic {
		if denied.Contains(a) {
			return false
		}
	}
	return a.Is4() || public6.Contains(a) && !isatap(a)
}

// isatap reports whether an IPv6 address ends in the interface id of ISATAP (RFC 5214, section
// 6.1), through which a tunnel leads to an IPv4 address.
func isatap(a netip.Addr) bool {
	b := a.As16()
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

var errAddress = errors.New("the address isn't permitted")

// guard checks each address right before it is dialed, so a name that has changed its address since
// the URL was checked is caught.
func (p Policy) guard(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !p.permits(to.Addr()) {
		return errAddress
	}
	return nil
}

// Bounds of an answer. Only its status and Retry-After are used.
const (
	maxAnswer       = 1 << 10
	maxAnswerHeader = 16 << 10
)

// transport returns a transport that only dials permitted addresses. It ignores proxies from the
// environment, because the proxy's address would be checked instead. names resolves names; nil: the
// system's resolver.
func (p Policy) transport(roots *x509.CertPool, names *net.Resolver) *http.Transport {
	dialer := &net.Dialer{Control: p.guard, Resolver: names}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHeader,
		MaxIdleConns:           100,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        30 * time.Second,
	}
}

// Words of an attempt that had no answer. They show the operator where to look, and don't reveal
// what is behind an address.
const (
	wordAddress    = "address_not_allowed"
	wordURL        = "url_not_allowed"
	wordSecret     = "no_secret"
	wordTimeout    = "timeout"
	wordRefused    = "refused"
	wordDNS        = "dns"
	wordTLS        = "tls"
	wordConnection = "connection" // it broke, or the answer wasn't HTTP
)

// word classifies the error of a request.
func word(err error) string {
	var (
		dns       *net.DNSError
		unknown   x509.UnknownAuthorityError
		wrongName x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		alert     tls.AlertError
		network   net.Error
	)
	switch {
	case errors.Is(err, errAddress):
		return wordAddress
	case errors.As(err, &dns):
		return wordDNS
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return wordTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return wordRefused
	case errors.As(err, &unknown), errors.As(err, &wrongName), errors.As(err, &invalid),
		errors.As(err, &verify), errors.As(err, &record), errors.As(err, &alert):
		return wordTLS
	}
	return wordConnection
}

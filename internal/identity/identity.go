// Package identity says who asks: the owner of an API key, or an address where callers
// without a key are allowed.
//
// A request proves who it is with one key, in "Authorization: Bearer <key>" or in
// "X-API-Key: <key>". A key that is presented must be known: a blank, malformed or
// unknown one is an error and never falls back to "anonymous", so nobody ever shares a
// client with others by sending something empty. A request without any key belongs to
// its address, where the config names a tier for such callers.
//
// Where the caller is (its country) is the word of a trusted proxy, or else what a database says of its address. A caller
// can't choose it: a header of its own making is never believed.
//
// Keys are known only by their SHA-256 digest. A plain hash is right for keys of many
// random bits; for a password that people choose it would not be.
//
// # Callers without a key
//
// Callers without a key are counted by address, and nothing tells them apart: strangers share
// addresses, and people move between them. So such a caller's job belongs to the bearer of its id,
// which is random (UUID version 4). An Idempotency-Key of such a caller derives the id with a
// secret of the deployment (fb:secret, made once). Callers without a key have no list of jobs, and
// get no stored answers except those shared with their tier or with all clients.
package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/netip"
)

// Client is who asks. IDs of keyed and anonymous clients never meet: a configured name
// has no colon, an anonymous id begins with "ip:". Every field is of bounded length.
type Client struct {
	ID        string // the configured name, or "ip:" and Address
	Name      string // the configured name; "" for an anonymous caller
	Tier      string
	Anonymous bool   // no key was presented
	Address   string // what limits per ip count: the IPv4 address, or the IPv6 network such as 2001:db8::/64
	Country   string // where the address is: upper-case ISO 3166-1 alpha-2; "" where nobody trusted knows
}

// Digest is the SHA-256 of an API key.
type Digest = [sha256.Size]byte

// Registered is a client that the config knows.
type Registered struct {
	Name string // unique, no colon
	Tier string
	Keys []Digest // any of them is right, so that a new key can be rolled out before the old one goes
}

// Config is what an Identifier knows. The zero value knows nobody and trusts no proxy.
type Config struct {
	Clients   []Registered
	Anonymous string // tier of callers without a key; "": a key is required

	// TrustedProxies are the networks whose word about the caller's address is believed.
	TrustedProxies []netip.Prefix
	// Header is the one header that trusted proxies write: "Forwarded" (RFC 7239), or any
	// other name for a header with the syntax of X-Forwarded-For. "": X-Forwarded-For.
	// Only one is ever read: a caller can write whatever header the proxies don't.
	Header string
	// IPv6Prefix is how many leading bits of an IPv6 address make one caller; 0 stands for
	// 64, the smallest network that is given to one user, who then owns all its addresses.
	IPv6Prefix int

	// Untrusted is told of a request whose peer has a private address, isn't among TrustedProxies and sends
	// Header: most likely a proxy that was forgotten. It must be quick and safe for concurrent use; nil: nobody is told.
	Untrusted func(peer netip.Addr, header string)

	// CountryHeader is the header in which trusted proxies tell the caller's country, such as "CF-IPCountry"; "": none. It is
	// believed only where the connection's peer is in TrustedProxies, which must set it or remove it: one that
	// passes the caller's own on lets it choose. What isn't the code of a country (XX, T1, EU) says nothing.
	CountryHeader string
	// Countries is asked where the header says nothing; nil: nobody is. Its word, too, counts only where it is a country's code.
	Countries CountryDatabase
}

// Errors of Identify. None carries anything of what the caller sent.
var (
	ErrNoKey         = errors.New("an API key is required: send it as Authorization: Bearer <key>")
	ErrUnknownKey    = errors.New("the API key is not known")
	ErrTwoKeys       = errors.New("the request carries two different keys: send one")
	ErrMalformedKey  = errors.New("the API key is empty or has characters other than visible ASCII")
	ErrKeyTooLong    = errors.New("the API key is longer than 512 bytes")
	ErrUnknownScheme = errors.New("the Authorization header is not understood: send Authorization: Bearer <key>")
)

// Identifier tells callers apart. It is immutable and safe for concurrent use.
type Identifier struct {
	keys      map[[8]byte][]owner // by the first bytes of the digest
	anonymous string
	trusted   []netip.Prefix
	header    string
	forwarded bool
	bits      int
	untrusted func(peer netip.Addr, header string) // nil: nobody wants to know

	countryHeader string
	countries     CountryDatabase
}

type owner struct {
	digest Digest
	client *Registered
}

// New returns an Identifier for a config that was checked: names and digests are unique.
func New(c Config) *Identifier {
	i := &Identifier{
		keys:      make(map[[8]byte][]owner),
		anonymous: c.Anonymous,
		header:    http.CanonicalHeaderKey(c.Header),
		bits:      c.IPv6Prefix,
		untrusted: c.Untrusted,

		countryHeader: http.CanonicalHeaderKey(c.CountryHeader),
		countries:     c.Countries,
	}
	if i.header == "" {
		i.header = "X-Forwarded-For"
	}
	i.forwarded = i.header == "Forwarded"
	if i.bits == 0 {
		i.bits = 64
	}
	for _, p := range c.TrustedProxies {
		i.trusted = append(i.trusted, unmap(p))
	}
	for _, client := range c.Clients {
		for _, d := range client.Keys {
			at := [8]byte(d[:8])
			i.keys[at] = append(i.keys[at], owner{d, &client})
		}
	}
	return i
}

// Identify says who sent r. Its errors are those named above, with which the Client has its
// Address and nothing else, so that failed attempts can be counted against that; and
// ErrNoAddress, with which it has nothing.
func (i *Identifier) Identify(r *http.Request) (Client, error) {
	addr, proxied, err := i.address(r)
	if err != nil {
		return Client{}, err
	}
	c := Client{Address: i.network(addr)}

	key, presented, err := credentials(r.Header)
	switch {
	case err != nil:
		return c, err
	case presented:
		known := i.lookup(key)
		if known == nil {
			return c, ErrUnknownKey
		}
		c.ID, c.Name, c.Tier = known.Name, known.Name, known.Tier
		c.Country = i.country(r, addr, proxied)
		return c, nil
	case i.anonymous == "":
		return c, ErrNoKey
	}
	c.ID, c.Tier, c.Anonymous = "ip:"+c.Address, i.anonymous, true
	c.Country = i.country(r, addr, proxied)
	return c, nil
}

// lookup returns the owner of a key, or nil. Digests are compared in constant time past the
// bytes that index the map; of those a timing could tell at most how a digest begins, which
// doesn't help to find a key.
func (i *Identifier) lookup(key string) *Registered {
	d := sha256.Sum256([]byte(key))
	candidates := i.keys[[8]byte(d[:8])]
	if len(candidates) == 0 {
		// A key that is not there costs a comparison too.
		candidates = []owner{{}}
	}
	var found *Registered
	for _, o := range candidates {
		if subtle.ConstantTimeCompare(o.digest[:], d[:]) == 1 {
			found = o.client
		}
	}
	return found
}

// Package identity determines the caller of a request: the owner of an API key, or an address if
// callers without a key are allowed.
//
// A request carries one key, in "Authorization: Bearer <key>" or in "X-API-Key: <key>". A key that
// is presented must be known: a blank, malformed or unknown one is an error, and never counts as
// anonymous. So no two callers share a client by sending something empty. A request without a key
// belongs to its address, if the config names a tier for such callers.
//
// The caller's country comes from a trusted proxy, or otherwise from a database of addresses. A
// caller can't choose it: its own headers are never believed.
//
// Keys are stored only as their SHA-256 digest. A plain hash is safe for keys of many random bits,
// though not for passwords chosen by people.
//
// # Callers without a key
//
// Callers without a key are counted by address, and can't be distinguished further: strangers share
// addresses, and people move between them. So such a caller's job belongs to the bearer of its id,
// which is random (UUID version 4). An Idempotency-Key of such a caller derives the id with a
// secret of the deployment (fb:secret, made once). Callers without a key have no list of jobs, and
// get no stored answers except those shared with their tier or with all clients.
package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
)

// Client is the caller of a request. The IDs of keyed and of anonymous clients never collide: a
// configured name has no colon, and an anonymous id begins with "ip:". Every field is of bounded
// length.
type Client struct {
	ID        string // the configured name, or "ip:" and Address
	Name      string // the configured name; "" for an anonymous caller
	Tier      string
	Anonymous bool   // no key was presented
	Address   string // what limits per ip count: an IPv4 address, or a network 2001:db8::/64
	Country   string // of the address: upper-case ISO 3166-1 alpha-2; "" if unknown
}

// Digest is the SHA-256 of an API key.
type Digest [sha256.Size]byte

// Redacted returns the beginning of the digest, for package strictyaml.
func (d Digest) Redacted() string { return hex.EncodeToString(d[:4]) + "…" }

// UnmarshalText reads 64 hexadecimal digits. Its error doesn't show the text.
func (d *Digest) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(d) {
		return errors.New(`must be 64 hexadecimal digits: printf %s "$KEY" | sha256sum`)
	}
	*d = Digest(b)
	return nil
}

// Registered is a client of the config.
type Registered struct {
	Name string // unique, no colon
	Tier string
	Keys []Digest // each is valid, so that a new key can be introduced before an old one is removed
}

// Config is the configuration of an Identifier. The zero value knows no clients and trusts no
// proxies.
type Config struct {
	Clients   []Registered
	Anonymous string // tier of callers without a key; "": a key is required

	// TrustedProxies are the networks whose headers about the caller's address are believed.
	TrustedProxies []netip.Prefix
	// Header is the one header that trusted proxies write: "Forwarded" (RFC 7239), or any other
	// name for a header with the syntax of X-Forwarded-For. "" means X-Forwarded-For. No other
	// header is read, because a caller can write any header that the proxies don't.
	Header string
	// IPv6Prefix is how many leading bits of an IPv6 address identify one caller. 0 means 64, the
	// smallest network that one user is given, with all of its addresses.
	IPv6Prefix int

	// Untrusted is called for a request with Header from a private address that isn't in
	// TrustedProxies: most likely that of a proxy missing from the config. It must be fast and safe
	// for concurrent use. It may be nil.
	Untrusted func(peer netip.Addr, header string)

	// CountryHeader is the header in which trusted proxies send the caller's country, such as
	// "CF-IPCountry"; "" means none. It is believed only if the connection's peer is in
	// TrustedProxies. The proxy must set or remove it: otherwise the caller can choose its country.
	// Values that aren't the code of a country (XX, T1, EU) are ignored.
	CountryHeader string
	// Countries is asked if the header gives no country; it may be nil. Its answer, too, counts
	// only if it is a country's code.
	Countries CountryDatabase
}

// Errors of Identify. None contains anything that the caller sent.
var (
	ErrNoKey         = errors.New("an API key is required: send it as Authorization: Bearer <key>")
	ErrUnknownKey    = errors.New("the API key is not known")
	ErrTwoKeys       = errors.New("the request carries two different keys: send one")
	ErrMalformedKey  = errors.New("the API key is empty or has characters other than visible ASCII")
	ErrKeyTooLong    = errors.New("the API key is longer than 512 bytes")
	ErrUnknownScheme = errors.New("the Authorization header is not understood: " +
		"send Authorization: Bearer <key>")
)

// Identifier identifies callers. It is immutable and safe for concurrent use.
type Identifier struct {
	keys      map[[8]byte][]owner // by the first bytes of the digest
	anonymous string
	trusted   []netip.Prefix
	header    string
	forwarded bool
	bits      int
	untrusted func(peer netip.Addr, header string) // may be nil

	countryHeader string
	countries     CountryDatabase
}

type owner struct {
	digest Digest
	client *Registered
}

// New returns an Identifier for a valid config: its names and digests are unique.
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

// Identify returns the caller of r. Its errors are those above and ErrNoAddress. With ErrNoAddress
// the Client is empty. With the others it holds only its Address, by which failed requests can be
// counted.
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

// lookup returns the owner of a key, or nil. Digests are compared in constant time beyond the bytes
// that index the map. From those, timing could reveal at most how a digest begins, which doesn't
// help to find a key.
func (i *Identifier) lookup(key string) *Registered {
	d := sha256.Sum256([]byte(key))
	candidates := i.keys[[8]byte(d[:8])]
	if len(candidates) == 0 {
		// An unknown key costs a comparison too.
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

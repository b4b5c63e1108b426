package config

import (
	"crypto/sha256"
	"fmt"
)

// Bounds of a weight: beyond them the light ones all but never get their turn.
const minWeight, maxWeight = 0.001, 1000

func (c *Config) checkIdentity(r *report) {
	id := c.Identity
	if id.Anonymous == "" && len(id.Clients) == 0 && id.ClientsFile == "" && !r.given("identity.anonymous") {
		r.errorf("identity", "nobody may ask; set identity.anonymous to the tier of callers without a key, or list identity.clients")
	}
	if id.Anonymous != "" {
		r.known("identity.anonymous", id.Anonymous, "tier", names(c.Tiers))
	}
	if header := id.CountryHeader; header != "" {
		switch {
		case !headerName.MatchString(header):
			r.errorf("identity.country_header", "%s isn't a header name", r.shown("identity.country_header", header))
		case len(c.HTTP.TrustedProxies) == 0:
			r.errorf("identity.country_header", "is believed only from proxies that are trusted, and none is; name them in http.trusted_proxies, or leave this out")
		}
	}
	newRoster(r, "").clients(c, "identity.clients", id.Clients)
}

// knowsCountries reports whether anything tells a caller's country.
func (c *Config) knowsCountries() bool {
	return c.Identity.CountryHeader != "" || c.Identity.CountryDatabase != ""
}

// roster holds clients of one or more lists against each other.
type roster struct {
	*report
	of     string            // said after a place: " of the config" where that is another file
	named  map[string]string // client: its place
	owners map[Digest]string // key: its place
}

func newRoster(r *report, of string) *roster {
	return &roster{report: r, of: of, named: map[string]string{}, owners: map[Digest]string{}}
}

// add takes clients that were checked elsewhere.
func (r *roster) add(key string, clients []Client) {
	for n, client := range clients {
		at := fmt.Sprintf("%s[%d]", key, n)
		r.named[client.Name] = at + r.of
		for i, digest := range client.KeySHA256 {
			r.owners[digest] = fmt.Sprintf("%s.key_sha256[%d]%s", at, i, r.of)
		}
	}
}

func (r *roster) clients(c *Config, key string, clients []Client) {
	for n, client := range clients {
		at := fmt.Sprintf("%s[%d]", key, n)
		r.nameKey(at+".name", client.Name)
		if other, twice := r.named[client.Name]; twice {
			r.errorf(at+".name", "%s is also the name of %s; names are unique, so give one client both keys or another name", r.shown(at+".name", client.Name), other)
		}
		r.named[client.Name] = at
		if client.Tier == "" {
			r.errorf(at+".tier", "is required; known tiers: %s", list(names(c.Tiers)))
		} else {
			r.known(at+".tier", client.Tier, "tier", names(c.Tiers))
		}
		if client.Weight != 0 || r.given(at+".weight") {
			r.number(at+".weight", client.Weight, minWeight, maxWeight)
		}
		r.digests(at+".key_sha256", client.KeySHA256)
		client.Callback.check(r.report, at+".callback")
	}
}

func (r *roster) digests(key string, digests []Digest) {
	if len(digests) == 0 {
		r.errorf(key, `needs the SHA-256 of at least one key, in a list: printf %%s "$KEY" | sha256sum`)
	}
	for i, digest := range digests {
		at := fmt.Sprintf("%s[%d]", key, i)
		if digest == sha256.Sum256(nil) {
			r.errorf(at, `is the digest of an empty key, which nobody may have; was the variable in printf %%s "$KEY" | sha256sum empty?`)
		}
		if other, twice := r.owners[digest]; twice {
			r.errorf(at, "is also %s; one key belongs to one client", other)
		}
		r.owners[digest] = at
	}
}

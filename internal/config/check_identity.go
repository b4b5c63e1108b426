package config

import (
	"crypto/sha256"
	"fmt"

	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/strictyaml"
)

func (c *Config) checkIdentity(r *strictyaml.Report) {
	id := c.Identity
	if id.Anonymous == "" && len(id.Clients) == 0 && id.ClientsFile == "" &&
		!r.Given("identity.anonymous") {
		r.Errorf("identity", "nobody may ask; set identity.anonymous to the tier of callers "+
			"without a key, or list identity.clients")
	}
	if id.Anonymous != "" {
		r.Known("identity.anonymous", id.Anonymous, "tier", names(c.Tiers))
	}
	if header := id.CountryHeader; header != "" {
		switch {
		case !headerName.MatchString(header):
			r.Errorf("identity.country_header", "%s isn't a header name",
				r.Shown("identity.country_header", header))
		case len(c.HTTP.TrustedProxies) == 0:
			r.Errorf("identity.country_header", "is believed only from proxies that are trusted, "+
				"and none is; name them in http.trusted_proxies, or leave this out")
		}
	}
	newRoster(r, "").clients(c, "identity.clients", id.Clients)
}

// knowsCountries reports whether the config has a source of callers' countries.
func (c *Config) knowsCountries() bool {
	return c.Identity.CountryHeader != "" || c.Identity.CountryDatabase != ""
}

// roster checks clients of one or more lists against each other.
type roster struct {
	*strictyaml.Report
	// Follows a key in messages: " of the config" if that is another file.
	of     string
	named  map[string]string          // client: its place
	owners map[identity.Digest]string // key: its place
}

func newRoster(r *strictyaml.Report, of string) *roster {
	return &roster{Report: r, of: of, named: map[string]string{},
		owners: map[identity.Digest]string{}}
}

// add adds clients that were checked before.
func (r *roster) add(key string, clients []Client) {
	for n, client := range clients {
		at := strictyaml.At(key, n)
		r.named[client.Name] = at + r.of
		for i, digest := range client.KeySHA256 {
			r.owners[digest] = fmt.Sprintf("%s.key_sha256[%d]%s", at, i, r.of)
		}
	}
}

func (r *roster) clients(c *Config, key string, clients []Client) {
	for n, client := range clients {
		at := strictyaml.At(key, n)
		checkName(r.Report, at+".name", client.Name)
		if other, twice := r.named[client.Name]; twice {
			r.Errorf(at+".name", "%s is also the name of %s; names are unique, so give one client "+
				"both keys or another name", r.Shown(at+".name", client.Name), other)
		}
		r.named[client.Name] = at
		if client.Tier == "" {
			r.Errorf(at+".tier", "is required; known tiers: %s", strictyaml.List(names(c.Tiers)))
		} else {
			r.Known(at+".tier", client.Tier, "tier", names(c.Tiers))
		}
		r.digests(at+".key_sha256", client.KeySHA256)
		client.Callback.check(r.Report, at+".callback")
	}
}

func (r *roster) digests(key string, digests []identity.Digest) {
	if len(digests) == 0 {
		r.Errorf(key,
			`needs the SHA-256 of at least one key, in a list: printf %%s "$KEY" | sha256sum`)
	}
	for i, digest := range digests {
		at := strictyaml.At(key, i)
		if digest == sha256.Sum256(nil) {
			r.Errorf(at, `is the digest of an empty key, which nobody may have; `+
				`was the variable in printf %%s "$KEY" | sha256sum empty?`)
		}
		if other, twice := r.owners[digest]; twice {
			r.Errorf(at, "is also %s; one key belongs to one client", other)
		}
		r.owners[digest] = at
	}
}

package config

import (
	"crypto/sha256"

	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/strictyaml"
)

func (c *Config) checkIdentity(r *report) {
	id := c.Identity
	if id.Anonymous != "" {
		r.Known("identity.anonymous", id.Anonymous, "tier", names(c.Tiers))
	} else if len(id.Clients) == 0 && id.ClientsFile == "" && !r.Given("identity.anonymous") {
		r.Errorf("identity", "nobody may ask; set identity.anonymous to the tier of callers "+
			"without a key, or list identity.clients")
	}
	const header = "identity.country_header"
	switch {
	case id.CountryHeader == "":
	case !headerName.MatchString(id.CountryHeader):
		r.Errorf(header, "%s isn't a header name", r.Shown(header, id.CountryHeader))
	case len(c.HTTP.TrustedProxies) == 0:
		r.Errorf(header, "is believed only from proxies that are trusted, and none is; name them "+
			"in http.trusted_proxies, or leave this out")
	}
	newRoster(r, "").check(c, "identity.clients", id.Clients)
}

// knowsCountries reports whether the config has a source of callers' countries.
func (c *Config) knowsCountries() bool {
	return c.Identity.CountryHeader != "" || c.Identity.CountryDatabase != ""
}

// roster checks clients of one or more lists against each other.
type roster struct {
	*report
	of     string                     // after a place: " of the config", if that is another file
	named  map[string]string          // client: its place
	owners map[identity.Digest]string // key: its place
}

func newRoster(r *report, of string) *roster {
	return &roster{r, of, map[string]string{}, map[identity.Digest]string{}}
}

// add adds clients that were checked before.
func (r *roster) add(key string, clients []Client) {
	for n, client := range clients {
		at := strictyaml.At(key, n)
		r.named[client.Name] = at + r.of
		for i, digest := range client.KeySHA256 {
			r.owners[digest] = strictyaml.At(at+".key_sha256", i) + r.of
		}
	}
}

// check checks the clients of the list at key, and adds them.
func (r *roster) check(c *Config, key string, clients []Client) {
	for n, client := range clients {
		at := strictyaml.At(key, n)
		name, tier := at+".name", at+".tier"
		checkName(r.report, name, client.Name)
		if other, twice := r.named[client.Name]; twice {
			r.Errorf(name, "%s is also the name of %s; names are unique, so give one client both "+
				"keys or another name", r.Shown(name, client.Name), other)
		}
		r.named[client.Name] = at
		if client.Tier == "" {
			r.Errorf(tier, "is required; known tiers: %s", strictyaml.List(names(c.Tiers)))
		} else {
			r.Known(tier, client.Tier, "tier", names(c.Tiers))
		}
		r.digests(at+".key_sha256", client.KeySHA256)
		client.Callback.check(r.report, at+".callback")
	}
}

const digestOf = `printf %s "$KEY" | sha256sum`

func (r *roster) digests(key string, digests []identity.Digest) {
	if len(digests) == 0 {
		r.Errorf(key, "needs the SHA-256 of at least one key, in a list: %s", digestOf)
	}
	for i, digest := range digests {
		at := strictyaml.At(key, i)
		if digest == sha256.Sum256(nil) {
			r.Errorf(at, "is the digest of an empty key, which nobody may have; was the variable "+
				"in %s empty?", digestOf)
		}
		if other, twice := r.owners[digest]; twice {
			r.Errorf(at, "is also %s; one key belongs to one client", other)
		}
		r.owners[digest] = at
	}
}

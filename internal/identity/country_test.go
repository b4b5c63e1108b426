package identity

import (
	"net/netip"
	"strings"
	"testing"
)

const (
	cfIPCountry = "CF-IPCountry"
	proxy       = "10.0.0.1:4711"  // trusted
	stranger    = "192.0.2.9:4711" // not trusted
)

// placed is a CountryDatabase: address → country.
type placed map[string]string

func (p placed) Country(a netip.Addr) string { return p[a.String()] }

// located returns an Identifier that trusts 10.0.0.0/8 on countries.
func located(d CountryDatabase) *Identifier {
	return New(Config{
		Clients:        []Registered{{Name: "acme", Tier: "pro", Keys: []Digest{digest("right")}}},
		Anonymous:      "free",
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		CountryHeader:  "cf-ipcountry",
		Countries:      d,
	})
}

func countryFor(t *testing.T, i *Identifier, peer string, lines ...string) string {
	t.Helper()
	c, err := i.Identify(request(peer, lines...))
	if err != nil {
		t.Fatal(err)
	}
	return c.Country
}

// C38: a caller's claim about itself is not believed, here about its country.
func TestACallerCannotChooseItsCountry(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for name, c := range map[string]struct {
		i    *Identifier
		peer string
		want string
	}{
		"peer not trusted":           {located(nil), stranger, ""},
		"peer not trusted, database": {located(placed{"192.0.2.9": "DE"}), stranger, "DE"},
		"no proxy trusted": {New(Config{Anonymous: "free", CountryHeader: cfIPCountry}),
			proxy, ""},
		"no header named": {New(Config{Anonymous: "free", TrustedProxies: trusted}),
			proxy, ""},
		"another header named": {New(Config{Anonymous: "free", TrustedProxies: trusted,
			CountryHeader: "X-Country"}), proxy, ""},
	} {
		// A forwarded address in a trusted network makes no peer trusted.
		if got := countryFor(t, c.i, c.peer, "CF-IPCountry: FR",
			"X-Forwarded-For: 10.0.0.7"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	i := located(nil)
	for _, lines := range [][]string{
		{"CF-IPCountry: FR", "CF-IPCountry: DE"},
		{"CF-IPCountry: FR, DE"},
		{"CF-IPCountry: FR,CH", "CF-IPCountry: US ,\tDE"},
	} {
		if got := countryFor(t, i, proxy, lines...); got != "DE" {
			t.Errorf("%q: %q, want the proxy's entry at the end", lines, got)
		}
	}
}

func TestATrustedProxysCountryIsAnUpperCaseCodeOrNone(t *testing.T) {
	t.Parallel()
	i := located(nil)
	for word, want := range map[string]string{
		"DE": "DE", "de": "DE", "dE": "DE", " gb\t": "GB", "XK": "XK", "xk": "XK", "QA": "QA",
		"AX": "AX", "UA": "UA", "EG": "EG", "ZW": "ZW",
		"XX": "", "xx": "", "T1": "", "t1": "", "A1": "", "A2": "", "O1": "", "EU": "", "eu": "",
		"EZ": "", "AP": "", "UN": "", "AA": "", "ZZ": "",
		"QM": "", "QZ": "", "XA": "", "XZ": "",
		"": "", "D": "", "DEU": "", "Germany": "", "D E": "", "-": "", "??": "", "D\x00": "",
		"\u00c9": "", "\u212a": "", "@[": "", "`{": "", "DE,": "", "DE;": "",
		strings.Repeat("DE", 1<<16): "",
	} {
		if got := countryFor(t, i, proxy, "CF-IPCountry: "+word); got != want {
			t.Errorf("%.40q: %q, want %q", word, got, want)
		}
	}
	if got := countryFor(t, i, proxy); got != "" {
		t.Errorf("without the header: %q", got)
	}
}

func TestTheDatabaseIsAskedIfTheHeaderNamesNoCountry(t *testing.T) {
	t.Parallel()
	i := located(placed{
		"198.51.100.1": "DE", "198.51.100.2": "EU", "198.51.100.3": "gb",
		"2001:db8::7": "JP", "10.0.0.1": "CH",
	})
	for _, c := range []struct {
		addr, header, want string
	}{
		{"198.51.100.1", "FR", "FR"},
		{"198.51.100.1", "XX", "DE"},
		{"198.51.100.1", "", "DE"},
		{"198.51.100.2", "T1", ""}, // no country either
		{"198.51.100.3", "", "GB"},
		{"198.51.100.4", "", ""},
		{"2001:db8::7", "", "JP"}, // looked up by the address itself, not by its network's first
		{"", "", "CH"},
	} {
		lines := []string{"CF-IPCountry: " + c.header}
		if c.addr != "" {
			lines = append(lines, "X-Forwarded-For: "+c.addr)
		}
		if got := countryFor(t, i, proxy, lines...); got != c.want {
			t.Errorf("%s, header %q: %q, want %q", c.addr, c.header, got, c.want)
		}
	}
}

func TestOnlyIdentifiedClientsHaveACountry(t *testing.T) {
	t.Parallel()
	i := located(placed{"10.0.0.1": "CH"})
	for _, key := range []string{"", "right"} {
		lines := []string{"CF-IPCountry: FR"}
		if key != "" {
			lines = append(lines, "X-API-Key: "+key)
		}
		if got := countryFor(t, i, proxy, lines...); got != "FR" {
			t.Errorf("key %q: %q, want FR", key, got)
		}
	}
	got, err := i.Identify(request(proxy, "CF-IPCountry: FR", "X-API-Key: wrong"))
	if want := (Client{Address: "10.0.0.1"}); err == nil || got != want {
		t.Errorf("unknown key: %+v, %v; want only the address", got, err)
	}
}

package identity

import (
	"net/http"
	"net/netip"
	"strings"
)

// CountryDatabase finds the countries of addresses; *Countries implements it. It must be safe for
// concurrent use, and fast: it is called within a request.
type CountryDatabase interface {
	// Country returns the upper-case ISO 3166-1 alpha-2 code of a's country, or "" if it isn't
	// known.
	Country(a netip.Addr) string
}

// country returns the country of the caller at addr: from a trusted proxy, otherwise from the
// database, otherwise "". proxied says whether the connection's peer is a trusted proxy; from any
// other peer, the header is the caller's own claim.
func (i *Identifier) country(r *http.Request, addr netip.Addr, proxied bool) string {
	if proxied && i.countryHeader != "" {
		if c := countryOf(r.Header[i.countryHeader]); c != "" {
			return c
		}
	}
	if i.countries == nil {
		return ""
	}
	return country(i.countries.Country(addr))
}

// countryOf parses the lines of a country header. Like those of the address, they form one list,
// whose end the trusted peer wrote. Earlier entries may be the caller's own, passed on.
func countryOf(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	_, last, _ := lastEntry(lines[len(lines)-1], false)
	return country(strings.Trim(last, " \t"))
}

// country returns the upper-case form of a country's ISO 3166-1 alpha-2 code, and "" for any other
// text. There are at most 676 values, so headers can create only so many counts of a limit.
//
// These are not countries, though proxies and databases send them:
//
//	A1 A2 O1 T1 T2   anonymous proxy, satellite, other, Tor: ways of connecting
//	EU EZ AP UN      Europe, the Eurozone, Asia and the Pacific, the United Nations
//	XX ZZ            unknown; ISO reserves AA, QM to QZ, XA to XZ and ZZ for private use
//
// XK is among the latter, but stands for Kosovo everywhere.
func country(code string) string {
	if len(code) != 2 {
		return ""
	}
	c := [2]byte{upper(code[0]), upper(code[1])}
	for _, b := range c {
		if b < 'A' || b > 'Z' {
			return ""
		}
	}
	switch s := string(c[:]); {
	case s == "XK":
		return s
	case s == "EU", s == "EZ", s == "AP", s == "UN",
		s == "AA", s == "ZZ", c[0] == 'X', c[0] == 'Q' && c[1] >= 'M':
		return ""
	default:
		return s
	}
}

// IsCountry reports whether a code is one that Client.Country may be.
func IsCountry(code string) bool { return code != "" && country(code) == code }

func upper(b byte) byte {
	if b >= 'a' && b <= 'z' {
		return b - 'a' + 'A'
	}
	return b
}

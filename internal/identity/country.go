package identity

import (
	"net/http"
	"net/netip"
	"strings"
)

// CountryDatabase knows the countries of addresses; *Countries is one. Safe for concurrent use, and quick: it is asked
// within a request.
type CountryDatabase interface {
	// Country is the upper-case ISO 3166-1 alpha-2 code of where a is, or "" where that isn't known.
	Country(a netip.Addr) string
}

// country says where the caller at addr is: the word of a trusted proxy, else the database's, else "". proxied tells that the
// connection's peer is a trusted proxy; anybody else's header is only what the caller would like to be.
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

// countryOf reads the lines of a country header. Like the address's, they are one list, and the trusted peer wrote its end: what
// stands before may be the caller's own, passed on.
func countryOf(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	_, last, _ := lastEntry(lines[len(lines)-1], false)
	return country(strings.Trim(last, " \t"))
}

// country returns the upper-case form of a country's ISO 3166-1 alpha-2 code, and "" for everything else: at most 676 values, so
// no header can mint limits without end.
//
// Not countries, though proxies and databases send them:
//
//	A1 A2 O1 T1 T2   anonymous proxy, satellite, other, Tor: a way of connecting, anywhere
//	EU EZ AP UN      Europe, the Eurozone, Asia and the Pacific, the United Nations: many countries
//	XX ZZ            unknown; ISO leaves AA, QM to QZ, XA to XZ and ZZ to anybody's own use
//
// XK is among the latter, and stands for Kosovo everywhere.
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

func upper(b byte) byte {
	if b >= 'a' && b <= 'z' {
		return b - 'a' + 'A'
	}
	return b
}

package identity_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"

	"github.com/forebay/forebay/internal/identity"
)

// record returns the record of a network in a database of countries; with "", one without a
// country.
func record(code string) mmdbtype.Map {
	r := mmdbtype.Map{
		"continent": mmdbtype.Map{"code": mmdbtype.String("EU")},
		// not where the address is
		"registered_country": mmdbtype.Map{"iso_code": mmdbtype.String("US")},
	}
	if code != "" {
		r["country"] = mmdbtype.Map{"geoname_id": mmdbtype.Uint32(1),
			"iso_code": mmdbtype.String(code)}
	}
	return r
}

// database returns the bytes of a MaxMind DB of a kind, for IPv4 alone or for both: network →
// record.
func database(t *testing.T, kind string, version int,
	networks map[string]mmdbtype.DataType) []byte {
	t.Helper()
	tree, err := mmdbwriter.New(mmdbwriter.Options{
		DatabaseType: kind, IPVersion: version, IncludeReservedNetworks: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for network, value := range networks {
		_, n, err := net.ParseCIDR(network)
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Insert(n, value); err != nil {
			t.Fatal(err)
		}
	}
	var file bytes.Buffer
	if _, err := tree.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// world returns a database of countries.
func world(t *testing.T, version int) []byte {
	t.Helper()
	networks := map[string]mmdbtype.DataType{
		"192.0.2.0/24":    record("DE"),
		"198.51.100.0/25": record("FR"),
		"203.0.113.0/24":  record(""),
	}
	if version == 6 {
		networks["2001:db8::/48"] = record("JP")
	}
	return database(t, "GeoLite2-Country", version, networks)
}

func file(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, text []byte) *identity.Countries {
	t.Helper()
	c, err := identity.OpenCountries(file(t, "countries.mmdb", text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheDatabaseKnowsWhereAnAddressIs(t *testing.T) {
	t.Parallel()
	both, v4 := open(t, world(t, 6)), open(t, world(t, 4))
	for addr, want := range map[string]string{
		"192.0.2.1":          "DE",
		"192.0.2.255":        "DE",
		"198.51.100.127":     "FR",
		"198.51.100.128":     "",
		"203.0.113.1":        "", // registered in a country, but located in none
		"10.0.0.1":           "",
		"2001:db8::1":        "JP",
		"2001:db8:1::1":      "",
		"::ffff:192.0.2.1":   "DE",
		"fe80::1%eth0":       "",
		"2001:db8:0:ffff::1": "JP",
	} {
		a := netip.MustParseAddr(addr)
		if got := both.Country(a); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
		if a.Unmap().Is6() {
			want = ""
		}
		if got := v4.Country(a); got != want {
			t.Errorf("%s by the database of IPv4: %q, want %q", addr, got, want)
		}
	}
	if got := both.Country(netip.Addr{}); got != "" {
		t.Errorf("no address: %q", got)
	}
}

func TestTheErrorOnADatabaseOfAnotherKindNamesItsKindAndTheNeededOne(t *testing.T) {
	t.Parallel()
	for kind, value := range map[string]mmdbtype.DataType{
		"GeoLite2-ASN":     mmdbtype.Map{"autonomous_system_number": mmdbtype.Uint32(64496)},
		"flat country_asn": mmdbtype.Map{"country": mmdbtype.String("DE")},
		"numbers": mmdbtype.Map{
			"country": mmdbtype.Map{"iso_code": mmdbtype.Uint32(276)},
		},
		"GeoLite2-Country-": record(""),
		"text":              mmdbtype.String("DE"),
		"empty":             nil,
	} {
		networks := map[string]mmdbtype.DataType{"192.0.2.0/24": value}
		if value == nil {
			networks = nil
		}
		path := file(t, "other.mmdb", database(t, kind, 6, networks))
		_, err := identity.OpenCountries(path)
		for _, word := range []string{path, fmt.Sprintf("%q", kind), "country.iso_code",
			"GeoLite2-Country"} {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the error doesn't name %s: %v", kind, word, err)
			}
		}
	}
}

func TestABrokenDatabaseIsAnError(t *testing.T) {
	t.Parallel()
	good := world(t, 6)
	meta := bytes.Index(good, []byte("\xab\xcd\xefMaxMind.com"))
	if meta < 0 {
		t.Fatal("the database has no metadata")
	}
	torn := bytes.Clone(good)
	copy(torn, bytes.Repeat([]byte{0x7f}, 64)) // the root of the tree leads nowhere
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(good); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"empty":        {nil, "broken"},
		"text":         {[]byte("country,iso_code\n"), "broken"},
		"half":         {good[:len(good)/2], "broken"},
		"metadata cut": {good[:meta+20], "broken"},
		"only a tail":  {good[meta:], "broken"},
		"torn":         {torn, "broken"},
		"compressed":   {packed.Bytes(), "unpack"},
	} {
		path := file(t, "countries.mmdb", c.text)
		_, err := identity.OpenCountries(path)
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want an error with %q and the path", name, err, c.want)
		}
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "absent.mmdb"), t.TempDir()} {
		if _, err := identity.OpenCountries(path); err == nil ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want an error with the path", path, err)
		}
	}
}

// The file is often replaced by copying over it. A half-written file must neither be read nor end
// the process.
func TestTheFileMayBeOverwrittenWhileItIsInUse(t *testing.T) {
	t.Parallel()
	path := file(t, "countries.mmdb", world(t, 6))
	c, err := identity.OpenCountries(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if got := c.Country(netip.MustParseAddr("192.0.2.1")); got != "DE" {
		t.Errorf("%q, want DE", got)
	}
}

func TestADatabaseMayBeClosedDuringLookups(t *testing.T) {
	t.Parallel()
	c := open(t, world(t, 6))
	a := netip.MustParseAddr("192.0.2.1")
	var all sync.WaitGroup
	begun := make(chan struct{}, 4)
	for range 4 {
		all.Go(func() {
			got := c.Country(a)
			begun <- struct{}{}
			for ; got == "DE"; got = c.Country(a) {
			}
			if got != "" {
				t.Errorf("%q, want DE or nothing", got)
			}
		})
	}
	for range 4 {
		<-begun
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
	if err := c.Close(); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// Not parallel: other tests' allocations would count.
func TestALookupAllocatesNextToNothing(t *testing.T) {
	c := open(t, world(t, 6))
	for _, addr := range []string{"192.0.2.1", "2001:db8::1", "10.0.0.1"} {
		a := netip.MustParseAddr(addr)
		if n := testing.AllocsPerRun(100, func() { c.Country(a) }); n > 2 {
			t.Errorf("%s: %v allocations, want at most 2", addr, n)
		}
	}
}

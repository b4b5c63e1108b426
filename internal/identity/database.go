package identity

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/oschwald/maxminddb-golang/v2"
)

const (
	// maxDatabase bounds a database's file, which is held in memory. One of countries takes some 10
	// MB, one of cities some 100 MB.
	maxDatabase = 1 << 30
	// maxProbes bounds how many networks are checked for a country when a database is opened. In a
	// database of countries, the first ones have one. Checking this many delays the start for a
	// moment.
	maxProbes = 100_000
)

// isoCode is the path of the country in records of MaxMind's Country, City and Enterprise
// databases, and of compatible ones.
var isoCode = []any{"country", "iso_code"}

// Countries is a MaxMind database of countries. It is safe for concurrent use, including Close.
//
// The file is read into memory, not mapped. With a mapping, a lookup could wait for the disk, and
// overwriting the file in place would end the process.
type Countries struct {
	db atomic.Pointer[maxminddb.Reader] // nil when closed
}

// OpenCountries reads the MaxMind DB file (.mmdb) at path, of at most 1 GiB. Its records must hold
// country.iso_code, as those of GeoLite2-Country and GeoIP2-City do. The error for a file that is
// broken, or of another kind, says which. The file may be replaced afterwards: it isn't read again.
func OpenCountries(path string) (*Countries, error) {
	text, err := readDatabase(path)
	if err != nil {
		return nil, fmt.Errorf("country database: %w", err) // the error names the path
	}
	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		return nil, fmt.Errorf("country database %s is compressed: unpack the .mmdb file in it",
			path)
	}
	db, err := maxminddb.OpenBytes(text)
	if err != nil {
		return nil, fmt.Errorf("country database %s is broken, or no MaxMind DB file (.mmdb): %w",
			path, err)
	}
	if err := knowsCountries(db); err != nil {
		return nil, fmt.Errorf("country database %s %w", path, err)
	}
	c := &Countries{}
	c.db.Store(db)
	return c, nil
}

func readDatabase(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDatabase+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxDatabase {
		return nil, fmt.Errorf("%s is over %d bytes", path, maxDatabase)
	}
	return text, nil
}

// knowsCountries returns nil if db has a network with a country. Otherwise its error continues a
// sentence that begins with the file's name.
func knowsCountries(db *maxminddb.Reader) error {
	probes := 0
	for network := range db.Networks() {
		// The whole record: with a path, a record of another shape gives the same error as a broken
		// one.
		var record any
		if err := network.Decode(&record); err != nil {
			return fmt.Errorf("is broken: %w", err)
		}
		fields, _ := record.(map[string]any)
		country, _ := fields["country"].(map[string]any)
		if code, _ := country["iso_code"].(string); code != "" {
			return nil
		}
		if probes++; probes == maxProbes {
			break
		}
	}
	return fmt.Errorf("is of the kind %.100q and says nothing of countries (country.iso_code): "+
		"a database such as GeoLite2-Country or GeoLite2-City is needed", db.Metadata.DatabaseType)
}

// Country returns the ISO 3166-1 alpha-2 code of a's country in the database. It returns "" if
// there is none, if a is an IPv6 address and the database holds only IPv4, and after Close.
func (c *Countries) Country(a netip.Addr) string {
	db := c.db.Load()
	if db == nil {
		return ""
	}
	var code string
	if err := db.Lookup(a.Unmap()).DecodePath(&code, isoCode...); err != nil {
		return ""
	}
	return code
}

// Close releases the database; afterwards every country is unknown. The error is always nil.
func (c *Countries) Close() error {
	c.db.Store(nil)
	return nil
}

package config

import (
	"fmt"

	"github.com/forebay/forebay/internal/strictyaml"
	"github.com/forebay/forebay/internal/units"
)

// MaxClientsFile bounds a clients file, in bytes. 10,000 clients with ten keys each take about that
// much.
const MaxClientsFile = 8 << 20

// ClientsFile is the content of a clients file.
type ClientsFile struct {
	Clients []Client `key:"clients" max:"10000"`

	Path    string // as errors have it: with ${NAME}, where the config has that
	written strictyaml.Written
}

// Describe returns the clients in effect, as Config.Describe does.
func (f *ClientsFile) Describe() string {
	return strictyaml.Describe(*f, f.written)
}

// LoadClients reads the clients file at path. Its clients are added to those of c, a config that
// was loaded. They are checked like identity.clients, and against these: names and keys are unique
// over both. lookup, rules and errors are as for Load; c isn't changed.
//
// A file without the key clients is an error: a truncated file must not remove all clients. A file
// without clients has "clients: []".
func LoadClients(path string, lookup func(string) (string, bool), c *Config,
	rules ...Rules) (*ClientsFile, error) {
	text, err := readFile(path, MaxClientsFile)
	if err != nil {
		return nil, err
	}
	return ParseClients(path, text, lookup, c, rules...)
}

// ParseClients is LoadClients for a text that was already read. Errors name it by path, unless c
// has the path from the environment.
func ParseClients(path string, text []byte, lookup func(string) (string, bool), c *Config,
	rules ...Rules) (*ClientsFile, error) {
	path = c.written.Or("identity.clients_file", path)
	if len(text) > MaxClientsFile {
		return nil, Errors{{File: path,
			Text: fmt.Sprintf("is longer than %v; a config is not", units.Size(MaxClientsFile))}}
	}
	file := &ClientsFile{Path: path}
	r, err := strictyaml.Read(path, text, lookup, file)
	if err != nil {
		return nil, err
	}
	r.Check(*file)
	if !r.Given("clients") && r.Err() == nil {
		r.Errorf("clients", "is required; write clients: [] where there are none")
	}
	beside := newRoster(r, " of the config")
	beside.add("identity.clients", c.Identity.Clients)
	beside.clients(c, "clients", file.Clients)
	for n, client := range file.Clients {
		key := fmt.Sprintf("clients[%d]", n)
		l := clientList(key, client)
		c.checkList(r, l)
		distinct(r, l, nil)
		c.checkOwn(r, key, client)
		settleLimits(client.Limits)
		c.checkKept(r, l)
	}
	c.checkURLs(r, "clients", file.Clients)
	if err := r.Err(); err != nil {
		return nil, err
	}
	file.written = r.Written()
	return file, nil
}

package config

import "github.com/forebay/forebay/internal/strictyaml"

// MaxClientsFile bounds a clients file, in bytes: 10,000 clients of ten keys each take about as
// much.
const MaxClientsFile = 8 << 20

// ClientsFile is the content of a clients file.
type ClientsFile struct {
	Clients []Client `key:"clients" max:"10000"`

	Path    string // as errors show it: with ${NAME}, if the config has that
	written strictyaml.Written
}

// Describe is Config.Describe for a clients file.
func (f *ClientsFile) Describe() string { return strictyaml.Describe(*f, f.written) }

// LoadClients reads the clients file at path, whose clients are added to those of the loaded config
// c. They are checked as identity.clients are: names and keys must be unique over both. lookup and
// errors are as for Load. It doesn't change c.
//
// A file without the key clients is an error: a file that was cut short must not make all clients
// unknown. "clients: []" is a file without clients.
func LoadClients(path string, lookup func(string) (string, bool), c *Config) (*ClientsFile, error) {
	text, err := readFile(path, MaxClientsFile)
	if err != nil {
		return nil, err
	}
	return ParseClients(path, text, lookup, c)
}

// ParseClients is LoadClients for a text that was read already. Errors name it by path, unless c
// has the path from the environment.
func ParseClients(path string, text []byte, lookup func(string) (string, bool), c *Config) (
	*ClientsFile, error) {
	path = c.written.Or("identity.clients_file", path)
	if err := tooLong(path, text, MaxClientsFile); err != nil {
		return nil, err
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
	beside.check(c, "clients", file.Clients)
	for n, client := range file.Clients {
		key := strictyaml.At("clients", n)
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

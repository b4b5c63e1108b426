package config

import (
	"fmt"
	"reflect"
)

// MaxClientsFile bounds a clients file, in bytes: 10,000 clients of ten keys each take about as much.
const MaxClientsFile = 8 << 20

// ClientsFile is what a clients file holds.
type ClientsFile struct {
	Clients []Client `key:"clients" max:"10000"`

	Path    string // as errors have it: with ${NAME}, where the config has that
	written written
}

// Describe is as Config.Describe.
func (f *ClientsFile) Describe() string {
	d := describer{written: f.written}
	d.describe("clients", "clients", reflect.ValueOf(f.Clients), "")
	return d.String()
}

// LoadClients reads the clients file at path, for a config that was loaded: its clients beside those of c. They are
// checked as identity.clients are, and against these too: names and keys are unique over both. lookup, rules and
// errors are as for Load; c isn't changed.
//
// A file without the key clients is an error: a file that was cut short must not make everybody a stranger. It says
// "clients: []" where it means nobody.
func LoadClients(path string, lookup func(string) (string, bool), c *Config, rules ...Rules) (*ClientsFile, error) {
	text, err := readFile(path, MaxClientsFile)
	if err != nil {
		return nil, err
	}
	return ParseClients(path, text, lookup, c, rules...)
}

// ParseClients is LoadClients for a text that was read already; path is what errors call it, unless c has it
// from the environment.
func ParseClients(path string, text []byte, lookup func(string) (string, bool), c *Config, rules ...Rules) (*ClientsFile, error) {
	path = c.written.or("identity.clients_file", path)
	if len(text) > MaxClientsFile {
		return nil, Errors{{File: path, Text: fmt.Sprintf("is longer than %v; a config is not", Size(MaxClientsFile))}}
	}
	tree, problem := parseYAML(text)
	if problem != nil {
		problem.File = path
		return nil, Errors{*problem}
	}
	r, file := newReport(path), &ClientsFile{Path: path}
	if tree != nil {
		d := decoder{report: r, lookup: lookup, root: reflect.TypeFor[ClientsFile]()}
		d.value(tree, reflect.ValueOf(file).Elem(), "", 1, 0)
	}
	if !r.given("clients") && len(r.errors) == 0 {
		r.errorf("clients", "is required; write clients: [] where there are none")
	}
	beside := newRoster(r, " of the config")
	beside.add("identity.clients", c.Identity.Clients)
	beside.clients(c, "clients", file.Clients)
	for n, client := range file.Clients {
		key := fmt.Sprintf("clients[%d]", n)
		l := limitList{own: key + ".limits", limits: client.Limits, tier: client.Tier}
		c.checkList(r, l)
		distinct(r, l, nil)
		c.checkOwn(r, key, client)
		settleLimits(client.Limits)
		c.keepRules(r, l, rules)
	}
	c.callbackRules(r, "clients", file.Clients, rules)
	if len(r.errors) > 0 {
		return nil, Errors(sorted(r.errors))
	}
	file.written = r.written()
	return file, nil
}

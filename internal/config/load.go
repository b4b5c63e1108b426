package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds a config file. The longest that its own bounds leave sense in, with 10,000 clients,
// is about as long.
const maxFile = 2 << 20

// Load reads the file at path. lookup finds environment variables, as os.LookupEnv does. A config that
// comes without an error is complete and free of contradictions. An error about the contents is an
// Errors; neither it nor a warning shows a value that came from lookup or belongs to a secret key.
//
// What rules say against something is reported at its place in the file.
func Load(path string, lookup func(string) (string, bool), rules ...Rules) (*Config, []Warning, error) {
	text, err := readFile(path, maxFile)
	if err != nil {
		return nil, nil, err
	}
	return read(path, text, lookup, rules)
}

// Rules are further conditions, of whoever goes by the config. A function that is nil has none.
type Rules struct {
	// Limit is asked about each limit, complete.
	Limit func(Limit) error
	// Callback is asked about each URL of a client's webhooks, with the rules for all. Its error names the mend and shows nothing of the
	// URL, which may have come from the environment.
	Callback func(all Callbacks, url string) error
	// Redis is asked about each Redis. Its error says what is wrong with the key field beside the URL, or
	// with the URL itself (field is url), and shows nothing of either.
	Redis func(url SecretURL, login RedisLogin) (field string, err error)
	// File is asked about each file that a key names, by its path. Its error doesn't show the path.
	File func(key, path string) error
}

// readFile reads a file of at most so many bytes.
func readFile(path string, most Size) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(text) > int(most) {
		return nil, Errors{{File: path, Text: fmt.Sprintf("is longer than %v; a config is not", most)}}
	}
	return text, nil
}

func read(file string, text []byte, lookup func(string) (string, bool), rules []Rules) (*Config, []Warning, error) {
	tree, problem := parseYAML(text)
	if problem != nil {
		problem.File = file
		return nil, nil, Errors{*problem}
	}
	return build(file, tree, lookup, rules)
}

func build(file string, tree *yaml.Node, lookup func(string) (string, bool), rules []Rules) (*Config, []Warning, error) {
	r := newReport(file)
	c := Default()
	if tree != nil {
		d := decoder{report: r, lookup: lookup, root: reflect.TypeFor[Config]()}
		d.value(tree, reflect.ValueOf(c).Elem(), "", 1, 0)
	}
	c.written = r.written()
	return c.verdict(r, rules)
}

// Check holds a config that was made or changed in code against the rules that Load applies, and
// fills in the defaults that depend on other keys.
func (c *Config) Check(rules ...Rules) ([]Warning, error) {
	_, warnings, err := c.verdict(newReport(""), rules)
	return warnings, err
}

func (c *Config) verdict(r *report, rules []Rules) (*Config, []Warning, error) {
	c.check(r)
	c.settle(filepath.Dir(r.file))
	for _, list := range c.lists() {
		c.keepRules(r, list, rules)
	}
	c.callbackRules(r, "identity.clients", c.Identity.Clients, rules)
	r.redisRules("redis.url", c.Redis.URL, c.Redis.RedisLogin, rules)
	r.redisRules("region.sync.redis", c.Region.Sync.Redis, c.Region.Sync.RedisLogin, rules)
	c.fileRules(r, rules)
	if len(r.errors) > 0 {
		return nil, nil, Errors(sorted(r.errors))
	}
	c.warn(r)
	return c, sorted(r.warnings), nil
}

// fileRules reports what the rules say against files that aren't part of a Redis's login.
func (c *Config) fileRules(r *report, rules []Rules) {
	for key, path := range map[string]string{
		"identity.country_database": c.Identity.CountryDatabase, "identity.clients_file": c.Identity.ClientsFile,
	} {
		for _, rule := range rules {
			if rule.File == nil || path == "" {
				continue
			}
			if err := rule.File(key, path); err != nil {
				r.errorf(key, "%s %v", r.shown(key, path), err)
			}
		}
	}
}

var yamlLine = regexp.MustCompile(`^line ([0-9]+): `)

// parserError is what the YAML library says of lines that it counts from 0.
var parserError = regexp.MustCompile(`^did not find expected (?:<|node|'-'|key|',')`)

// parseYAML returns the root of a file's one document; nil where there is nothing in it.
func parseYAML(text []byte) (*yaml.Node, *Problem) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, another yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err == nil {
		switch err = decoder.Decode(&another); {
		case errors.Is(err, io.EOF):
			return document.Content[0], nil
		case err == nil:
			return nil, &Problem{Line: another.Line, Text: "a second document begins; keep one config in one file"}
		}
	}
	problem := Problem{Text: "isn't YAML: " + err.Error()}
	detail := bytes.TrimPrefix([]byte(err.Error()), []byte("yaml: "))
	if m := yamlLine.FindSubmatch(detail); m != nil {
		problem.Line, _ = strconv.Atoi(string(m[1]))
		detail = detail[len(m[0]):]
		if parserError.Match(detail) {
			problem.Line++
		}
		problem.Text = "isn't YAML: " + string(detail)
	}
	problem.Text += hint(text, problem)
	return nil, &problem
}

var flowVariable = regexp.MustCompile(`[\[{].*\$\{`)

// hint is the mend for the common causes of broken YAML.
func hint(text []byte, p Problem) string {
	lines := bytes.Split(text, []byte("\n"))
	if p.Line < 1 || p.Line > len(lines) {
		return ""
	}
	switch line := lines[p.Line-1]; {
	case bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte("\t")):
		return "; indent with spaces, not tabs"
	case flowVariable.Match(line):
		return `; inside [ ] and { } write "${NAME}" in quotes`
	case strings.HasSuffix(p.Text, "expected key") || strings.HasSuffix(p.Text, "'-' indicator"):
		return "; check the indentation from here on"
	}
	return ""
}

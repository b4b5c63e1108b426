package config

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/forebay/forebay/internal/strictyaml"
	"github.com/forebay/forebay/internal/units"
)

// Warning is a problem that doesn't keep a config from being used. Errors are all problems that do.
type (
	Warning = strictyaml.Problem
	Errors  = strictyaml.Errors
)

// maxFile bounds a config file, at about the longest that the bounds of its keys allow, with 10,000
// clients.
const maxFile = 2 << 20

// Load reads the file at path. lookup finds environment variables, as os.LookupEnv does. A config
// that is returned without an error is complete and free of contradictions. An error about the
// contents is an Errors. Neither errors nor warnings show a value that came from lookup or belongs
// to a secret key.
//
// Problems that the rules find are reported at their place in the file.
func Load(path string, lookup func(string) (string, bool), rules Rules) (
	*Config, []Warning, error) {
	text, err := readFile(path, maxFile)
	if err != nil {
		return nil, nil, err
	}
	return read(path, text, lookup, rules)
}

// Rules are checks that depend on the host of the process. A nil function finds no problem.
type Rules struct {
	// Redis checks how to reach a Redis. Its error describes what is wrong with the key field
	// beside the URL, or with the URL itself (field is url), and shows no part of either.
	Redis func(url strictyaml.SecretURL, login RedisLogin) (field string, err error)
	// File checks the file at path that a key names. Its error doesn't show the path.
	File func(key, path string) error
}

// readFile reads a file of at most so many bytes.
func readFile(path string, most units.Size) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return text, tooLong(path, text, most)
}

// tooLong returns an error if the text of a file is longer than most.
func tooLong(path string, text []byte, most units.Size) error {
	if len(text) <= int(most) {
		return nil
	}
	return Errors{{File: path, Text: fmt.Sprintf("is longer than %v; a config is not", most)}}
}

func read(file string, text []byte, lookup func(string) (string, bool), rules Rules) (
	*Config, []Warning, error) {
	c := Default()
	r, err := strictyaml.Read(file, text, lookup, c)
	if err != nil {
		return nil, nil, err
	}
	c.written = r.Written()
	warnings, err := c.complete(r, rules)
	if err != nil {
		return nil, nil, err
	}
	return c, warnings, nil
}

// Check checks a config that was made or changed in code by the rules that Load applies, and fills
// in the defaults that depend on other keys.
func (c *Config) Check() ([]Warning, error) { return c.complete(strictyaml.NewReport(""), Rules{}) }

func (c *Config) complete(r *report, rules Rules) ([]Warning, error) {
	c.check(r)
	c.settle(filepath.Dir(r.File()))
	for _, list := range c.lists() {
		c.checkKept(r, list)
	}
	c.checkURLs(r, "identity.clients", c.Identity.Clients)
	rules.check(r, c)
	if err := r.Err(); err != nil {
		return nil, err
	}
	c.warn(r)
	return r.Warnings(), nil
}

func (rules Rules) check(r *report, c *Config) {
	redis := func(url string, to strictyaml.SecretURL, login RedisLogin) {
		if rules.Redis == nil || to == "" {
			return
		}
		if field, err := rules.Redis(to, login); field == "url" && err != nil {
			r.Errorf(url, "%v", err)
		} else if err != nil {
			r.Errorf(url[:strings.LastIndex(url, ".")+1]+field, "%v", err)
		}
	}
	file := func(key, path string) {
		if rules.File == nil || path == "" {
			return
		}
		if err := rules.File(key, path); err != nil {
			r.Errorf(key, "%s %v", r.Shown(key, path), err)
		}
	}
	redis("redis.url", c.Redis.URL, c.Redis.RedisLogin)
	redis("region.sync.redis", c.Region.Sync.Redis, c.Region.Sync.RedisLogin)
	file("identity.country_database", c.Identity.CountryDatabase)
	file("identity.clients_file", c.Identity.ClientsFile)
}

// Describe returns the config as it is in effect, as YAML: every default filled in, every number
// with its unit, secrets as *** and key digests shortened. What came from the environment is shown
// as the file has it, with ${NAME}. A key whose absence has a meaning is shown as a comment. Apart
// from what is hidden, the text is a config of the same meaning.
func (c *Config) Describe() string { return strictyaml.Describe(*c, c.written) }

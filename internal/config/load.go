package config

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/forebay/forebay/internal/strictyaml"
	"github.com/forebay/forebay/internal/units"
)

// Warning is a problem that doesn't keep a config from being used. Errors are all problems that do.
type (
	Warning = strictyaml.Problem
	Errors  = strictyaml.Errors
)

// maxFile bounds a config file. One with as many clients as it may have, 10,000, is about as long.
const maxFile = 2 << 20

// Load reads the file at path. lookup finds environment variables, as os.LookupEnv does. A config
// that is returned without an error is complete and free of contradictions. An error about the
// content is an Errors. Neither errors nor warnings show a value that came from lookup or belongs
// to a secret key.
//
// Objections of the rules are reported at the key that they are about.
func Load(path string, lookup func(string) (string, bool),
	rules ...Rules) (*Config, []Warning, error) {
	text, err := readFile(path, maxFile)
	if err != nil {
		return nil, nil, err
	}
	return read(path, text, lookup, rules)
}

// Rules are further conditions, of the packages that use the config. A nil function has none.
type Rules struct {
	// Redis checks each Redis. Its error says what is wrong with the key field beside the URL, or
	// with the URL itself (field is url), and shows no part of either.
	Redis func(url strictyaml.SecretURL, login RedisLogin) (field string, err error)
	// File checks each file that a key names, by its path. Its error doesn't show the path.
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
	if len(text) > int(most) {
		return nil, Errors{{File: path,
			Text: fmt.Sprintf("is longer than %v; a config is not", most)}}
	}
	return text, nil
}

func read(file string, text []byte, lookup func(string) (string, bool),
	rules []Rules) (*Config, []Warning, error) {
	c := Default()
	r, err := strictyaml.Read(file, text, lookup, c)
	if err != nil {
		return nil, nil, err
	}
	c.written = r.Written()
	return c.verdict(r, rules)
}

// Check checks a config that was made or changed in code by the rules that Load applies, and fills
// in the defaults that depend on other keys.
func (c *Config) Check(rules ...Rules) ([]Warning, error) {
	_, warnings, err := c.verdict(strictyaml.NewReport(""), rules)
	return warnings, err
}

func (c *Config) verdict(r *strictyaml.Report, rules []Rules) (*Config, []Warning, error) {
	c.check(r)
	c.settle(filepath.Dir(r.File()))
	for _, list := range c.lists() {
		c.checkKept(r, list)
	}
	c.checkURLs(r, "identity.clients", c.Identity.Clients)
	redisRules(r, "redis.url", c.Redis.URL, c.Redis.RedisLogin, rules)
	redisRules(r, "region.sync.redis", c.Region.Sync.Redis, c.Region.Sync.RedisLogin, rules)
	c.fileRules(r, rules)
	if err := r.Err(); err != nil {
		return nil, nil, err
	}
	c.warn(r)
	return c, r.Warnings(), nil
}

// fileRules reports the rules' objections to files that aren't part of a Redis's login.
func (c *Config) fileRules(r *strictyaml.Report, rules []Rules) {
	for key, path := range map[string]string{
		"identity.country_database": c.Identity.CountryDatabase,
		"identity.clients_file":     c.Identity.ClientsFile,
	} {
		for _, rule := range rules {
			if rule.File == nil || path == "" {
				continue
			}
			if err := rule.File(key, path); err != nil {
				r.Errorf(key, "%s %v", r.Shown(key, path), err)
			}
		}
	}
}

// Describe returns the config as it is in effect, as YAML: every default filled in, every number
// with its unit, secrets as *** and key digests shortened. Values from the environment are shown as
// in the file, with ${NAME}. An absent key whose absence has a meaning is shown as a comment.
// Except for the hidden values, the text is a config of the same meaning.
func (c *Config) Describe() string { return strictyaml.Describe(*c, c.written) }

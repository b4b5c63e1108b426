package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/store"
	"github.com/forebay/forebay/internal/strictyaml"
)

// Exit codes of both commands.
const (
	ExitOK     = 0
	ExitFailed = 1 // it ran and could not go on
	ExitUsage  = 2 // flags or config are wrong: nothing was started
)

// Load reads and checks the config file. Errors name file, line, key and mend.
func Load(path string, lookup func(string) (string, bool)) (
	*config.Config, []config.Warning, error) {
	return config.Load(path, lookup, conditions)
}

// conditions are the rules of other packages for parts of the config.
var conditions = config.Rules{Redis: reachable, File: readable}

// Check is what -check does: it says whether the file is right, and those that it names, and prints
// what is in effect, secrets left out.
func Check(path string, lookup func(string) (string, bool), stdout, stderr io.Writer) int {
	c, warnings, err := Load(path, lookup)
	for _, w := range warnings {
		fmt.Fprintln(stderr, "warning:", w)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return ExitUsage
	}
	var clients *config.ClientsFile
	if file := c.Identity.ClientsFile; file != "" {
		if clients, err = config.LoadClients(file, lookup, c); err != nil {
			fmt.Fprintln(stderr, err)
			return ExitUsage
		}
	}
	fmt.Fprintf(stdout, "# %s is valid. In effect:\n%s", path, c.Describe())
	if clients != nil {
		fmt.Fprintf(stdout, "---\n# %s is valid. In effect beside the "+
			"above:\n%s", clients.Path, clients.Describe())
	}
	return ExitOK
}

// readable is the rule for a file that the config names. The clients file's contents are read
// later: what is wrong there has places of its own.
func readable(key, path string) error {
	var err error
	if key == "identity.country_database" {
		var countries *identity.Countries
		if countries, err = identity.OpenCountries(path); err == nil {
			countries.Close() // it can't fail
		}
	} else {
		var f *os.File
		if f, err = os.Open(path); err == nil {
			f.Close()
		}
	}
	var of *fs.PathError
	switch {
	case errors.As(err, &of):
		return fmt.Errorf("can't be read: %w", of.Err)
	case err != nil: // the path may come from the environment
		return errors.New("can't be used: " + strings.ReplaceAll(err.Error(), path+" ", ""))
	}
	return nil
}

// reachable checks the address of a Redis and the login to it, as package store does.
func reachable(url strictyaml.SecretURL, login config.RedisLogin) (field string, err error) {
	err = redisAt(url, login).Check()
	var wrong store.ConfigError
	if errors.As(err, &wrong) {
		return wrong.Field, wrong.Err
	}
	return "", err
}

// OpenStore connects to the Redis of the config. See store.Open.
func OpenStore(ctx context.Context, c *config.Config, log *slog.Logger) (*store.Store, error) {
	return store.Open(ctx, redisAt(c.Redis.URL, c.Redis.RedisLogin), log)
}

func redisAt(url strictyaml.SecretURL, login config.RedisLogin) store.Config {
	return store.Config{URL: string(url), Login: store.Login{
		Username: login.Username, Password: string(login.Password),
		SentinelUsername: login.SentinelUsername, SentinelPassword: string(login.SentinelPassword),
		TLS: store.TLS(login.TLS),
	}}
}

// Version returns the version that the binary was built as.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// Metrics returns a registry with the metrics of Go processes and of the build.
func Metrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "forebay_build_info", Help: "Always " +
		"1; the label tells the version.",
		ConstLabels: prometheus.Labels{"version": Version()}})
	build.Set(1)
	r.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"forebay/internal/config"
	"forebay/internal/httpapi"
	"forebay/internal/identity"
)

// Exit codes of both commands.
const (
	ExitOK     = 0
	ExitFailed = 1 // it ran and could not go on
	ExitUsage  = 2 // flags or config are wrong: nothing was started
)

// Load reads and checks the config file. Errors name file, line, key and mend.
func Load(path string, lookup func(string) (string, bool)) (*config.Config, []config.Warning, error) {
	return config.Load(path, lookup, conditions)
}

// conditions are the rules of those who go by the config.
var conditions = config.Rules{Limit: possible, Callback: callable}

// Check is what -check does: it says whether the file is right, and those that it names, and prints what is in effect, secrets
// left out.
func Check(path string, lookup func(string) (string, bool), stdout, stderr io.Writer) int {
	c, warnings, err := Load(path, lookup)
	for _, w := range warnings {
		fmt.Fprintln(stderr, "warning:", w)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return ExitUsage
	}
	clients, err := checkNamed(c, lookup)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return ExitUsage
	}
	fmt.Fprintf(stdout, "# %s is valid. In effect:\n%s", path, c.Describe())
	if file := c.Identity.ClientsFile; file != "" {
		fmt.Fprintf(stdout, "---\n# %s is valid. In effect beside the above:\n%s", file, config.DescribeClients(clients))
	}
	return ExitOK
}

// checkNamed reads the files that a config names.
func checkNamed(c *config.Config, lookup func(string) (string, bool)) (clients []config.Client, err error) {
	if path := c.Identity.CountryDatabase; path != "" {
		countries, err := identity.OpenCountries(path)
		if err != nil {
			return nil, fmt.Errorf("identity.country_database: %w", err)
		}
		countries.Close() // it fails never
	}
	if path := c.Identity.ClientsFile; path != "" {
		return config.LoadClients(path, lookup, c, conditions)
	}
	return nil, nil
}

// Version is the version that the binary was built as.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// TuneMemory lets the heap grow to five times what lives before it is collected, unless GOGC says otherwise. The front
// keeps little alive (some MiB) and makes much garbage: by Go's default it would collect dozens of times a second.
func TuneMemory(env func(string) (string, bool)) {
	if _, set := env("GOGC"); !set {
		debug.SetGCPercent(400)
	}
}

// Metrics returns a registry that has what every Go process tells of itself, and the build.
func Metrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "forebay_build_info", Help: "Always 1; the label tells the version.",
		ConstLabels: prometheus.Labels{"version": Version()}})
	build.Set(1)
	r.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Site is one listener with its server.
type Site struct {
	server   *http.Server
	listener net.Listener
}

// Open listens on addr and logs the address that it got, so ":0" can be used.
func Open(name, addr string, h http.Handler, log *slog.Logger) (*Site, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s listener: %w", name, err)
	}
	log.Info("listening", "listener", name, "addr", l.Addr().String())
	return &Site{server: httpapi.NewHTTPServer(h, log), listener: l}, nil
}

// Addr is where the site listens.
func (s *Site) Addr() string { return s.listener.Addr().String() }

// Serve answers until Close; failed is told when it can't.
func (s *Site) Serve(failed func(error)) {
	go func() {
		if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	}()
}

// Close takes no new connection, waits up to grace for requests under way, and then cuts what is left.
func (s *Site) Close(grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		s.server.Close()
	}
}

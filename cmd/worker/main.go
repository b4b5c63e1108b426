// Command worker is Forebay's back: it drains the lines of all backends at their rates. Any number
// of workers may run on one Redis. Together they keep each rate.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/forebay/forebay/cmd/internal/wire"
)

func main() {
	ctx, signals := wire.Signals()
	os.Exit(run(ctx, signals, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr))
}

// run is the command without its process: it drains until ctx ends, and then stops in order.
// signals is the channel of wire.Signals.
func run(ctx context.Context, signals <-chan os.Signal, args []string,
	env func(string) (string, bool), stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("config", "", "`file` to read, the same as the api's; required")
	check := flags.Bool("check", false, "check the config, print it as it is in effect, and exit")
	listen := flags.String("admin-listen", "127.0.0.1:8082",
		"`address` for /metrics, /livez and /readyz")
	level := flags.String("log", "info", "least `level` to log: debug, info, warn or error")
	version := flags.Bool("version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		return wire.ExitUsage
	}
	usage := func(err error) int {
		fmt.Fprintln(stderr, "worker:", err)
		return wire.ExitUsage
	}
	switch {
	case *version:
		fmt.Fprintln(stdout, wire.Version())
		return wire.ExitOK
	case flags.NArg() > 0:
		return usage(fmt.Errorf("unexpected argument %q; see -help", flags.Arg(0)))
	case *file == "":
		return usage(fmt.Errorf("-config FILE is required; " +
			"to try Forebay out without one, start the api alone"))
	case *check:
		return wire.Check(*file, env, stdout, stderr)
	}
	log, err := wire.Logger(stderr, *level)
	if err != nil {
		return usage(err)
	}
	wire.TuneMemory(env, log)
	c, warnings, err := wire.Load(*file, env)
	if err != nil {
		return usage(err)
	}
	if c.Redis.URL == "" {
		return usage(fmt.Errorf("%s has no redis.url: "+
			"its Redis is inside the api process, which drains its lines itself", *file))
	}
	// The rule of admin.listen holds for this listener too: off the loopback it needs a token.
	c.Admin.Listen = *listen
	if _, err := c.Check(); err != nil {
		return usage(fmt.Errorf("-admin-listen: %w", err))
	}
	for _, w := range warnings {
		log.Warn("config", "warning", w.String())
	}
	c.Identity.CountryDatabase = "" // unused here, so the file needn't be on this host
	metrics := wire.Metrics()
	clients, err := wire.NewClients(c, env, metrics, log) // for their webhooks
	if err != nil {
		return usage(err)
	}
	if err := serve(ctx, signals, c, clients, *listen, metrics, log); err != nil {
		log.Error("stopped", "error", err)
		return wire.ExitFailed
	}
	return wire.ExitOK
}

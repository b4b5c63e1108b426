// Command api is Forebay's front: it answers clients and operators. With worker.embedded: true in
// its config, or without a config, it also drains the lines.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/config"
)

func main() {
	ctx, signals := wire.Signals()
	os.Exit(run(ctx, signals, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr))
}

// run is the command without its process: it serves until ctx ends, and then stops in order.
// signals is the channel of wire.Signals.
func run(ctx context.Context, signals <-chan os.Signal, args []string,
	env func(string) (string, bool), stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("api", flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("config", "", "`file` to read; without one the demo runs")
	check := flags.Bool("check", false, "check the config, print it as it is in effect, and exit")
	listen := flags.String("listen", "", "`address` of the public listener, instead of http.listen")
	adminListen := flags.String("admin-listen", "",
		"`address` of the admin listener, instead of admin.listen")
	level := flags.String("log", "info", "least `level` to log: debug, info, warn or error")
	version := flags.Bool("version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		return wire.ExitUsage
	}
	usage := func(err error) int {
		fmt.Fprintln(stderr, "api:", err)
		return wire.ExitUsage
	}
	switch {
	case *version:
		fmt.Fprintln(stdout, wire.Version())
		return wire.ExitOK
	case flags.NArg() > 0:
		return usage(fmt.Errorf("unexpected argument %q; see -help", flags.Arg(0)))
	case *check && *file == "":
		return usage(fmt.Errorf("-check needs -config FILE"))
	case *check:
		return wire.Check(*file, env, stdout, stderr)
	}
	log, err := wire.Logger(stderr, *level)
	if err != nil {
		return usage(err)
	}
	audit, err := wire.Logger(stderr, "info") // changes by operators are logged at every level
	if err != nil {
		return usage(err)
	}
	limit := wire.TuneMemory(env, log)
	a := api{log: log, audit: audit, stdout: stdout, metrics: wire.Metrics()}
	c, warnings := config.Demo(), []config.Warning(nil)
	if *file != "" {
		if c, warnings, err = wire.Load(*file, env); err != nil {
			return usage(err)
		}
	} else {
		endDemo, err := a.demo(c)
		if err != nil {
			return usage(err)
		}
		defer endDemo()
	}
	for _, w := range warnings {
		log.Warn("config", "warning", w.String())
	}
	wire.WarnMemory(c, limit, log)
	if *listen != "" {
		c.HTTP.Listen = *listen
	}
	if *adminListen != "" {
		c.Admin.Listen = *adminListen
	}
	if _, err = c.Check(); err != nil {
		return usage(err)
	}
	clients, err := wire.NewClients(c, env, a.metrics, log)
	if err != nil {
		return usage(err)
	}
	if err := a.serve(ctx, signals, c, clients, *file == ""); err != nil {
		log.Error("stopped", "error", err)
		return wire.ExitFailed
	}
	return wire.ExitOK
}

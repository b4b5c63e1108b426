package wire

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/internal/config"
)

// Process is the environment of a command.
type Process struct {
	Signals        <-chan os.Signal // those of Signals
	Args           []string         // without the command's name
	Env            func(name string) (string, bool)
	Stdout, Stderr io.Writer
}

// Main runs a command as this process, and exits with its code.
func Main(run func(context.Context, Process) int) {
	ctx, signals := Signals()
	os.Exit(run(ctx, Process{Signals: signals, Args: os.Args[1:], Env: os.LookupEnv,
		Stdout: os.Stdout, Stderr: os.Stderr}))
}

// Command has the parts in which the two commands differ. All of it is required, except NoConfig.
type Command struct {
	Name       string
	ConfigHelp string // for -config
	// NoConfig is the error without -config; nil: the command starts without it.
	NoConfig error
	// Flags adds the command's own flags.
	Flags func(*flag.FlagSet)
	// Configure returns the config to run with, by the file and the command's own flags. Its errors
	// are errors of usage.
	Configure func(*Start) (*config.Config, error)
	// Serve runs the command until ctx ends, and then stops it in order.
	Serve func(context.Context, *Start) error
}

// Start has the process of a command, and what is set up before the command serves.
type Start struct {
	Process
	File        string // of -config; "": none
	Log         *slog.Logger
	MemoryLimit int64 // as TuneMemory returns it
	Metrics     *prometheus.Registry

	// Set for Serve, after Configure.
	Config  *config.Config
	Clients *Clients
}

// Load reads and checks the file of -config as the function Load does, and logs its warnings.
func (s *Start) Load() (*config.Config, error) {
	c, warnings, err := Load(s.File, s.Env)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		s.Log.Warn("config", "warning", w.String())
	}
	return c, nil
}

// Run runs the command with the flags of p.Args until ctx ends, and returns its exit code. Usage
// errors are written to p.Stderr.
func (c Command) Run(ctx context.Context, p Process) int {
	usage := func(err error) int {
		fmt.Fprintf(p.Stderr, "%s: %v\n", c.Name, err)
		return ExitUsage
	}
	s := &Start{Process: p}
	flags := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	flags.SetOutput(p.Stderr)
	flags.StringVar(&s.File, "config", "", c.ConfigHelp)
	check := flags.Bool("check", false, "check the config, print it as it is in effect, and exit")
	level := flags.String("log", "info", "least `level` to log: debug, info, warn or error")
	version := flags.Bool("version", false, "print the version and exit")
	c.Flags(flags)
	if err := flags.Parse(p.Args); err != nil {
		return ExitUsage
	}
	switch {
	case *version:
		fmt.Fprintln(p.Stdout, Version())
		return ExitOK
	case flags.NArg() > 0:
		return usage(fmt.Errorf("unexpected argument %q; see -help", flags.Arg(0)))
	case s.File == "" && c.NoConfig != nil:
		return usage(c.NoConfig)
	case s.File == "" && *check:
		return usage(errors.New("-check needs -config FILE"))
	case *check:
		return Check(s.File, p.Env, p.Stdout, p.Stderr)
	}
	var err error
	if s.Log, err = Logger(p.Stderr, *level); err != nil {
		return usage(err)
	}
	s.MemoryLimit, s.Metrics = TuneMemory(p.Env, s.Log), Metrics()
	if s.Config, err = c.Configure(s); err != nil {
		return usage(err)
	}
	if s.Clients, err = NewClients(s.Config, p.Env, s.Metrics, s.Log); err != nil {
		return usage(err)
	}
	if err := c.Serve(ctx, s); err != nil {
		s.Log.Error("stopped", "error", err)
		return ExitFailed
	}
	return ExitOK
}

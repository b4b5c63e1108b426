// Package front is the command api as a function: cmd/api runs it, and so does forebay dev.
package front

import (
	"context"
	"flag"
	"log/slog"

	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/config"
)

// api is the command with its own flags.
type api struct {
	listen, adminListen string // "": the config's

	audit *slog.Logger // at every level of log
	demo  wire.Closers // the demo's backends
}

// Run is the command without its process: it serves until ctx ends, and then stops in order. It
// returns the exit code.
func Run(ctx context.Context, p wire.Process) int {
	var a api
	defer a.demo.Close()
	return wire.Command{
		Name:       "api",
		ConfigHelp: "`file` to read; without one the demo runs",
		Flags: func(flags *flag.FlagSet) {
			flags.StringVar(&a.listen, "listen", "",
				"`address` of the public listener, instead of http.listen")
			flags.StringVar(&a.adminListen, "admin-listen", "",
				"`address` of the admin listener, instead of admin.listen")
		},
		Configure: a.configure,
		Serve:     a.serve,
	}.Run(ctx, p)
}

func (a *api) configure(s *wire.Start) (c *config.Config, err error) {
	// Changes by operators are logged at every level.
	if a.audit, err = wire.Logger(s.Stderr, "info"); err != nil {
		return nil, err
	}
	if s.File != "" {
		c, err = s.Load()
	} else {
		c, err = a.startDemo(s.Log)
	}
	if err != nil {
		return nil, err
	}
	wire.WarnMemory(c, s.MemoryLimit, s.Log)
	if a.listen != "" {
		c.HTTP.Listen = a.listen
	}
	if a.adminListen != "" {
		c.Admin.Listen = a.adminListen
	}
	_, err = c.Check()
	return c, err
}

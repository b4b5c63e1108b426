// Command worker is Forebay's back: it drains the lines of all backends at their rates. Any number
// of workers may run on one Redis. Together they keep each rate.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/config"
)

func main() { wire.Main(run) }

// worker is the command with its own flag.
type worker struct{ listen string }

// run is the command without its process: it drains until ctx ends, and then stops in order.
func run(ctx context.Context, p wire.Process) int {
	var w worker
	return wire.Command{
		Name:       "worker",
		ConfigHelp: "`file` to read, the same as the api's; required",
		NoConfig: errors.New("-config FILE is required; " +
			"to try Forebay out without one, start the api alone"),
		Flags: func(flags *flag.FlagSet) {
			flags.StringVar(&w.listen, "admin-listen", "127.0.0.1:8082",
				"`address` for /metrics, /livez and /readyz")
		},
		Configure: w.configure,
		Serve:     w.serve,
	}.Run(ctx, p)
}

func (w *worker) configure(s *wire.Start) (*config.Config, error) {
	c, err := s.Load()
	if err != nil {
		return nil, err
	}
	if c.Redis.URL == "" {
		return nil, fmt.Errorf("%s has no redis.url: "+
			"its Redis is inside the api process, which drains its lines itself", s.File)
	}
	// The rule of admin.listen holds for this listener too: off the loopback it needs a token.
	c.Admin.Listen = w.listen
	if _, err := c.Check(); err != nil {
		return nil, fmt.Errorf("-admin-listen: %w", err)
	}
	c.Identity.CountryDatabase = "" // unused here, so the file needn't be on this host
	return c, nil
}

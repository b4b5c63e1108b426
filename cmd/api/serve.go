package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"

	"forebay/cmd/internal/wire"
	"forebay/internal/config"
	"forebay/internal/demo"
	"forebay/internal/httpapi"
	"forebay/internal/store"
)

type api struct {
	log    *slog.Logger
	stdout io.Writer
}

// demo starts the fragile backend on a free port and points c's backends at it.
func (a api) demo(c *config.Config) (end func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("demo backend: %w", err)
	}
	backend := httpapi.NewHTTPServer(nil, a.log)
	for name, b := range c.Backends {
		b.URL = "http://" + l.Addr().String()
		c.Backends[name] = b
	}
	backend.Handler = demo.New()
	go backend.Serve(l)
	return func() { backend.Close() }, nil
}

// serve runs the api until ctx ends, then stops it in order: no new job is admitted; the embedded worker ends its
// calls, while clients may still ask for their jobs; requests under way are answered; Redis is let go.
func (a api) serve(ctx context.Context, c *config.Config, trying bool) error {
	s, err := store.Open(ctx, string(c.Redis.URL), a.log)
	if err != nil {
		return err
	}
	defer s.Close()
	lines, err := wire.Lines(c, s.Client())
	if err != nil {
		return err
	}
	listener := wire.Listen(c, s.Client())
	defer listener.Close()
	metrics := wire.Metrics()
	front, err := wire.Front(c, s, lines, listener, metrics, a.log)
	if err != nil {
		return err
	}

	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	drained := make(chan struct{})
	if c.Worker.Embedded {
		w, err := wire.Back(c, s, lines, listener, metrics, a.log)
		if err != nil {
			return err
		}
		go func() {
			defer close(drained)
			if err := w.Run(ctx); err != nil {
				fail(err)
			}
		}()
	} else {
		close(drained)
	}
	public, err := wire.Open("public", c.HTTP.Listen, front.Public(), a.log)
	if err != nil {
		return err
	}
	admin, err := wire.Open("admin", c.Admin.Listen, front.Admin(), a.log)
	if err != nil {
		public.Close(0)
		return err
	}
	public.Serve(fail)
	admin.Serve(fail)
	if trying {
		welcome(a.stdout, public.Addr(), admin.Addr())
	}

	<-ctx.Done()
	a.log.Info("stopping", "grace", c.Shutdown)
	front.Drain()
	<-drained
	public.Close(c.Shutdown)
	admin.Close(c.Shutdown)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

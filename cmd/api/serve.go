package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

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

// demo starts a fragile backend for each of c's, on a free port, and points c at them. Two on one would together get
// more than it bears.
func (a api) demo(c *config.Config) (end func(), err error) {
	var servers []*http.Server
	end = func() {
		for _, s := range servers {
			s.Close()
		}
	}
	for name, b := range c.Backends {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			end()
			return nil, fmt.Errorf("demo backend: %w", err)
		}
		b.URL = "http://" + l.Addr().String()
		c.Backends[name] = b
		server := httpapi.NewHTTPServer(demo.New(), a.log)
		servers = append(servers, server)
		go server.Serve(l)
	}
	return end, nil
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

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/demo"
	"github.com/forebay/forebay/internal/web"
)

type api struct {
	log     *slog.Logger
	audit   *slog.Logger // at every level of log
	stdout  io.Writer
	metrics *prometheus.Registry
}

// demo starts a fragile backend for each of c's, on a free port, and points c at them. Each needs
// its own, which the load of two would exceed.
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
		server := web.NewHTTPServer(demo.New(), a.log)
		servers = append(servers, server)
		go server.Serve(l)
	}
	return end, nil
}

// serve runs the api until ctx ends, and then stops it in order:
//
//   - For c.ShutdownDelay all continues except /readyz, so that load balancers send no more.
//   - The embedded worker ends its calls. Clients may still request their jobs, but submit none.
//   - No new connection is accepted.
//   - Requests under way are answered.
//   - The background goroutines write their remaining data.
//   - The connections to Redis are closed.
func (a api) serve(ctx context.Context, signals <-chan os.Signal, c *config.Config,
	clients *wire.Clients, trying bool) (err error) {
	s, err := wire.OpenStore(ctx, c, a.log)
	if err != nil {
		return err
	}
	lines := wire.Lines(c, s.Client())
	listener := wire.Listen(c, s.Client())
	front, err := wire.NewFront(c, clients, s, lines, listener, a.metrics, a.log, a.audit)
	if err != nil {
		return errors.Join(err, listener.Close(), s.Close())
	}
	// Before the worker begins: the most likely failure of a start is a port in use.
	public, err := wire.Open("public", c.HTTP.Listen, front.Public(), wire.PublicBounds(c, a.log),
		a.metrics, a.log)
	if err != nil {
		return errors.Join(err, listener.Close(), s.Close())
	}
	admin, err := wire.Open("admin", c.Admin.Listen, front.Admin(), wire.AdminBounds(),
		a.metrics, a.log)
	if err != nil {
		public.Close(0)
		return errors.Join(err, listener.Close(), s.Close())
	}

	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	drained := make(chan error, 1)
	drain, endDrain := context.WithCancel(context.WithoutCancel(ctx))
	defer endDrain()
	if c.Worker.Embedded {
		w, err := wire.Back(c, s, front.Answers, lines, listener, a.metrics, a.log)
		if err != nil {
			public.Close(0)
			admin.Close(0)
			return errors.Join(err, listener.Close(), s.Close())
		}
		hooks := wire.Webhooks(c, clients, s, lines, a.metrics, a.log)
		go func() {
			err := wire.RunBack(drain, w, hooks)
			if err != nil {
				fail(err)
			}
			drained <- err
		}()
	} else {
		drained <- nil
	}
	background, endBackground := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { front.Run(background) })
	running.Go(func() { wire.TellOverrides(background, lines, a.log) })
	running.Go(func() { clients.Follow(background, signals) })
	public.Serve(fail)
	admin.Serve(fail)
	if trying {
		welcome(a.stdout, public.Addr(), admin.Addr())
	}

	<-ctx.Done()
	cause := context.Cause(ctx)
	delay := c.ShutdownDelay
	if !errors.Is(cause, context.Canceled) {
		delay = 0 // it can't continue to serve
	}
	a.log.Info("stopping", "delay", delay, "grace", c.Shutdown)
	front.Leave()
	time.Sleep(delay)
	if c.Worker.Embedded {
		front.Refuse()
	}
	endDrain()
	left := <-drained
	public.Quiet()
	front.Drain()
	var all sync.WaitGroup
	all.Go(func() { public.Close(requestGrace) })
	all.Go(func() { admin.Close(requestGrace) })
	all.Wait()
	endBackground()
	running.Wait()
	if left == nil {
		// With calls left behind, asynq still uses the connection, and would panic without it. The
		// process ends anyway.
		err = errors.Join(listener.Close(), s.Close())
	}
	if !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// requestGrace is the time that requests under way get once the worker has ended. Each is answered
// within a second, except for a large result on its way to a slow client.
const requestGrace = 5 * time.Second

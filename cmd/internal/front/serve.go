package front

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/demo"
	"github.com/forebay/forebay/internal/web"
)

// startDemo returns the demo's config. It starts a fragile backend for each of the config's, on a
// free port. Each needs its own, which the load of two would exceed.
func (a *api) startDemo(log *slog.Logger) (*config.Config, error) {
	c := config.Demo()
	for name, b := range c.Backends {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("demo backend: %w", err)
		}
		b.URL = "http://" + l.Addr().String()
		c.Backends[name] = b
		server := web.NewHTTPServer(demo.New(), log)
		a.demo.Add(server.Close)
		go server.Serve(l)
	}
	return c, nil
}

// serve runs the api until ctx ends, and then stops it in order:
//
//   - For c.ShutdownDelay all continues except /readyz, so that load balancers send no more.
//   - The embedded worker ends its calls. Clients may still request their jobs, but submit none.
//   - No new connection is accepted.
//   - Requests under way are answered.
//   - The background goroutines write their remaining data.
//   - The connections to Redis are closed.
func (a *api) serve(ctx context.Context, p *wire.Start) (err error) {
	c := p.Config
	s, err := wire.OpenStore(ctx, c, p.Log)
	if err != nil {
		return err
	}
	var opened wire.Closers
	defer func() { err = errors.Join(err, opened.Close()) }()
	opened.Add(s.Close)
	lines := wire.Lines(c, s.Client())
	listener := wire.Listen(c, s.Client())
	opened.Add(listener.Close)
	past := wire.NewHistory("api", c, s, lines, p.Log)
	front, err := wire.NewFront(c, p.Clients, s, lines, listener, past, p.Metrics, p.Log, a.audit)
	if err != nil {
		return err
	}
	// Before the worker begins: the most likely failure of a start is a port in use.
	public, err := wire.Open("public", c.HTTP.Listen, front.Public(), wire.PublicBounds(c, p.Log),
		p.Metrics, p.Log)
	if err != nil {
		return err
	}
	opened.Add(public.Cut)
	admin, err := wire.Open("admin", c.Admin.Listen, front.Admin(), wire.AdminBounds(),
		p.Metrics, p.Log)
	if err != nil {
		return err
	}
	opened.Add(admin.Cut)

	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	drained := make(chan error, 1)
	drain, endDrain := context.WithCancel(context.WithoutCancel(ctx))
	defer endDrain()
	if c.Worker.Embedded {
		w, err := wire.Back(c, s, front.Answers, lines, listener, past, p.Metrics, p.Log)
		if err != nil {
			return err
		}
		hooks := wire.Webhooks(c, p.Clients, s, lines, p.Metrics, p.Log)
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
	past.Follow(p.Clients)
	running.Go(func() { past.Run(background, s) })
	running.Go(func() { front.Run(background) })
	running.Go(func() { wire.TellOverrides(background, lines, p.Log) })
	running.Go(func() { p.Clients.Follow(background, p.Signals) })
	public.Serve(fail)
	admin.Serve(fail)
	if p.File == "" {
		welcome(p.Stdout, public.Addr(), admin.Addr())
	}

	<-ctx.Done()
	cause := context.Cause(ctx)
	delay := c.ShutdownDelay
	if !errors.Is(cause, context.Canceled) {
		delay = 0 // it can't continue to serve
	}
	p.Log.Info("stopping", "delay", delay, "grace", c.Shutdown)
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
	if left != nil {
		// With calls left behind, asynq still uses the connection, and would panic without it. The
		// process ends anyway.
		opened.Abandon()
	}
	if !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// requestGrace is the time that requests under way get once the worker has ended. Each is answered
// within a second, except for a large result on its way to a slow client.
const requestGrace = 5 * time.Second

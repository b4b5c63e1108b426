package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/adminapi"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/store"
)

// serve drains until ctx ends. Then running calls get the time of Config.Shutdown, and those that
// still run go back to their line.
func (*worker) serve(ctx context.Context, p *wire.Start) (err error) {
	c := p.Config
	s, err := wire.OpenStore(ctx, c, p.Log)
	if err != nil {
		return err
	}
	var opened wire.Closers
	defer func() { err = errors.Join(err, opened.Close()) }()
	opened.Add(s.Close)
	lines := wire.Lines(c, s.Client())
	listener := wire.Listen(c, s.Client(), leaky.WithoutMoves()) // no client waits here
	opened.Add(listener.Close)
	past := wire.NewHistory("worker", c, s, lines, p.Log)
	w, err := wire.Back(c, s, cache.New(s.Client()), lines, listener, past, p.Metrics, p.Log)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	operators := adminapi.NewOperators(string(c.Admin.Token), nil, p.Metrics, p.Log)
	site, err := wire.Open("admin", c.Admin.Listen, admin(ctx, s, lines, p.Metrics, operators),
		wire.AdminBounds(), p.Metrics, p.Log)
	if err != nil {
		return err
	}
	site.Serve(fail)
	var following sync.WaitGroup
	past.Follow(p.Clients)
	following.Go(func() { p.Clients.Follow(ctx, p.Signals) })
	reporting, endReporting := context.WithCancel(context.WithoutCancel(ctx))
	defer endReporting()
	following.Go(func() { past.Run(reporting, s) })

	err = wire.RunBack(ctx, w, wire.Webhooks(c, p.Clients, s, lines, p.Metrics, p.Log))
	endReporting() // the last calls have ended, and their changes are noted
	following.Wait()
	site.Close(time.Second)
	if err != nil {
		// With calls left behind, asynq still uses the connection, and would panic without it. The
		// process ends anyway.
		opened.Abandon()
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// admin serves the probes and, to operators only, /metrics.
func admin(ctx context.Context, s *store.Store, lines map[string]*leaky.Line,
	metrics *prometheus.Registry, operators *adminapi.Operators) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics",
		operators.Guard(promhttp.HandlerFor(metrics, promhttp.HandlerOpts{})))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		health(w, http.StatusOK, api.Health{Status: "alive"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case ctx.Err() != nil:
			health(w, http.StatusServiceUnavailable, api.Health{Status: "stopping"})
		case !s.Healthy():
			health(w, http.StatusServiceUnavailable,
				api.Health{Status: "store unavailable", Store: "redis"})
		default:
			health(w, http.StatusOK,
				api.Health{Status: "ready", Store: "redis", Warnings: wire.Warnings(s, lines)})
		}
	})
	return mux
}

func health(w http.ResponseWriter, status int, body api.Health) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a prober that has left needs no answer
}

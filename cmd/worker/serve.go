package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"forebay/api"
	"forebay/cmd/internal/wire"
	"forebay/internal/config"
	"forebay/internal/store"
)

// serve drains until ctx ends; then running calls get the time of c.Shutdown, and what still runs goes back to its line.
func serve(ctx context.Context, c *config.Config, listen string, log *slog.Logger) error {
	s, err := store.Open(ctx, string(c.Redis.URL), log)
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
	w, err := wire.Back(c, s, lines, listener, metrics, log)
	if err != nil {
		return err
	}

	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { health(w, http.StatusOK, api.Health{Status: "alive"}) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case ctx.Err() != nil:
			health(w, http.StatusServiceUnavailable, api.Health{Status: "stopping"})
		case !s.Healthy():
			health(w, http.StatusServiceUnavailable, api.Health{Status: "store unavailable", Store: "redis"})
		default:
			health(w, http.StatusOK, api.Health{Status: "ready", Store: "redis", Warnings: s.Warnings()})
		}
	})
	site, err := wire.Open("admin", listen, mux, log)
	if err != nil {
		return err
	}
	site.Serve(fail)

	err = w.Run(ctx)
	site.Close(c.Shutdown)
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func health(w http.ResponseWriter, status int, body api.Health) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a prober that has left needs no answer
}

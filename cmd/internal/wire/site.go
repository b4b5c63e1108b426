package wire

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/conns"
	"github.com/forebay/forebay/internal/web"
)

// Site is one listener with its server.
type Site struct {
	server   *http.Server
	listener *conns.Listener
}

// Open listens on addr and logs the address that it got, so ":0" can be used.
func Open(name, addr string, h http.Handler, b conns.Bounds, metrics prometheus.Registerer,
	log *slog.Logger) (*Site, error) {
	l, err := conns.Listen(name, addr, b, metrics, log)
	if err != nil {
		return nil, err
	}
	log.Info("listening", "listener", name, "addr", l.Addr().String(), "max_connections", b.All)
	server := web.NewHTTPServer(h, log)
	server.ConnState = l.ConnState
	return &Site{server: server, listener: l}, nil
}

// Addr is where the site listens.
func (s *Site) Addr() string { return s.listener.Addr().String() }

// Serve answers until Close; if it can't, it calls failed with the error.
func (s *Site) Serve(failed func(error)) {
	go func() {
		if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	}()
}

// Quiet stops new connections, so that Close then resets none. Before Serve it has no effect.
func (s *Site) Quiet() { s.listener.Quiet() }

// Close stops new connections, waits up to grace for requests under way, and then closes the
// remaining connections.
func (s *Site) Close(grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	// Shutdown would drop, without an answer, a request that is just being read.
	for s.listener.AtWork() && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	if err := s.server.Shutdown(ctx); err != nil {
		s.server.Close()
	}
}

const (
	// maxAdmin bounds an admin listener: some operators, probes and collectors of metrics.
	maxAdmin = 64
	// maxDerived bounds the connections of the public listener if the file limit is very high: idle
	// connections take about 10 KiB, held ones 30 KiB.
	maxDerived = 20_000
	// ownFiles are for the other files of a process: its pools of connections to Redis (48), its
	// log, its runtime's files, and callbacks under way.
	ownFiles = 48 + 32
	// manyFiles stands for a file limit that isn't known.
	manyFiles = 1 << 20
)

// AdminBounds are those of an admin listener. One address may have all connections: all operators
// may come through one, such as an SSH tunnel.
func AdminBounds() conns.Bounds {
	n := min(maxAdmin, fileLimit()/8)
	return conns.Bounds{All: n, Address: n}
}

// PublicBounds are those of the public listener: the config's, or those that the process's file
// limit leaves beside its other files.
func PublicBounds(c *config.Config, log *slog.Logger) conns.Bounds {
	limit := fileLimit()
	left := limit - AdminBounds().All - ownFiles
	if c.Region.Sync.Redis != "" {
		left -= ownFiles
	}
	if c.Worker.Embedded {
		for _, b := range c.Backends {
			left -= b.Drain.Concurrency
		}
	}
	left = max(left, limit/4)
	b := conns.Bounds{All: c.HTTP.MaxConnections, Address: c.HTTP.MaxConnectionsPerAddress,
		IPv6Prefix: c.HTTP.IPv6Prefix, Proxies: c.HTTP.TrustedProxies}
	if b.All == 0 {
		b.All = min(left, maxDerived)
	} else if b.All > left {
		log.Warn("http.max_connections is more than the process's file limit leaves: "+
			"raise the limit (ulimit -n)",
			"max_connections", b.All, "file_limit", limit, "left", left)
	}
	if b.Address == 0 {
		b.Address = max(1, b.All/4)
	}
	return b
}

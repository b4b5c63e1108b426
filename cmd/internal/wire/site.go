package wire

import (
	"context"
	"errors"
	"log/slog"
	"net"
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
func Open(name, addr string, h http.Handler, b conns.Bounds,
	metrics prometheus.Registerer, log *slog.Logger) (*Site, error) {
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

// Serve answers requests until Close. If it can't, it calls failed with the error.
func (s *Site) Serve(failed func(error)) {
	go func() {
		if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	}()
}

// Quiet lets no new connection begin, so that Close then resets none. It has no effect before
// Serve.
func (s *Site) Quiet() { s.listener.Quiet() }

// Close accepts no new connections, waits up to grace for requests under way, and then closes the
// connections that are left.
func (s *Site) Close(grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	// Without this wait, Shutdown would drop requests that are being read, without an answer.
	for s.listener.AtWork() && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	if err := s.server.Shutdown(ctx); err != nil {
		s.server.Close()
	}
}

// Cut closes the listener and all connections at once, even if Serve was never called. After Close
// it does nothing.
func (s *Site) Cut() error {
	err := s.server.Close()
	if closing := s.listener.Close(); !errors.Is(closing, net.ErrClosed) {
		err = errors.Join(err, closing)
	}
	return err
}

const (
	// maxAdmin bounds an admin listener, for a few operators, probes and collectors of metrics.
	maxAdmin = 64
	// maxDerived bounds the connections that are derived for the public listener from a very large
	// file limit. Idle connections take about 10 KiB, held ones 30 KiB.
	maxDerived = 20_000
	// ownFiles are the other open files of a process: its pools of connections to Redis (48), its
	// log, its runtime's files, and callbacks under way.
	ownFiles = 48 + 32
	// manyFiles stands for a file limit that isn't known.
	manyFiles = 1 << 20
)

// AdminBounds returns the bounds of an admin listener. One address may have all connections,
// because an SSH tunnel, for example, has one address for all its users.
func AdminBounds() conns.Bounds {
	n := min(maxAdmin, fileLimit()/8)
	return conns.Bounds{All: n, Address: n}
}

// PublicBounds returns the bounds of the public listener: the config's, or the number of files that
// the process's file limit leaves beside its other open files.
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

package store

import (
	"context"
	"crypto/tls"
	"log/slog"
)

// OpenWith is Open with another TLS config and another bound on an embedded store's keys.
func OpenWith(ctx context.Context, url string, log *slog.Logger, config *tls.Config, maxKeys int64) (*Store, error) {
	return open(ctx, url, log, options{tls: config, maxKeys: maxKeys})
}

// EmbeddedAddr is where an embedded store listens.
func EmbeddedAddr(s *Store) string { return s.embedded.Addr() }

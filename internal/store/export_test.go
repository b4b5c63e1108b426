package store

import (
	"context"
	"log/slog"
)

// OpenSmall is Open with a given bound on an embedded store's keys.
func OpenSmall(ctx context.Context, log *slog.Logger, maxKeys int64) (*Store, error) {
	return open(ctx, Config{}, log, maxKeys)
}

// EmbeddedAddr returns the address of an embedded store.
func EmbeddedAddr(s *Store) string { return s.embedded.Addr() }

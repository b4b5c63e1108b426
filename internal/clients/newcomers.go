package clients

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed seen.lua
var seenLua string

var seen = redis.NewScript(seenLua)

const (
	// rememberClient is how long a client that sends nothing is remembered: after more than a year
	// it is new again.
	rememberClient = 400 * 24 * time.Hour
	// maxNewcomers bounds the clients that a process remembers. A config's clients are fewer.
	maxNewcomers = 100_000
	// askAgain is the rest after a failed call, during which clients count as not new.
	askAgain = time.Second
)

// Newcomers knows since when each client has been seen. Safe for concurrent use.
type Newcomers struct {
	rdb redis.UniversalClient

	mu    sync.Mutex
	since map[string]time.Time // guarded by mu; by this process's clock
	rest  time.Time            // guarded by mu: Redis isn't asked before
}

// NewNewcomers returns a Newcomers that remembers in Redis, for all processes together.
func NewNewcomers(rdb redis.UniversalClient) *Newcomers {
	return &Newcomers{rdb: rdb, since: map[string]time.Time{}}
}

// Until returns when a client stops being new, a period after it was first seen, or the zero time
// if it is no longer new. Each process asks Redis once for each client. With an error the client
// counts as not new, and Redis is not asked again for a second.
func (n *Newcomers) Until(ctx context.Context, client string,
	period time.Duration) (time.Time, error) {
	first, known, err := n.first(ctx, client)
	if until := first.Add(period); known && time.Now().Before(until) {
		return until, err
	}
	return time.Time{}, err
}

// first returns when a client was first seen, which isn't known if Redis can't be asked.
func (n *Newcomers) first(ctx context.Context, client string) (
	first time.Time, known bool, err error) {
	n.mu.Lock()
	first, known = n.since[client]
	resting := time.Now().Before(n.rest)
	n.mu.Unlock()
	if known || resting {
		return first, known, nil
	}
	keys := []string{seenKey(client)}
	ago, err := seen.Run(ctx, n.rdb, keys, rememberClient.Milliseconds()).Int64()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.rest = time.Now().Add(askAgain)
		return time.Time{}, false, fmt.Errorf("since when is a client known: %w", err)
	}
	if len(n.since) >= maxNewcomers {
		clear(n.since)
	}
	first = time.Now().Add(-time.Duration(ago) * time.Microsecond)
	n.since[client] = first
	return first, true, nil
}

// seenKey returns the key of when a client was first seen. It has the same hash as the keys of the
// client's limits (package limits), so all have one length and none shows a client's name.
func seenKey(client string) string {
	sum := sha256.Sum256([]byte("client:" + client))
	return "fb:{" + hex.EncodeToString(sum[:16]) + "}:seen"
}

package limits

import (
	"context"
	_ "embed"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed seen.lua
var seenLua string

var seen = redis.NewScript(seenLua)

const (
	// rememberClient is how long a client that doesn't come isn't forgotten: one that was away for over a year is new again.
	rememberClient = 400 * 24 * time.Hour
	// maxNewcomers bounds what a process remembers by itself; the config's clients are fewer.
	maxNewcomers = 100_000
	// askAgain is the rest after a failed call, in which clients count as not new.
	askAgain = time.Second
)

// Newcomers knows since when each client has been seen. Safe for concurrent use.
type Newcomers struct {
	rdb redis.UniversalClient

	mu    sync.Mutex
	since map[string]time.Time // guarded by mu; by this process's clock
	rest  time.Time            // guarded by mu: nothing is asked until then
}

// NewNewcomers returns a Newcomers that remembers in Redis, for all processes together.
func NewNewcomers(rdb redis.UniversalClient) *Newcomers {
	return &Newcomers{rdb: rdb, since: map[string]time.Time{}}
}

// Until is when a client stops being new, a period after it was first seen; zero where it isn't new any more. Redis is asked once
// for each client and process. With an error nobody is new; for a second after one nothing is asked.
func (n *Newcomers) Until(ctx context.Context, client string, period time.Duration) (time.Time, error) {
	first, known, err := n.first(ctx, client)
	if until := first.Add(period); known && time.Now().Before(until) {
		return until, err
	}
	return time.Time{}, err
}

func (n *Newcomers) first(ctx context.Context, client string) (first time.Time, known bool, err error) {
	n.mu.Lock()
	first, known = n.since[client]
	resting := time.Now().Before(n.rest)
	n.mu.Unlock()
	if known || resting {
		return first, known, nil
	}
	answer, err := seen.Run(ctx, n.rdb, []string{seenKey(client)}, rememberClient.Milliseconds()).Int64()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.rest = time.Now().Add(askAgain)
		return time.Time{}, false, fmt.Errorf("since when is a client known: %w", err)
	}
	if len(n.since) >= maxNewcomers {
		clear(n.since)
	}
	first = time.Now().Add(-micros(answer))
	n.since[client] = first
	return first, true, nil
}

// seenKey is the key of when a client was first seen. It lies with the client's limits.
func seenKey(client string) string {
	tag, _ := Subject{Client: client}.tag(PerClient) // an empty client has one key, as good as any
	return "fb:{" + tag + "}:seen"
}

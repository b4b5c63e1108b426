package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// maxEmbeddedKeys bounds the embedded Redis. That many small keys take some 60 MB, and advancing
// their TTLs blocks it for 0.14 s of each second. Above the bound the store is unhealthy until keys
// expire. No key is evicted, because it might record that a client has used up a limit.
const maxEmbeddedKeys = 200_000

// ageEvery is how often TTLs are advanced. A key may expire that much early, which is why limits
// keep theirs for a second more.
const ageEvery = time.Second

// embed starts a Redis inside this process. Only this process can use it: it listens on the
// loopback and requires a password.
func embed() (*miniredis.Miniredis, target, error) {
	m := miniredis.NewMiniRedis()
	password := rand.Text()
	m.RequireAuth(password)
	if err := m.Start(); err != nil {
		return nil, target{}, fmt.Errorf("embedded redis: %w", err)
	}
	return m, target{kind: single, addrs: []string{m.Addr()}, password: password}, nil
}

// age advances the TTLs of the embedded Redis, which doesn't do that itself, until ctx ends.
func age(ctx context.Context, m *miniredis.Miniredis) {
	last := time.Now()
	tick := time.NewTicker(ageEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now := time.Now()
			m.FastForward(now.Sub(last))
			last = now
		}
	}
}

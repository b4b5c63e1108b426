package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// maxEmbeddedKeys bounds the embedded Redis: that many small keys take some 60 MB, and moving their TTLs on holds it
// for 0.14 s of each second. Over it the store is unhealthy until keys end: nothing is evicted, because what an eviction
// would forget is who has used up a limit.
const maxEmbeddedKeys = 200_000

// ageEvery is how often TTLs move on. A key may end that much early, which is why limits keep theirs for a second more.
const ageEvery = time.Second

// embed starts a Redis inside this process, open to this process alone: on the loopback and with a password.
func embed() (*miniredis.Miniredis, target, error) {
	m := miniredis.NewMiniRedis()
	password := rand.Text()
	m.RequireAuth(password)
	if err := m.Start(); err != nil {
		return nil, target{}, fmt.Errorf("embedded redis: %w", err)
	}
	return m, target{kind: single, addrs: []string{m.Addr()}, password: password}, nil
}

// age moves the TTLs of the embedded Redis on, which stand still by themselves, until ctx ends.
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

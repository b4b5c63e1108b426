package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Secret is a random text that only the processes on one Redis know. The first process that needs
// one makes it. Safe for concurrent use.
type Secret struct {
	rdb    redis.UniversalClient
	known  atomic.Pointer[knownSecret] // nil: not yet
	asking sync.Mutex                  // held by the call that reads it again
}

type knownSecret struct {
	text string
	at   time.Time // when Redis had it
}

// secretLook is how often a process checks that Redis still has its secret, and stores it again if
// Redis lost it (a failover in its first moments, FLUSHALL). If another process has stored another
// secret by then, the two differ for no longer than this: meanwhile an Idempotency-Key that comes
// to both makes two jobs.
const secretLook = 10 * time.Second

// NewSecret returns the Secret of the deployment on rdb, without calling Redis.
func NewSecret(rdb redis.UniversalClient) *Secret { return &Secret{rdb: rdb} }

// Text returns the secret. Once it is known, Text works without Redis, and never fails again. It
// calls Redis at most every 10 s.
func (s *Secret) Text(ctx context.Context) (string, error) {
	known := s.known.Load()
	if known == nil {
		return s.look(ctx, rand.Text())
	}
	if time.Since(known.at) > secretLook && s.asking.TryLock() {
		defer s.asking.Unlock()
		if text, err := s.look(ctx, known.text); err == nil {
			return text, nil
		}
	}
	return known.text, nil
}

// look returns the secret in Redis. If there is none, it stores mine.
func (s *Secret) look(ctx context.Context, mine string) (string, error) {
	text, err := s.rdb.Get(ctx, secretKey).Result()
	if errors.Is(err, redis.Nil) {
		err = s.rdb.SetArgs(ctx, secretKey, mine, redis.SetArgs{Mode: "NX"}).Err()
		if err == nil || errors.Is(err, redis.Nil) { // another process may have been faster
			text, err = s.rdb.Get(ctx, secretKey).Result()
		}
	}
	if err == nil && text == "" {
		err = errors.New("is empty: remove the key " + secretKey)
	}
	if err != nil {
		return "", fmt.Errorf("secret of ids: %w", err)
	}
	s.known.Store(&knownSecret{text, time.Now()})
	return text, nil
}

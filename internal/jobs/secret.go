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

// Secret is a random text that all processes on one Redis share and nobody else knows. The first
// that needs it makes it. Safe for concurrent use.
type Secret struct {
	rdb    redis.UniversalClient
	known  atomic.Pointer[knownSecret] // nil: not yet
	asking sync.Mutex                  // held by the one call that looks again
}

type knownSecret struct {
	text string
	at   time.Time // when Redis had it
}

// secretLook is after how long a process looks again whether Redis has its secret still. A Redis that
// lost it (a failover in its first moments, FLUSHALL) gets it back so, and where another process was
// faster, no two differ for longer: an Idempotency-Key that comes to both then makes two jobs.
const secretLook = 10 * time.Second

// NewSecret returns the Secret of the deployment on rdb. It asks for nothing yet.
func NewSecret(rdb redis.UniversalClient) *Secret { return &Secret{rdb: rdb} }

// Text returns the secret. Once it is known, it is returned without Redis too, and an error never
// comes again. Mostly it costs nothing: Redis is asked each 10 s at most.
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

// look returns what Redis has, and gives it mine where it has none.
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

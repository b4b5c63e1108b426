package cache_test

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/transfer"
)

// trips records how many answers each round trip reads whole.
type trips struct {
	mu    sync.Mutex
	whole []int // guarded by mu
}

func (*trips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return next(ctx, network, addr)
	}
}

func (*trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (t *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		whole := 0
		for _, cmd := range cmds {
			if cmd.Name() == "get" {
				whole++
			}
		}
		t.mu.Lock()
		t.whole = append(t.whole, whole)
		t.mu.Unlock()
		return next(ctx, cmds)
	}
}

// Large answers have round trips of their own, so that they don't delay small ones (issue 10, point
// 8). Answers of all sizes come whole.
func TestLargeAnswersHaveTripsOfTheirOwn(t *testing.T) {
	t.Parallel()
	rdb, seen := redistest.Client(t), &trips{}
	rdb.AddHook(seen)
	c, name := cache.New(rdb), redistest.Name(t, "sizes")
	var all sync.WaitGroup
	for i, n := range []int{0, 1, transfer.Small - 100, transfer.Small, transfer.Small + 1, 2 << 20,
		2 << 20, 3 << 20} {
		key, body := name+strconv.Itoa(i), bytes.Repeat([]byte{'x'}, n)
		put(t, rdb, key, cache.Answer{Status: 200, Body: body, ContentType: "text/plain"},
			time.Hour)
		for range 4 {
			all.Go(func() {
				if a, ok, err := c.Get(t.Context(), key); err != nil || !ok ||
					!bytes.Equal(a.Body, body) {
					t.Errorf("of %d bytes came %d, %v, %v", n, len(a.Body), ok, err)
				}
			})
		}
	}
	all.Wait()
	large := 0
	for _, whole := range seen.whole {
		if large += whole; whole > 1 {
			t.Errorf("a trip read %d answers whole", whole)
		}
	}
	if large == 0 {
		t.Error("no answer was read whole")
	}
}

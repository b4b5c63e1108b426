package leaky_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/leaky"
)

// stuck holds back every command with a large payload until it is released, like a slow connection.
type stuck struct {
	came    chan int // bytes of a large command's payloads
	release chan struct{}
}

func (stuck) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return next(ctx, network, addr)
	}
}

func (stuck) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s stuck) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		large := 0
		for _, arg := range cmd.Args() {
			if payload, ok := arg.([]byte); ok && len(payload) > 1<<16 {
				large += len(payload)
			}
		}
		if large > 0 {
			s.came <- large
			<-s.release
		}
		return next(ctx, cmd)
	}
}

// Large payloads don't make small ones fail: while large offers are stuck on their way to Redis,
// each in a call of its own and two at once, small ones are accepted.
func TestLargeOffersDoNotHoldSmallOnesUp(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	s := stuck{make(chan int, 100), make(chan struct{})}
	b.rdb.AddHook(s)
	offer := func(payload []byte) leaky.Offer {
		o := benchOffer(b.Settings().Backend, 0)
		o.Job.Payload = payload
		return o
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { _, _ = b.Offer(t.Context(), offer(bytes.Repeat([]byte{'x'}, 1<<20))) })
	}
	for range 2 {
		if n := <-s.came; n > 1<<20+1<<10 {
			t.Errorf("a call carries %d bytes of large payloads", n)
		}
	}
	for range 10 {
		place, err := b.Offer(t.Context(), offer([]byte("1")))
		if err != nil || place.Outcome != leaky.Accepted {
			t.Fatalf("a small offer: %v, %v", place.Outcome, err)
		}
	}
	if n := len(s.came); n > 0 {
		t.Errorf("%d more large calls at once", n)
	}
	close(s.release)
	all.Wait()
}

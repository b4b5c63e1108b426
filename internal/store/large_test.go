package store_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/redistest"
)

// A large payload that still moves isn't cut, in either direction, even if it takes longer than the
// timeout for a hung Redis (issue 10, point 8).
func TestALargePayloadThatMovesIsNotCut(t *testing.T) {
	t.Parallel()
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr)
	s, _ := connected(t, proxy.URL())
	payload := bytes.Repeat([]byte("0123456789abcdef"), 12<<20/16)
	proxy.Throttle(8 << 20) // 1.5 s each way, over frontTimeout for the writing and for the answer
	if err := s.Client().Set(t.Context(), "large", payload, 0).Err(); err != nil {
		t.Fatalf("a large write: %v", err)
	}
	got, err := s.Client().Get(t.Context(), "large").Bytes()
	if err != nil || !bytes.Equal(got, payload) {
		t.Fatalf("a large read: %d bytes, %v", len(got), err)
	}
	proxy.Hang()
	began := time.Now()
	if err := s.Client().Get(t.Context(), "large").Err(); err == nil ||
		time.Since(began) > promised {
		t.Errorf("a hung Redis after %v: %v", time.Since(began), err)
	}
}

// Large commands leave connections for small ones: of 64 hung ones, most wait without a connection.
func TestLargeCommandsLeaveConnectionsForSmallOnes(t *testing.T) {
	t.Parallel()
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr)
	s, _ := connected(t, proxy.URL())
	proxy.Hang()
	payload := make([]byte, 256<<10)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() { s.Client().Set(ctx, "large", payload, 0) })
	}
	most := uint32(0)
	end := time.Now().Add(300 * time.Millisecond)
	for ; time.Now().Before(end); time.Sleep(time.Millisecond) {
		stats := s.Client().PoolStats()
		most = max(most, stats.TotalConns-stats.IdleConns)
	}
	if most == 0 || most > 12 { // 8 large ones, and the probes
		t.Errorf("%d connections were in use at once", most)
	}
	stop()
	proxy.Resume()
	all.Wait()
}

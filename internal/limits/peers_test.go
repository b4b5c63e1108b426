package limits

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/redistest"
)

// Processes know how many they are. One that stops is removed at once, one that dies after some
// seconds. While Redis is unavailable, the last count stands.
func TestProcessesKnowHowManyTheyAre(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	one, two := NewPeers(rdb, "one", 1), NewPeers(rdb, "two", 1)
	if one.Count() != 1 || NewPeers(rdb, "sure", 4).Count() != 4 {
		t.Errorf("before its first call it counts %d", one.Count())
	}
	stop := func(p *Peers) func() {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.Run(ctx) }()
		return func() { cancel(); <-done }
	}
	stopOne, stopTwo := stop(one), stop(two)
	defer stopOne()
	within(t, func() bool { return one.Count() == 2 && two.Count() == 2 })
	if ttl := rdb.TTL(t.Context(), peersKey).Val(); ttl <= 0 {
		t.Errorf("TTL %v", ttl)
	}
	stopTwo()
	within(t, func() bool { return one.Count() == 1 })
	NewPeers(rdb, "dies", 1).call(t.Context())
	within(t, func() bool { return one.Count() == 2 })
	within(t, func() bool { return one.Count() == 1 })
	NewPeers(rdb, "three", 1).call(t.Context())
	within(t, func() bool { return one.Count() == 2 })
	server.Kill()
	one.call(t.Context())
	if one.Count() != 2 {
		t.Errorf("without Redis there are %d", one.Count())
	}
}

// While Redis is unavailable, each process decides with its part of every limit, at least one. Then
// Redis's counts hold again.
func TestEachProcessGoesOnWithItsPart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	healthy := true
	f := NewFallback(New(server.Client(t), false), func() int { return 3 },
		func() bool { return healthy })
	admitted := func(r *Rule) (in int) {
		t.Helper()
		for range 30 {
			v, err := f.Decide(t.Context(), request(1, r))
			if err != nil {
				t.Fatal(err)
			}
			if v.Allowed {
				in++
			}
		}
		return in
	}
	each(t, 10, 24*time.Hour, func(t *testing.T, r *Rule) {
		healthy = true
		if n := admitted(r); n != 10 {
			t.Fatalf("%d of 10 admitted", n)
		}
		healthy = false
		if n := admitted(r); n != 3 {
			t.Errorf("%d admitted by one of three processes, want its part of 10", n)
		}
		v, err := f.Peek(t.Context(), request(1, r))
		if s := v.Standings[0]; err != nil || s.Rule.Limit().Amount != 3 || v.Allowed {
			t.Errorf("it says %+v of %+v, %v", s, s.Rule.Limit(), err)
		}
		least := compile(t, Limit{Algorithm: r.limit.Algorithm, Amount: 1, Window: time.Hour})
		if n := admitted(least); n != 1 {
			t.Errorf("%d admitted of a limit of 1", n)
		}
		healthy = true
		if v, err := f.Peek(t.Context(), request(1, r)); err != nil || v.Allowed {
			t.Errorf("Redis's count is gone: %+v, %v", v, err)
		}
	})
	healthy = true
	server.Kill()
	r := bucketOf(t, 10, time.Minute, 0)
	if v, err := f.Decide(t.Context(), request(1, r)); err != nil || !v.Allowed ||
		v.Standings[0].Remaining != 2 {
		t.Errorf("a Redis that just died: %+v, %v", v, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // as if Redis had hung until there was no time left
	r = bucketOf(t, 10, time.Minute, 0)
	if v, err := f.Decide(ended, request(1, r)); err != nil || !v.Allowed {
		t.Errorf("a Redis that hung: %+v, %v", v, err)
	}
	r = bucketOf(t, 10, time.Minute, 0)
	if _, err := f.Decide(t.Context(), request(0, r)); !errors.Is(err, ErrCost) {
		t.Errorf("cost 0: %v", err)
	}
}

// A refund goes to where the charge was.
func TestAFallbackRefundsWhereItCharged(t *testing.T) {
	t.Parallel()
	healthy := false
	f := NewFallback(New(redistest.Client(t), false), func() int { return 1 },
		func() bool { return healthy })
	r := bucketOf(t, 5, 24*time.Hour, 0)
	v, err := f.Decide(t.Context(), request(5, r))
	if err != nil || !v.Allowed {
		t.Fatalf("%+v, %v", v, err)
	}
	healthy = true
	if err := f.Refund(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	healthy = false
	if v, err := f.Peek(t.Context(), request(5, r)); err != nil || !v.Allowed {
		t.Errorf("%+v, %v", v, err)
	}
}

package region

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/limits"
)

// Three regions with a Redis each keep one limit together: in any window they admit at most the
// limit and what arrives within one interval.
func TestThreeRegionsKeepOneLimitTogether(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	if n := w.all[0].Regions(); n != 3 {
		t.Fatalf("%d regions have met", n)
	}
	for _, a := range exact {
		t.Run(string(a), func(t *testing.T) {
			r := compile(t, limits.Limit{Algorithm: a, Amount: 60, Window: time.Minute})
			const perTurn = 4 // requests of each region in half an interval
			const arrives = 2 * 3 * perTurn
			var in []time.Time
			for range 2 * 60 * 3 { // three minutes
				for _, x := range w.all {
					for range perTurn {
						if decide(t, x.limiter, request(1, r)).Allowed {
							in = append(in, w.clock.time())
						}
					}
				}
				w.clock.pass(500 * time.Millisecond)
				w.turn(t.Context())
			}
			// What the algorithm itself lets through in a window, on one Redis: docs/limits.md.
			most := map[limits.Algorithm]int{
				limits.FixedWindow: 120, limits.SlidingWindowLog: 60,
				limits.SlidingWindowCounter: 120, limits.TokenBucket: 120, limits.LeakyBucket: 120,
			}[a]
			first := 0
			for i, at := range in {
				for !in[first].After(at.Add(-time.Minute)) {
					first++
				}
				if n := i - first + 1; n > most+arrives {
					t.Fatalf("%d admitted in a minute, of at most %d and %d that came in a second",
						n, most, arrives)
				}
			}
			if len(in) < 3*60-arrives {
				t.Errorf("%d admitted in three minutes: the regions hold each other back",
					len(in))
			}
			if len(in) > 4*60+3*arrives {
				t.Errorf("%d admitted in three minutes at 60 a minute", len(in))
			}
		})
	}
}

// Refunds reach the other regions too.
func TestARefundIsGivenBackEverywhere(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	here, there := w.all[0].limiter, w.all[1].limiter
	for _, a := range exact {
		t.Run(string(a), func(t *testing.T) {
			r := compile(t, limits.Limit{Algorithm: a, Amount: 10, Window: 24 * time.Hour})
			v := decide(t, here, request(7, r))
			w.turn(t.Context())
			w.turn(t.Context())
			if n := standing(t, there, r).Remaining; n != 3 {
				t.Errorf("%d remain elsewhere of 10 after 7", n)
			}
			if err := here.Refund(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			w.turn(t.Context())
			w.turn(t.Context())
			if a == limits.SlidingWindowLog {
				return // elsewhere it was logged at another moment, and leaves with its window
			}
			if n := standing(t, there, r).Remaining; n != 10 {
				t.Errorf("%d remain elsewhere after all was given back", n)
			}
		})
	}
}

// While the centre is lost, each region goes on with its share of every limit. When it is back, the
// whole limits hold again, and the regions send what they spent meanwhile.
func TestALostCentreFallsBackToShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		share float64
		part  int
	}{{0, 20}, {0.5, 30}} {
		t.Run(fmt.Sprint("share ", c.share), func(t *testing.T) {
			t.Parallel()
			w := startRegions(t, c.share)
			w.centre.Kill()
			lost := func(want bool) {
				t.Helper()
				for range 2*lostAfter + 2 {
					w.clock.pass(500 * time.Millisecond)
					w.turn(t.Context())
				}
				for _, x := range w.all {
					if x.Lost() != want {
						t.Fatalf("%s: lost %v", x.name, x.Lost())
					}
				}
			}
			lost(true)
			r := compile(t, perDay(60))
			for _, x := range w.all {
				if n := admitted(t, x.limiter, 100, r); n != c.part {
					t.Errorf("%s admits %d of 60, its share is %d", x.name, n, c.part)
				}
				if l := standing(t, x.limiter, r).Rule.Limit(); l.Amount != int64(c.part) {
					t.Errorf("clients see a limit of %d", l.Amount)
				}
			}
			w.centre.Restart()
			lost(false)
			for _, x := range w.all {
				n := standing(t, x.limiter, r).Remaining
				if want := max(0, 60-3*int64(c.part)); n != want {
					t.Errorf("%s: %d remain, want %d: what was spent without the centre is sent",
						x.name, n, want)
				}
			}
		})
	}
}

// In a region one process at a time receives. If it dies, another takes over. A process that starts
// without the centre knows how many regions there are.
func TestOneProcessOfARegionReceives(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	first := w.all[0]
	second := w.process(t, Config{Name: first.name, Process: "another",
		Own: first.own, Centre: first.centre})
	r := compile(t, limits.Limit{Algorithm: limits.TokenBucket, Amount: 10, Window: 24 * time.Hour})
	admitted(t, w.all[1].limiter, 4, r)
	for range 3 {
		w.all[1].exchange(t.Context())
		first.exchange(t.Context())
		second.exchange(t.Context())
	}
	if n := standing(t, first.limiter, r).Remaining; n != 6 {
		t.Errorf("%d remain of 10 after 4 elsewhere", n)
	}
	admitted(t, w.all[1].limiter, 1, r)
	w.all[1].exchange(t.Context())
	ended, end := context.WithCancel(t.Context())
	end()
	first.Run(ended) // it stops in good order: the other can receive at once
	second.exchange(t.Context())
	first.exchange(t.Context())
	if n := standing(t, first.limiter, r).Remaining; n != 5 {
		t.Errorf("%d remain of 10 after 5 elsewhere", n)
	}
	// A process that dies is missed for its lease, which is little longer than an interval.
	lease := first.own.PTTL(t.Context(), receiverKey).Val()
	if lease <= 0 || lease > 3*time.Second/2 {
		t.Errorf("the lease is %v", lease)
	}
	third := w.process(t, Config{Own: first.own})
	third.recall(t.Context())
	if third.Regions() != 3 {
		t.Errorf("a process that starts knows of %d regions", third.Regions())
	}
}

// A region that can't receive what the others spend, for example because another process holds the
// lease and is stuck, falls back to its share too.
func TestARegionThatReceivesNothingTakesItsShare(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	deaf := w.all[0]
	deaf.own.Set(t.Context(), receiverKey, "stuck", 0)
	for range 2*lostAfter + 2 {
		w.clock.pass(500 * time.Millisecond)
		deaf.own.Del(t.Context(), receivedKey) // it expires by Redis's clock
		w.turn(t.Context())
	}
	if !deaf.Lost() || w.all[1].Lost() {
		t.Errorf("lost: %v, another region %v", deaf.Lost(), w.all[1].Lost())
	}
}

// However much the others spend, it is debited.
func TestLargeDebitsAreTaken(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	r := compile(t, perDay(limits.MaxAmount))
	for _, x := range w.all[:2] {
		if !decide(t, x.limiter, request(600_000_000, r)).Allowed {
			t.Fatal("refused")
		}
	}
	w.turn(t.Context())
	w.turn(t.Context())
	if n := standing(t, w.all[2].limiter, r).Remaining; n != 0 {
		t.Errorf("%d remain of a billion after 1.2 of them elsewhere", n)
	}
}

// While a region's own Redis is lost, each process goes on with its part of the region's share, and
// sends what it spends.
func TestARegionWithoutItsRedisGoesOnWithItsShare(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	w.clock.now.Store(time.Now().UnixMicro()) // without Redis a process counts by its own clock
	r := compile(t, perDay(60))
	f := limits.NewFallback(w.all[0].limiter, func() int { return 2 }, func() bool { return false })
	in := 0
	for range 60 {
		if v, err := f.Decide(t.Context(), request(1, r)); err != nil {
			t.Fatal(err)
		} else if v.Allowed {
			in++
		}
	}
	if in != 10 {
		t.Errorf("%d admitted by one of two processes of one of three regions, of 60", in)
	}
	w.turn(t.Context())
	w.turn(t.Context())
	if n := standing(t, w.all[1].limiter, r).Remaining; n != 50 {
		t.Errorf("%d remain elsewhere, of 60 after 10", n)
	}
}

// Every key of the exchange has a TTL, an unreadable entry is passed over, and a debit never lets a
// region admit more.
func TestTheExchangeIsBoundedAndSafe(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	r := compile(t, limits.Limit{Algorithm: limits.TokenBucket, Amount: 10, Window: 24 * time.Hour})
	admitted(t, w.all[0].limiter, 3, r)
	w.turn(t.Context())
	centre := w.centre.Client(t)
	texts := rapid.OneOf(rapid.String(),
		rapid.Just(`{"fb:{x}:limit:a:b":{"p":[9,0,0,0,0],"c":-1,"t":0}}`),
		rapid.Just(`{"k":{"p":[1,0,0,0,0],"c":9e18}}`))
	rapid.Check(t, func(rt *rapid.T) {
		values := []any{"region", "elsewhere", "spent", texts.Draw(rt, "spent")}
		entry := &redis.XAddArgs{Stream: spentKey, Values: values}
		if err := centre.XAdd(t.Context(), entry).Err(); err != nil {
			rt.Fatal(err)
		}
	})
	w.turn(t.Context())
	for _, x := range w.all {
		if n := standing(t, x.limiter, r).Remaining; n != 7 {
			t.Errorf("%s: %d remain of 10 after 3", x.name, n)
		}
		for _, key := range x.own.Keys(t.Context(), "*").Val() {
			if ttl := x.own.TTL(t.Context(), key).Val(); ttl <= 0 {
				t.Errorf("%s has TTL %v", key, ttl)
			}
		}
	}
	for _, key := range []string{spentKey, regionsKey} {
		if ttl := centre.TTL(t.Context(), key).Val(); ttl <= 0 {
			t.Errorf("%s has TTL %v", key, ttl)
		}
	}
}

// Regions exchange spent and refunded bytes as bytes.
func TestBytesAreExchangedBetweenRegions(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	upload := perDay(1000)
	upload.Bytes = true
	rule := compile(t, upload)
	r := request(1, rule)
	r.Bytes = 700
	v := decide(t, w.all[0].limiter, r)
	for _, want := range []int64{300, 1000} {
		w.turn(t.Context())
		w.turn(t.Context())
		if n := standing(t, w.all[1].limiter, rule).Remaining; n != want {
			t.Errorf("%d bytes remain elsewhere, not %d", n, want)
		}
		if err := w.all[0].limiter.Refund(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
}

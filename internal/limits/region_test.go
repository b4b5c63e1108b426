package limits

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/redistest"
)

// regions are three regions, each on a Redis server of its own, and the centre. Their time is the test's, and so are their turns.
type regions struct {
	clock  *clock
	centre *redistest.Server
	all    [3]*Region
}

// startRegions starts the servers. All count on one clock.
func startRegions(t *testing.T, share float64) *regions {
	t.Helper()
	w := &regions{clock: newClock(), centre: redistest.Start(t)}
	for i := range w.all {
		rdb := redistest.Start(t).Client(t)
		l := w.clock.onRedis(rdb)
		w.all[i] = l.Together(RegionConfig{Name: fmt.Sprint("region-", i), Process: fmt.Sprint("process-", i), Own: rdb, Centre: w.centre.Client(t),
			Every: time.Second, Share: share, Log: slog.New(slog.DiscardHandler)})
		w.all[i].clock = func() time.Time { return time.UnixMicro(w.clock.now.Load()) }
		w.all[i].met.Store(w.clock.now.Load() * 1000)
	}
	w.turn(t.Context()) // they meet, and begin to hear
	w.turn(t.Context())
	return w
}

// turn lets half an interval end: each region tells and hears.
func (w *regions) turn(ctx context.Context) {
	for _, r := range w.all {
		r.exchange(ctx)
	}
}

// Three regions with a Redis each keep one limit together: in any window they admit at most the limit and what arrives within one
// interval.
func TestThreeRegionsKeepOneLimitTogether(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	if n := w.all[0].Regions(); n != 3 {
		t.Fatalf("%d regions have met", n)
	}
	for _, a := range exact {
		t.Run(string(a), func(t *testing.T) {
			r := compile(t, Limit{Algorithm: a, Amount: 60, Window: time.Minute})
			const perTurn = 4 // requests of each region in half an interval
			const arrives = 2 * 3 * perTurn
			var in []time.Time
			for range 2 * 60 * 3 { // three minutes
				for _, region := range w.all {
					for range perTurn {
						if decide(t, region.limiter, request(1, r)).Allowed {
							in = append(in, time.UnixMicro(w.clock.now.Load()))
						}
					}
				}
				w.clock.pass(500 * time.Millisecond)
				w.turn(t.Context())
			}
			// What the algorithm itself lets through in a window, on one Redis: docs/limits.md.
			most := map[Algorithm]int{FixedWindow: 120, SlidingWindowLog: 60, SlidingWindowCounter: 60 * 2, TokenBucket: 120, LeakyBucket: 120}[a]
			first := 0
			for i, at := range in {
				for !in[first].After(at.Add(-time.Minute)) {
					first++
				}
				if n := i - first + 1; n > most+arrives {
					t.Fatalf("%d admitted in a minute by three regions, of at most %d and what arrives in a second, %d", n, most, arrives)
				}
			}
			if len(in) < 3*60-arrives {
				t.Errorf("%d admitted in three minutes: the regions hold each other back", len(in))
			}
			if len(in) > 4*60+3*arrives {
				t.Errorf("%d admitted in three minutes at 60 a minute", len(in))
			}
		})
	}
}

// A client that obeys its region's Retry-After, and what is given back, are right over the regions too.
func TestWhatIsGivenBackIsGivenBackEverywhere(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	each(t, 10, 24*time.Hour, func(t *testing.T, r *Rule) {
		here, there := w.all[0].limiter, w.all[1].limiter
		v := decide(t, here, request(7, r))
		w.turn(t.Context())
		w.turn(t.Context())
		if n := peekAt(t, there, request(1, r)).Standings[0].Remaining; n != 3 {
			t.Errorf("%d remain elsewhere of 10 after 7", n)
		}
		if err := here.Refund(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		w.turn(t.Context())
		w.turn(t.Context())
		if r.limit.Algorithm == SlidingWindowLog {
			return // what was given back is told; elsewhere it was logged at another moment, and leaves with its window
		}
		if n := peekAt(t, there, request(1, r)).Standings[0].Remaining; n != 10 {
			t.Errorf("%d remain elsewhere after all was given back", n)
		}
	})
}

// Where the centre is lost each region goes on with its share of every limit; when it is back they are together again, and what was
// spent meanwhile is told.
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
				for _, region := range w.all {
					if region.Lost() != want {
						t.Fatalf("%s: lost %v", region.name, region.Lost())
					}
				}
			}
			lost(true)
			r := compile(t, Limit{Algorithm: FixedWindow, Amount: 60, Window: 24 * time.Hour})
			for _, region := range w.all {
				if n := admitted(t, region.limiter, 100, r); n != c.part {
					t.Errorf("%s admits %d of 60, its share is %d", region.name, n, c.part)
				}
				if l := peekAt(t, region.limiter, request(1, r)).Standings[0].Rule.Limit(); l.Amount != int64(c.part) {
					t.Errorf("clients are told of %d", l.Amount)
				}
			}
			w.centre.Restart()
			lost(false)
			for _, region := range w.all {
				v := peekAt(t, region.limiter, request(1, r))
				if want := max(0, 60-3*int64(c.part)); v.Standings[0].Remaining != want {
					t.Errorf("%s: %d remain, want %d: what was spent without the centre is told", region.name, v.Standings[0].Remaining, want)
				}
			}
		})
	}
}

// In a region one process at a time hears; where it dies another takes over, and a process that starts without the centre knows how many
// regions there are.
func TestOneProcessOfARegionHears(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	first := w.all[0]
	rdb := redistest.Client(t)
	second := w.clock.onRedis(rdb).Together(RegionConfig{Name: first.name, Process: "another", Own: first.own, Centre: first.centre, Every: time.Second,
		Log: slog.New(slog.DiscardHandler)})
	second.limiter = first.limiter // one Redis
	r := bucketOf(t, 10, 24*time.Hour, 0)
	admitted(t, w.all[1].limiter, 4, r)
	for range 3 {
		w.all[1].exchange(t.Context())
		first.exchange(t.Context())
		second.exchange(t.Context())
	}
	if n := peekAt(t, first.limiter, request(1, r)).Standings[0].Remaining; n != 6 {
		t.Errorf("%d remain of 10 after 4 elsewhere", n)
	}
	admitted(t, w.all[1].limiter, 1, r)
	w.all[1].exchange(t.Context())
	ended, end := context.WithCancel(t.Context())
	end()
	first.Run(ended) // it stops in good order: the other hears at once
	second.exchange(t.Context())
	first.exchange(t.Context())
	if n := peekAt(t, first.limiter, request(1, r)).Standings[0].Remaining; n != 5 {
		t.Errorf("%d remain of 10 after 5 elsewhere", n)
	}
	// One that dies is missed for its lease, which is little longer than an interval.
	if lease := first.own.PTTL(t.Context(), hearerKey).Val(); lease <= 0 || lease > 3*time.Second/2 {
		t.Errorf("the lease is %v", lease)
	}
	third := w.clock.onRedis(rdb).Together(RegionConfig{Own: first.own, Log: slog.New(slog.DiscardHandler)})
	third.recall(t.Context())
	if third.Regions() != 3 {
		t.Errorf("a process that starts knows of %d regions", third.Regions())
	}
}

// A region that can't hear what others spend, as where another process holds the lease and is stuck, falls back to its share too.
func TestARegionThatHearsNothingTakesItsShare(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	deaf := w.all[0]
	deaf.own.Set(t.Context(), hearerKey, "stuck", 0)
	for range 2*lostAfter + 2 {
		w.clock.pass(500 * time.Millisecond)
		deaf.own.Del(t.Context(), heardKey) // its time runs on Redis's clock
		w.turn(t.Context())
	}
	if !deaf.Lost() || w.all[1].Lost() {
		t.Errorf("lost: %v, another region %v", deaf.Lost(), w.all[1].Lost())
	}
}

// However much others spend, it is taken.
func TestLargeDebitsAreTaken(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	r := compile(t, Limit{Algorithm: FixedWindow, Amount: MaxAmount, Window: 24 * time.Hour})
	for _, region := range w.all[:2] {
		if !decide(t, region.limiter, request(600_000_000, r)).Allowed {
			t.Fatal("refused")
		}
	}
	w.turn(t.Context())
	w.turn(t.Context())
	if n := peekAt(t, w.all[2].limiter, request(1, r)).Standings[0].Remaining; n != 0 {
		t.Errorf("%d remain of a billion after 1.2 of them elsewhere", n)
	}
}

// A region whose own Redis is lost goes on with its part, by each process's part of that, and what it spends is told.
func TestARegionWithoutItsRedisGoesOnWithItsPart(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	r := compile(t, Limit{Algorithm: FixedWindow, Amount: 60, Window: 24 * time.Hour})
	f := NewFallback(w.all[0].limiter, func() int { return 2 }, func() bool { return false })
	f.own = w.clock.local()
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
	if n := peekAt(t, w.all[1].limiter, request(1, r)).Standings[0].Remaining; n != 50 {
		t.Errorf("%d remain elsewhere, of 60 after 10", n)
	}
}

// Every key of the exchange has a TTL, an entry nobody can read is passed over, and a debit never lets a region admit more.
func TestTheExchangeIsBoundedAndSafe(t *testing.T) {
	t.Parallel()
	w := startRegions(t, 0)
	r := bucketOf(t, 10, 24*time.Hour, 0)
	admitted(t, w.all[0].limiter, 3, r)
	w.turn(t.Context())
	centre := w.centre.Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Just(`{"fb:{x}:limit:a:b":{"p":[9,0,0,0,0],"c":-1,"t":0}}`), rapid.Just(`{"k":{"p":[1,0,0,0,0],"c":9e18}}`)).Draw(rt, "spent")
		if err := centre.XAdd(t.Context(), &redis.XAddArgs{Stream: spentKey, Values: []any{"region", "elsewhere", "spent", text}}).Err(); err != nil {
			rt.Fatal(err)
		}
	})
	w.turn(t.Context())
	for _, region := range w.all {
		if n := peekAt(t, region.limiter, request(1, r)).Standings[0].Remaining; n != 7 {
			t.Errorf("%s: %d remain of 10 after 3", region.name, n)
		}
		for _, key := range region.own.Keys(t.Context(), "*").Val() {
			if ttl := region.own.TTL(t.Context(), key).Val(); ttl <= 0 {
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

// Regions without a centre each keep their share, and together the whole: however much comes to each.
func TestSharesAddUpToTheLimit(t *testing.T) {
	t.Parallel()
	c := newClock()
	limiters := map[float64]*Limiter{}
	for _, share := range []float64{0.5, 0.3, 0.2} {
		limiters[share] = c.onRedis(redistest.Start(t).Client(t))
	}
	each(t, 60, 24*time.Hour, func(t *testing.T, r *Rule) {
		all := 0
		for share, l := range limiters {
			part, err := r.Scaled(share)
			if err != nil {
				t.Fatal(err)
			}
			n := admitted(t, l, 100, part)
			if want := int(60*share + 0.5); n != want {
				t.Errorf("%d admitted by a share of %v of 60, want %d", n, share, want)
			}
			all += n
		}
		if all != 60 {
			t.Errorf("%d admitted by all regions, of 60", all)
		}
	})
}

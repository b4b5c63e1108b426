package limits

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/redistest"
)

// C25: under load on every algorithm, no key is without a TTL.
func TestEveryKeyEnds(t *testing.T) {
	t.Parallel()
	for name, rdb := range map[string]redis.UniversalClient{
		"redis": redistest.Client(t), "miniredis": redistest.Miniredis(t),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience)
			rules := []*Rule{
				counterOf(t, 1000, time.Hour), permitsOf(t, 20),
				compile(t, Limit{Algorithm: FixedWindow, Amount: 1000, Window: Month}),
				compile(t, Limit{Algorithm: TokenBucket, Per: PerGlobal, Amount: 100,
					Window: time.Minute}),
				compile(t, Limit{Algorithm: SlidingWindowLog, Amount: 5, Window: time.Hour,
					Shadow: true}),
			}
			for _, a := range exact {
				short := Limit{Algorithm: a, Amount: 50, Window: time.Second}
				rules = append(rules, compile(t, short))
			}
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for j := range 50 {
						r := request(1, rules...)
						r.Subject.Client, r.Job = fmt.Sprint("client", i%3), fmt.Sprint(i, j)
						v, err := l.Decide(t.Context(), r)
						if err == nil && i%2 == 0 {
							err = l.Refund(t.Context(), v)
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			for i, r := range rules {
				keys, err := rdb.Keys(t.Context(), "*:limit:"+r.limit.Name+":*").Result()
				// On a busy machine, all keys of the others may have expired.
				if err != nil || len(keys) == 0 && i < 5 {
					t.Fatalf("%d keys of a %s, %v", len(keys), r.limit.Algorithm, err)
				}
				for _, key := range keys {
					// -2: it has expired meanwhile.
					if ttl, err := rdb.PTTL(t.Context(), key).Result(); err != nil || ttl == -1 {
						t.Errorf("%s has TTL %v, %v", key, ttl, err)
					}
				}
			}
		})
	}
}

// spoil returns ways to spoil the key of a rule, for a test at now.
func spoil(rdb redis.UniversalClient, r *Rule, now int64) map[string]func(string) []redis.Cmder {
	ctx, index := context.Background(), now/r.limit.Window.Microseconds()
	text := func(format string, args ...any) func(string) []redis.Cmder {
		return func(key string) []redis.Cmder {
			return []redis.Cmder{rdb.Set(ctx, key, fmt.Sprintf(format, args...), 0)}
		}
	}
	list := func(entries ...any) func(string) []redis.Cmder {
		return func(key string) []redis.Cmder {
			return []redis.Cmder{rdb.RPush(ctx, key, entries...)}
		}
	}
	entry := func(at, cost int64) string { return fmt.Sprintf("%d %d", at, cost) }
	ways := map[string]func(string) []redis.Cmder{
		"nonsense":      text("x"),
		"empty":         text(""),
		"negative":      text("-5 -5 -5"),
		"two negatives": text("-5 -5"),
		"exponents":     text("1e3 1e3 1e3"),
		"a hash": func(key string) []redis.Cmder {
			return []redis.Cmder{rdb.HSet(ctx, key, "not", "a string")}
		},
		"a list of nonsense": list("x", "y", "z"),
		"a set of permits": func(key string) []redis.Cmder {
			return []redis.Cmder{rdb.ZAdd(ctx, key, redis.Z{Score: 1, Member: "job"})}
		},
	}
	switch r.limit.Algorithm {
	case TokenBucket, LeakyBucket:
		ways["over the limit"] = text("%d %d", int64(1e15), now)
		ways["far ahead"] = text("0 %d", now*2)
	case FixedWindow:
		ways["over the limit"] = text("%d 99999", index)
		ways["far ahead"] = text("%d 10", index+1_000_000)
	case SlidingWindowCounter:
		ways["over the limit"] = text("%d 99999 99999", index)
		ways["far ahead"] = text("%d 10 10", index+1_000_000)
	case SlidingWindowLog:
		ways["over the limit"] = list(entry(99999, now), entry(now, 99999))
		ways["far ahead"] = list(entry(20, now*2), entry(now, 10), entry(now*2, 10))
		ways["a sum too large"] = list(entry(99999, now), entry(now-1, 1))
		ways["a sum too small"] = list(entry(0, now), entry(now-40_000_000, 10))
		ways["entries ahead"] = list(entry(10, now), entry(now*2, 10))
		ways["no entries"] = list(entry(10, now))
		ways["entries of nonsense"] = list(entry(10, now), "x", "-5 -5", "1e3 1e3")
	}
	return ways
}

// C25: a key without a TTL that has a count over the limit, or nonsense, counts correctly again
// within a window.
func TestASpoiledKeyHeals(t *testing.T) {
	t.Parallel()
	for name, rdb := range map[string]redis.UniversalClient{
		"redis": redistest.Client(t), "miniredis": redistest.Miniredis(t),
	} {
		t.Run(name, func(t *testing.T) {
			each(t, 10, time.Minute, func(t *testing.T, r *Rule) {
				c := newClock()
				l := c.onRedis(rdb)
				c.pass(10 * time.Second)
				key := keyOf(t, r)
				for name, spoil := range spoil(rdb, r, c.now.Load()) {
					c.now.Store(start.Add(10 * time.Second).UnixMicro())
					rdb.Del(t.Context(), key)
					for _, cmd := range spoil(key) {
						if cmd.Err() != nil {
							t.Fatal(cmd.Err())
						}
					}
					v := decide(t, l, request(1, r))
					// A counter over its limit is refused for as long as one at its limit: to the
					// end of the window and a tenth of the next.
					if s := v.Standings[0]; s.Remaining < 0 || s.Remaining > 9 ||
						v.RetryAfter > time.Minute {
						t.Errorf("%s: %+v", name, s)
					}
					c.pass(time.Minute / 2)
					if s := peekAt(t, l, request(1, r)).Standings[0]; s.Remaining > 10 ||
						s.RetryAfter > time.Minute {
						t.Errorf("%s: half a window later %+v", name, s)
					}
					c.pass(time.Minute / 2)
					v = decide(t, l, request(1, r))
					if !v.Allowed || v.Standings[0].Remaining > 9 {
						t.Errorf("%s: a window later %+v", name, v)
					}
					if ttl := rdb.PTTL(t.Context(), key).Val(); ttl <= 0 {
						t.Errorf("%s: TTL %v a window later", name, ttl)
					}
				}
			})
		})
	}
}

// No key expires while its count still matters, and none outlives two windows, or twice the time in
// which a bucket fills.
func TestTTLsFitTheCounts(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	const slack = time.Hour // TTLs run on Redis's time, which the test doesn't set
	rapid.Check(t, func(rt *rapid.T) {
		c := newClock()
		l := newLimiter(&script{rdb: rdb, clock: c.now.Load, slack: slack}, false, patience)
		r := anyLimit(rt, redistest.Name(t, "ttl"))
		key, begun := keyOf(t, r), time.Now()
		for i := range 20 {
			// The pause passes for the key too.
			pause := anyPause(rt, []*Rule{r})
			c.pass(pause)
			if ttl := rdb.PTTL(t.Context(), key).Val() - pause; ttl <= slack {
				rdb.Del(t.Context(), key)
			} else {
				rdb.PExpire(t.Context(), key, ttl)
			}
			q := request(min(r.capacity, anyCost(rt, []*Rule{r})), r)
			q.Job, q.Bytes = fmt.Sprint(i), q.Cost // each limit counts one of them
			v := decide(t, l, q)
			s := v.Standings[0]
			if s.Violated { // or a shadow limit that would have refused
				continue
			}
			ttl := rdb.PTTL(t.Context(), key).Val() - slack
			matters, most := s.Reset, 2*r.limit.Window
			switch a := r.arithmetic.(type) {
			case bucket:
				most = 2 * micros(a.period)
			case counter: // to the end of the next window, whatever is left
				matters = most - micros(v.At.UnixMicro()%r.limit.Window.Microseconds())
			case fixed:
				most = matters
			case log: // its newest entry leaves after a window, whenever the oldest does
				matters, most = r.limit.Window, r.limit.Window
			case concurrency:
				matters, most = permitsLast*time.Millisecond, permitsLast*time.Millisecond
			}
			// Each step loses a millisecond to rounding.
			if ttl < matters-time.Since(begun)-40*time.Millisecond || ttl > most {
				rt.Fatalf("TTL is %v, the count matters for %v, and at most %v would do",
					ttl, matters, most)
			}
		}
	})
}

// In service, a key outlives its use by a second.
func TestAKeyOutlivesItsUse(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	l := New(rdb, false)
	each(t, 10, time.Hour, func(t *testing.T, r *Rule) {
		begun := time.Now()
		v := decide(t, l, request(1, r))
		ttl := rdb.PTTL(t.Context(), keyOf(t, r)).Val()
		used := v.Standings[0].Reset
		switch r.limit.Algorithm {
		case SlidingWindowCounter:
			used += time.Hour
		case TokenBucket, LeakyBucket:
			used = 2 * time.Hour // so that not each request renews it
		}
		if over := ttl - used; over > time.Second ||
			over < time.Second-time.Since(begun)-2*time.Millisecond {
			t.Errorf("a key that matters for %v has TTL %v", used, ttl)
		}
	})
}

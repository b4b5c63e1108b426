package admission

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"forebay/internal/redistest"
)

// keyOf is r's key for alice.
func keyOf(t testing.TB, r *Rule) string {
	t.Helper()
	q, err := request(1, r).question(peek)
	if err != nil {
		t.Fatal(err)
	}
	return q.keys[0]
}

// C24: ten million in 30 days are counted to the last one, by this process and by the next, and no digit is lost on the way into Redis.
func TestLargeNumbersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	for name, rdb := range map[string]redis.UniversalClient{"redis": redistest.Client(t), "miniredis": redistest.Miniredis(t)} {
		t.Run(name, func(t *testing.T) {
			const month = 30 * 24 * time.Hour
			each(t, 10_000_000, month, func(t *testing.T, r *Rule) {
				for i, want := range []int64{9_999_999, 9_999_998} {
					l := newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience) // each time a new process
					v := decide(t, l, request(1, r))
					s := v.Standings[0]
					if !v.Allowed || s.Remaining != want {
						t.Errorf("%d remain, not %d", s.Remaining, want)
					}
					reset := time.Duration(i+1) * month / 10_000_000
					if r.limit.Algorithm == SlidingWindowCounter {
						reset = month - time.Duration(time.Now().UnixMicro()%month.Microseconds())*time.Microsecond
					}
					if off := (s.Reset - reset).Abs(); off > time.Second {
						t.Errorf("reset is %v off", off)
					}
				}
				kept, err := rdb.Get(t.Context(), keyOf(t, r)).Result()
				if err != nil || !regexp.MustCompile(`^\d+( \d+)+$`).MatchString(kept) {
					t.Errorf("Redis holds %q, %v", kept, err)
				}
			})
		})
	}
}

// C25: under load of both algorithms no key is without a TTL.
func TestEveryKeyEnds(t *testing.T) {
	t.Parallel()
	for name, rdb := range map[string]redis.UniversalClient{"redis": redistest.Client(t), "miniredis": redistest.Miniredis(t)} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience)
			rules := []*Rule{
				bucketOf(t, 50, time.Second, 0), counterOf(t, 50, time.Second), counterOf(t, 1000, time.Hour),
				compile(t, Limit{Algorithm: TokenBucket, Per: PerGlobal, Amount: 100, Window: time.Minute}),
			}
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for range 50 {
						r := request(1, rules...)
						r.Subject.Client = fmt.Sprint("client", i%3)
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
			for _, r := range rules {
				keys, err := rdb.Keys(t.Context(), "*:limit:"+r.limit.Name+":*").Result()
				if err != nil || len(keys) == 0 {
					t.Fatalf("%d keys, %v", len(keys), err)
				}
				for _, key := range keys {
					// -2: it has ended meanwhile.
					if ttl, err := rdb.PTTL(t.Context(), key).Result(); err != nil || ttl == -1 {
						t.Errorf("%s has TTL %v, %v", key, ttl, err)
					}
				}
			}
		})
	}
}

// C25: a key that somebody made persistent, with a count over the limit or with nonsense, heals within a window.
func TestASpoiledKeyHeals(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	each(t, 10, time.Minute, func(t *testing.T, r *Rule) {
		c := newClock()
		l := c.onRedis(rdb)
		c.pass(10 * time.Second)
		states := map[string]func(now, index int64) string{
			"nonsense":       func(_, _ int64) string { return "x" },
			"empty":          func(_, _ int64) string { return "" },
			"negative":       func(_, _ int64) string { return "-5 -5 -5" },
			"exponents":      func(_, _ int64) string { return "1e3 1e3 1e3" },
			"over the limit": func(_, index int64) string { return fmt.Sprintf("%d 99999 99999", index) },
			"far ahead":      func(_, index int64) string { return fmt.Sprintf("%d 10 10", index+1_000_000) },
		}
		if r.limit.Algorithm == TokenBucket {
			states["over the limit"] = func(now, _ int64) string { return fmt.Sprintf("%d %d", int64(1e15), now) }
			states["far ahead"] = func(now, _ int64) string { return fmt.Sprintf("0 %d", now*2) }
		}
		for name, state := range states {
			key := keyOf(t, r)
			now := c.now.Load()
			if err := rdb.Set(t.Context(), key, state(now, now/time.Minute.Microseconds()), 0).Err(); err != nil {
				t.Fatal(err)
			}
			v := decide(t, l, request(1, r))
			// A counter over its limit is refused for as long as one at its limit: to the end of the window and a tenth of the next.
			if s := v.Standings[0]; s.Remaining < 0 || s.Remaining > 9 || v.RetryAfter > 56*time.Second {
				t.Errorf("%s: %+v", name, s)
			}
			c.pass(time.Minute)
			if v := decide(t, l, request(1, r)); !v.Allowed {
				t.Errorf("%s: refused for %v a window later", name, v.RetryAfter)
			}
			if ttl := rdb.PTTL(t.Context(), key).Val(); ttl <= 0 {
				t.Errorf("%s: TTL %v a window later", name, ttl)
			}
		}
		if err := rdb.Del(t.Context(), keyOf(t, r)).Err(); err != nil {
			t.Fatal(err)
		}
		if err := rdb.HSet(t.Context(), keyOf(t, r), "not", "a string").Err(); err != nil {
			t.Fatal(err)
		}
		if v := decide(t, l, request(1, r)); !v.Allowed {
			t.Errorf("a key of another type: %+v", v)
		}
	})
}

// A TTL never ends a count that still matters, and no key outlives two windows, or two fillings of a bucket.
func TestTTLsFitTheCounts(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	const slack = time.Hour // TTLs run on Redis's time too, which the test doesn't govern
	rapid.Check(t, func(rt *rapid.T) {
		c := newClock()
		l := newLimiter(&script{rdb: rdb, clock: c.now.Load, slack: slack}, false, patience)
		r := anyLimit(rt, redistest.Name(t, "ttl"))
		key, begun := keyOf(t, r), time.Now()
		for range 20 {
			// The pause passes for the key too.
			pause := anyPause(rt, []*Rule{r})
			c.pass(pause)
			if ttl := rdb.PTTL(t.Context(), key).Val() - pause; ttl <= slack {
				rdb.Del(t.Context(), key)
			} else {
				rdb.PExpire(t.Context(), key, ttl)
			}
			v := decide(t, l, request(min(r.capacity, anyCost(rt, []*Rule{r})), r))
			if !v.Allowed {
				continue
			}
			ttl := rdb.PTTL(t.Context(), key).Val() - slack
			matters, most := v.Standings[0].Reset, 2*r.limit.Window
			if b, ok := r.arithmetic.(bucket); ok {
				most = 2 * micros(b.period)
			} else {
				matters += r.limit.Window
			}
			// Each step loses a millisecond to rounding.
			if ttl < matters-time.Since(begun)-40*time.Millisecond || ttl > most {
				rt.Fatalf("TTL is %v, the count matters for %v, and at most %v would do", ttl, matters, most)
			}
		}
	})
}

// In service a key outlives its use by a second.
func TestAKeyOutlivesItsUse(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	l := New(rdb, false)
	r := counterOf(t, 10, time.Hour)
	begun := time.Now()
	v := decide(t, l, request(1, r))
	ttl := rdb.PTTL(t.Context(), keyOf(t, r)).Val()
	used := v.Standings[0].Reset + time.Hour
	if over := ttl - used; over > time.Second || over < time.Second-time.Since(begun)-2*time.Millisecond {
		t.Errorf("a key that matters for %v has TTL %v", used, ttl)
	}
}

// C27: a lost script cache and a restarted Redis cost nothing, and limits go on where they were.
func TestALostScriptCacheIsNoticedByNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	l := newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience)
	each(t, 1000, MaxWindow, func(t *testing.T, r *Rule) {
		admitted(t, l, 10, r)
		done := make(chan struct{})
		var n atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					if _, err := l.Decide(t.Context(), request(1, r)); err != nil {
						t.Errorf("after SCRIPT FLUSH: %v", err)
						return
					}
					n.Add(1)
				}
			})
		}
		for range 5 {
			if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
				t.Error(err)
			}
			for seen := n.Load(); n.Load() < seen+20 && !t.Failed(); {
				time.Sleep(time.Millisecond)
			}
		}
		close(done)
		all.Wait()
		before := peekAt(t, l, request(1, r)).Standings[0].Remaining

		server.Restart()
		for rdb.Ping(t.Context()).Err() != nil { // until the pool has dropped its dead connections
			time.Sleep(time.Millisecond)
		}
		if v := decide(t, l, request(1, r)); v.Allowed && v.Standings[0].Remaining != before-1 || !v.Allowed && before != 0 {
			t.Errorf("%d remained before the restart, %d after one more", before, v.Standings[0].Remaining)
		}
	})
}

// The cost of a batch is pinned: 64 requests of one client over three limits read each key once and write it once.
func TestABatchReadsAndWritesEachKeyOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := &script{rdb: rdb, slack: keySlack}
	rules := []*Rule{bucketOf(t, 100, time.Hour, 0), counterOf(t, 100, time.Hour), counterOf(t, 60, MaxWindow)}
	batch := make([]*question, maxBatch)
	for i := range batch {
		batch[i] = ask(t, request(1, rules...))
	}
	calls := func() map[string]int { return commandCalls(t, rdb) }
	answers, _ := s.decide(t.Context(), batch)
	spent := 0
	for _, a := range answers {
		if a.err != nil {
			t.Fatal(a.err)
		}
		if a.spent {
			spent++
		}
	}
	if spent != 60 {
		t.Errorf("%d of 64 spent, not 60", spent)
	}
	if n := calls(); n["evalsha"]+n["eval"] != 2 || n["mget"] != 1 || n["set"] != 3 { // the first EVALSHA didn't know the script
		t.Errorf("Redis ran %v", n)
	}
	// Refused, they write nothing.
	if _, err := s.decide(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if n := calls(); n["evalsha"] != 2 || n["mget"] != 2 || n["set"] != 3 {
		t.Errorf("after 64 refusals Redis has run %v", n)
	}
	// Many limits make more calls, each of bounded size.
	many := make([]*Rule, 10)
	for i := range many {
		many[i] = bucketOf(t, 100, time.Hour, 0)
	}
	for i := range batch {
		r := request(1, many...)
		r.Subject.Client = strconv.Itoa(i)
		batch[i] = ask(t, r)
	}
	answers, _ = s.decide(t.Context(), batch)
	for i, a := range answers {
		if a.err != nil || !a.spent {
			t.Fatalf("question %d of 640 keys: %+v", i, a)
		}
	}
	if n := calls(); n["evalsha"] != 4 || n["set"] != 643 {
		t.Errorf("after 640 keys Redis has run %v", n)
	}
}

// ask is a request as a source takes it.
func ask(t *testing.T, r Request) *question {
	t.Helper()
	q, err := r.question(spend)
	if err != nil {
		t.Fatal(err)
	}
	q.by = time.Now().Add(patience)
	return q
}

// A question whose asker has given up is not asked; those behind it are.
func TestALateQuestionIsNotCharged(t *testing.T) {
	t.Parallel()
	s := &script{rdb: redistest.Client(t), slack: keySlack}
	r := bucketOf(t, 10, MaxWindow, 0)
	late, inTime := ask(t, request(3, r)), ask(t, request(1, r))
	late.by = time.Now().Add(-time.Millisecond)
	for _, batch := range [][]*question{{late}, {late, late, inTime}} {
		answers, err := s.decide(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range answers {
			if wantErr := batch[i].by.Equal(late.by); (a.err != nil) != wantErr || a.spent == wantErr {
				t.Errorf("question %d: %+v", i, a)
			}
		}
	}
	v := peekAt(t, newLimiter(s, false, patience), request(1, r))
	if n := v.Standings[0].Remaining; n != 9 {
		t.Errorf("%d remain, not 9", n)
	}
}

// commandCalls is how often the server ran each command.
func commandCalls(t *testing.T, rdb redis.UniversalClient) map[string]int {
	t.Helper()
	info, err := rdb.Info(context.WithoutCancel(t.Context()), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]int{}
	for _, m := range regexp.MustCompile(`cmdstat_(\w+):calls=(\d+)`).FindAllStringSubmatch(info, -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		calls[m[1]] = n
	}
	return calls
}

// A reply that isn't what the script's contract says is an error for all of its batch, never a wrong verdict.
func TestAStrangeReplyIsAnError(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	rdb.AddHook(shorten{})
	l := newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience)
	if v, err := l.Decide(t.Context(), request(1, bucketOf(t, 1, time.Hour, 0))); err == nil || v.Allowed {
		t.Errorf("%+v, %v", v, err)
	}
}

// passing is a hook that does nothing.
type passing struct{}

func (passing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (passing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (passing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// shorten drops the last value of every script's reply.
type shorten struct{ passing }

func (shorten) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if reply, ok := cmd.(*redis.IntSliceCmd); ok && err == nil {
			reply.SetVal(reply.Val()[:len(reply.Val())-1])
		}
		return err
	}
}

// C30: no key is made up in the script.
func TestTheScriptTouchesOnlyItsKeys(t *testing.T) {
	t.Parallel()
	for _, call := range regexp.MustCompile(`call\('(\w+)'[^\n]*`).FindAllString(limitsLua, -1) {
		switch {
		case strings.HasPrefix(call, "call('TIME')"), strings.HasPrefix(call, "call('MGET', unpack(KEYS))"), strings.HasPrefix(call, "call('SET', KEYS[k],"):
		default:
			t.Errorf("%s: a key that isn't in KEYS breaks on a cluster", call)
		}
	}
}

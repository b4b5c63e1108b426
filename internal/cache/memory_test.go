package cache_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/redistest"
)

func memory(t *testing.T, inner *cache.Cache, maxBytes int64, healthy func() bool) *cache.Memory {
	t.Helper()
	m := cache.NewMemory(inner, maxBytes, healthy)
	t.Cleanup(m.Close)
	return m
}

// unavailable returns a Memory whose Redis is unavailable.
func unavailable(t *testing.T, maxBytes int64) *cache.Memory {
	t.Helper()
	return memory(t, cache.New(redistest.Unavailable(t)), maxBytes, func() bool { return false })
}

// remember puts an answer into a Memory whose Redis is unavailable.
func remember(t *testing.T, m *cache.Memory, key string, a cache.Answer, keepFor time.Duration) {
	t.Helper()
	if err := m.Put(t.Context(), key, a, keepFor, cache.Owner{}); err != nil &&
		!errors.Is(err, redistest.ErrUnavailable) {
		t.Fatal(err)
	}
}

func answer(body string, age time.Duration) cache.Answer {
	return cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte(body), Age: age}
}

// serves fails the test unless m serves body at key, no younger than age. "" means no answer.
func serves(t *testing.T, m *cache.Memory, key, body string, age time.Duration) {
	t.Helper()
	a, ok, err := m.Get(t.Context(), key)
	switch {
	case body == "" && ok:
		t.Errorf("%s: serves %q, want nothing", key, a.Body)
	case body != "" && (!ok || err != nil):
		t.Errorf("%s: %v, %v, want %q", key, ok, err, body)
	case string(a.Body) != body || a.Age < age || a.Age > age+time.Minute:
		t.Errorf("%s: serves %q of age %v, want %q of %v", key, a.Body, a.Age, body, age)
	}
}

// Case C114: there is a warm entry, and the Redis behind it is down or hangs.
func TestWhatPassedThroughIsServedWhenRedisIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*redistest.Server){
		"killed": (*redistest.Server).Kill,
		"hung":   (*redistest.Server).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			rdb := server.Client(t)
			m := memory(t, cache.New(rdb), 0, nil)

			if err := m.Put(t.Context(), "put", answer("put", time.Minute), time.Hour,
				cache.Owner{}); err != nil {
				t.Fatal(err)
			}
			put(t, rdb, "got", answer("got", 2*time.Minute), time.Hour)
			put(t, rdb, "other", answer("another process's", 0), time.Hour)
			serves(t, m, "got", "got", 2*time.Minute)
			every := make([]byte, 256)
			for i := range every {
				every[i] = byte(i)
			}
			all := cache.Answer{Status: 206, ContentType: "a/b", Body: every, Age: 3 * time.Minute}
			remember(t, m, "remembered", all, time.Hour)

			fail(server)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			ages := map[string]time.Duration{
				"put": time.Minute, "got": 2 * time.Minute, "remembered": 3 * time.Minute,
			}
			for key, age := range ages {
				a, ok, err := m.Get(ctx, key)
				if err != nil || !ok || a.Age < age || a.Age > age+time.Minute {
					t.Errorf("%s: %+v, %v, %v; want it at age %v", key, a, ok, err, age)
				}
			}
			a, _, _ := m.Get(ctx, "remembered")
			if a.Status != 206 || a.ContentType != "a/b" || !bytes.Equal(a.Body, every) {
				t.Errorf("remembered: %+v, want it as it was", a)
			}
			if a, ok, err := m.Get(ctx, "other"); ok || err == nil {
				t.Errorf("an answer that never passed through: %+v, %v, %v; want Redis's error",
					a, ok, err)
			}
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("took %v: longer than the context allows", took)
			}
		})
	}
}

func TestAnUnavailableRedisIsNotAskedAndNotWaitedFor(t *testing.T) {
	t.Parallel()
	m := unavailable(t, 0)
	remember(t, m, "k", answer("known", time.Minute), time.Hour)
	serves(t, m, "k", "known", time.Minute)
	if a, ok, err := m.Get(t.Context(), "unknown"); ok || !errors.Is(err, cache.ErrUnavailable) {
		t.Errorf("%+v, %v, %v; want ErrUnavailable", a, ok, err)
	}
}

// A reply of Redis may be used for a second; then Redis decides again.
func TestTheWordOfAHealthyRedisHolds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	var healthy atomic.Bool
	healthy.Store(true)
	m := memory(t, cache.New(rdb), 0, healthy.Load)
	for _, key := range []string{"replaced", "removed", "older"} {
		if err := m.Put(t.Context(), key, answer("first", time.Minute), time.Hour,
			cache.Owner{}); err != nil {
			t.Fatal(err)
		}
		serves(t, m, key, "first", time.Minute) // its own is seen at once
	}
	put(t, rdb, "replaced", answer("another process's", time.Second), time.Hour)
	rdb.Del(t.Context(), "removed", "older")
	put(t, rdb, "older", answer("older", 10*time.Minute), time.Hour)
	want := map[string]string{"replaced": "another process's", "removed": "", "older": "older"}
	for key, body := range want {
		eventually(t, key, func() bool {
			a, ok, _ := m.Get(t.Context(), key)
			return ok == (body != "") && string(a.Body) == body
		})
	}
	healthy.Store(false) // the answers seen last are the remembered ones
	serves(t, m, "replaced", "another process's", time.Second)
	serves(t, m, "removed", "", 0)
	serves(t, m, "older", "older", 10*time.Minute)

	healthy.Store(true)
	server.Restart() // Redis decides again without further action
	put(t, rdb, "replaced", answer("after the restart", 0), time.Hour)
	eventually(t, "after the restart", func() bool {
		a, _, _ := m.Get(t.Context(), "replaced")
		return string(a.Body) == "after the restart"
	})
}

// eventually waits for a change that is due within about a second, and allows a busy machine ten
// times that.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 10s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestAgeGrowsByTheLocalClockUpToTheLastMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := cache.NewMemory(cache.New(redistest.Unavailable(t)), 0, func() bool { return false })
		defer m.Close() // inside the bubble: the clean-up waits for its clock
		remember(t, m, "k", answer("a", 10*time.Minute), time.Hour)
		remember(t, m, "long", answer("b", 0), 400*24*time.Hour)
		want := func(age time.Duration) {
			t.Helper()
			if a, ok, err := m.Get(t.Context(), "k"); !ok || err != nil || a.Age != age {
				t.Errorf("%v, %v, age %v; want %v", ok, err, a.Age, age)
			}
		}
		want(10 * time.Minute)
		time.Sleep(20*time.Minute + 7)
		want(30*time.Minute + 7)
		want(30*time.Minute + 7) // looking at it doesn't make it younger
		time.Sleep(30*time.Minute - 8)
		want(time.Hour - 1)
		time.Sleep(time.Nanosecond)
		if a, ok, err := m.Get(t.Context(), "k"); ok || !errors.Is(err, cache.ErrUnavailable) {
			t.Errorf("%+v, %v, %v; want nothing at age 1h", a, ok, err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := m.HoldsNow(); n != 1 {
			t.Errorf("holds %d answers, want the long-lived one alone", n)
		}
		time.Sleep(time.Hour)
		if a, ok, _ := m.Get(t.Context(), "long"); !ok ||
			a.Age != time.Hour+50*time.Minute+2*time.Second {
			t.Errorf("long: %v, age %v", ok, a.Age)
		}
	})
}

// Age counts from the backend's answer, by Redis's clock and then by the process's.
func TestAnAnswerReadFromRedisIsNeverServedYoungerThanItIs(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Client(t), cache.Key(redistest.Name(t, "op"), "", nil)
	var healthy atomic.Bool
	healthy.Store(true)
	m := memory(t, cache.New(rdb), 0, healthy.Load)
	put(t, rdb, key, answer("a", 40*time.Minute), time.Hour)
	serves(t, m, key, "a", 40*time.Minute)
	healthy.Store(false)
	for range 200 {
		before, _ := get(t, rdb, key)
		a, ok, err := m.Get(t.Context(), key)
		// Redis rounds to milliseconds, twice
		if least := before.Age - 2*time.Millisecond; !ok || err != nil || a.Age < least {
			t.Fatalf("%v, %v, age %v; Redis said %v before", ok, err, a.Age, before.Age)
		}
	}
}

func TestTheYoungerAnswerIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := cache.NewMemory(cache.New(redistest.Unavailable(t)), 0, func() bool { return false })
		defer m.Close()
		for _, step := range []struct {
			body     string
			age      time.Duration
			staleFor time.Duration
			want     string
		}{
			{"first", time.Minute, time.Hour, "first"},
			// three seconds old by the next step
			{"younger", 2 * time.Second, time.Hour, "younger"},
			{"as young", 3 * time.Second, time.Hour, "as young"},
			{"older", 5 * time.Second, time.Hour, "as young"},
			{"older, longer good", 40 * time.Second, 24 * time.Hour, "as young"},
			{"too old", 2 * time.Minute, time.Minute, "as young"},
			{"as old as it may get", 0, 0, "as young"},
			{"youngest, shorter good", 0, time.Minute, "youngest, shorter good"},
			{"younger than is possible", -time.Hour, time.Minute, "younger than is possible"},
			{"and not for ever", 0, time.Minute, "and not for ever"},
		} {
			remember(t, m, "k", answer(step.body, step.age), step.staleFor)
			if a, ok, _ := m.Get(t.Context(), "k"); !ok || string(a.Body) != step.want ||
				a.Age < 0 {
				t.Errorf("after %q: %v %q of age %v, want %q", step.body, ok, a.Body, a.Age,
					step.want)
			}
			time.Sleep(time.Second)
		}
	})
}

// between calls then between Redis's reply and the caller.
type between struct{ then func() }

func (b between) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return next(ctx, network, addr)
	}
}
func (b between) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (b between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		b.then()
		return err
	}
}

// An answer that this process remembered while a read was under way is younger than the one that
// the read found.
func TestAReadThatWasOvertakenForgetsNothing(t *testing.T) {
	t.Parallel()
	for there, found := range map[string]bool{"none": false, "older": true} {
		t.Run(there, func(t *testing.T) {
			t.Parallel()
			rdb, key := redistest.Client(t), cache.Key(redistest.Name(t, "op"), "", nil)
			if found {
				put(t, rdb, key, answer("older", time.Minute), time.Hour)
			}
			var healthy atomic.Bool
			healthy.Store(true)
			m := memory(t, cache.New(rdb), 0, healthy.Load)
			var once sync.Once
			rdb.AddHook(between{func() {
				once.Do(func() {
					if err := m.Put(t.Context(), key, answer("younger", 0), time.Hour,
						cache.Owner{}); err != nil {
						t.Error(err)
					}
				})
			}})
			if _, ok, err := m.Get(t.Context(), key); ok != found || err != nil {
				t.Fatalf("the read: %v, %v; want %v", ok, err, found)
			}
			healthy.Store(false)
			serves(t, m, key, "younger", 0)
		})
	}
}

// Case C112: the last good answer is served.
func TestABadAnswerIsNeverRemembered(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	m := memory(t, cache.New(server.Client(t)), 0, nil)
	if err := m.Put(t.Context(), "warm", answer("good", time.Minute), time.Hour,
		cache.Owner{}); err != nil {
		t.Fatal(err)
	}
	for _, status := range []int{0, 199, 300, 404, 500, 503} {
		for _, key := range []string{"warm", "cold"} {
			bad := cache.Answer{Status: status, Body: []byte("<html>")}
			if err := m.Put(t.Context(), key, bad, time.Hour,
				cache.Owner{}); !errors.Is(err, cache.ErrNotGood) {
				t.Errorf("status %d: %v, want ErrNotGood", status, err)
			}
		}
	}
	long := cache.Answer{Status: 200, ContentType: strings.Repeat("t", cache.MaxContentType+1)}
	if err := m.Put(t.Context(), "cold", long, time.Hour,
		cache.Owner{}); !errors.Is(err, cache.ErrTooLarge) {
		t.Errorf("a long type: %v, want ErrTooLarge", err)
	}
	server.Kill()
	serves(t, m, "warm", "good", time.Minute)
	serves(t, m, "cold", "", 0)
}

func TestAPutThatRedisDidNotTakeIsRememberedAndReported(t *testing.T) {
	t.Parallel()
	for name, applied := range map[string]bool{"not applied": false, "reply lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, key := redistest.Client(t), cache.Key(redistest.Name(t, "op"), "", nil)
			faults := redistest.NewFaulty(t, rdb)
			m := memory(t, cache.New(rdb), 0, nil)
			faults.FailNext(redistest.Any, applied)
			if err := m.Put(t.Context(), key, answer("a", 0), time.Hour,
				cache.Owner{}); err == nil {
				t.Error("no error")
			}
			faults.FailNext(redistest.Any, applied)
			serves(t, m, key, "a", 0)
			if !applied { // Redis works again, and has no such answer
				serves(t, m, key, "", 0)
			}
		})
	}
}

func TestManyMayUseItAtOnce(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	var calls atomic.Int64
	m := memory(t, cache.New(rdb), 4<<10, func() bool { return calls.Add(1)%2 == 0 })
	var keys []string
	for range 5 {
		keys = append(keys, cache.Key(redistest.Name(t, "op"), "", nil))
	}
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for n := range 100 {
				key := keys[(w+n)%len(keys)]
				switch a := answer(key, time.Duration(n)*time.Millisecond); n % 4 {
				case 0:
					if err := m.Put(t.Context(), key, a, time.Hour, cache.Owner{}); err != nil {
						t.Error(err)
					}
				default:
					a, ok, err := m.Get(t.Context(), key)
					if ok && string(a.Body) != key ||
						err != nil && !errors.Is(err, cache.ErrUnavailable) {
						t.Errorf("%s: %+v, %v, %v", key, a, ok, err)
					}
				}
			}
		})
	}
	all.Wait()
}

// Not parallel: goroutines of other tests would count.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	m := cache.NewMemory(cache.New(redistest.Unavailable(t)), 0, func() bool { return false })
	remember(t, m, "k", answer("known", 0), time.Hour)
	m.Close()
	m.Close()
	serves(t, m, "k", "known", 0) // it works all the same
	goleak.VerifyNone(t, before)
}

// Case C113: every process drops an answer that one process removed, even if it isn't asked for the
// answer and then loses Redis, or missed the message.
func TestWhatOneProcessRemovesEveryProcessForgets(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t) // its own: another test's purge would empty the memory
	var healthy atomic.Bool
	healthy.Store(true)
	gone, missed, stays := cache.Key("op", "", []byte("1")), cache.Key("op", "", []byte("2")),
		cache.Key("op", "", []byte("3"))
	there := memory(t, cache.New(rdb), 0, healthy.Load)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { there.Run(ctx) })
	eventually(t, "it listens and has looked for the first time", func() bool {
		return rdb.PubSubNumSub(t.Context(), cache.ForgottenNews).Val()[cache.ForgottenNews] == 1 &&
			gets(t, rdb) >= 2
	})
	rememberAll := func() {
		for _, key := range []string{gone, missed, stays} {
			put(t, rdb, key, answer("body", 0), time.Hour)
			serves(t, there, key, "body", 0)
		}
	}
	eventually(t, "it remembers", func() bool { // the first look drops earlier answers
		rememberAll()
		n, _ := there.Holds()
		return n == 3
	})
	if err := cache.New(rdb).Forget(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	// As Forget does, but without a message.
	rdb.Del(t.Context(), missed)
	rdb.ZAdd(t.Context(), cache.ForgottenKey,
		redis.Z{Score: float64(rdb.Incr(t.Context(), cache.ForgottenCount).Val()), Member: missed})
	eventually(t, "both are forgotten", func() bool { n, _ := there.Holds(); return n == 1 })
	healthy.Store(false)
	serves(t, there, gone, "", 0)
	serves(t, there, missed, "", 0)
	serves(t, there, stays, "body", 0)
	if ttl := rdb.PTTL(t.Context(), cache.ForgottenKey).Val(); ttl < 366*24*time.Hour {
		t.Errorf("a removal stays on record for %v", ttl)
	}
}

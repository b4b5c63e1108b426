package cache_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/redistest"
)

// gets returns how many GETs a Redis has run.
func gets(t *testing.T, rdb redis.UniversalClient) int {
	t.Helper()
	info, err := rdb.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	calls := regexp.MustCompile(`cmdstat_get(?:range)?:calls=(\d+)`)
	for _, found := range calls.FindAllStringSubmatch(info, -1) {
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// Issue 5, point 5: many equal requests at once.
func TestACrowdReadsRedisOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stored bool
		most   int
	}{
		"an answer": {true, 1},
		// A caller that joins a read under way asks for another one, and so do the callers after
		// it.
		"none there": {false, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			rdb := server.Client(t)
			m := memory(t, cache.New(rdb), 0, nil)
			if c.stored {
				put(t, rdb, "k", answer("one", time.Minute), time.Hour)
			}
			before := gets(t, rdb)
			server.Stop() // so that all requests are there before it answers
			const crowd = 1000
			var all, there sync.WaitGroup
			there.Add(crowd)
			for range crowd {
				all.Go(func() {
					there.Done()
					a, ok, err := m.Get(t.Context(), "k")
					if err != nil || ok != c.stored || ok && string(a.Body) != "one" {
						t.Errorf("%q, %v, %v", a.Body, ok, err)
					}
				})
			}
			there.Wait()
			server.Cont()
			all.Wait()
			if n := gets(t, rdb) - before; n < 1 || n > c.most {
				t.Errorf("%d requests read Redis %d times, want at most %d", crowd, n, c.most)
			}
		})
	}
}

// A hot answer: Redis is asked once a second (twice for a large one), and the body that was read is
// handed out without a copy.
func TestAHotAnswerCostsNothing(t *testing.T) { // not in parallel: it counts allocations
	server := redistest.Start(t)
	rdb := server.Client(t)
	m := memory(t, cache.New(rdb), 0, nil)
	put(t, rdb, "k", answer(string(make([]byte, 50<<10)), time.Minute), time.Hour)
	began, before := time.Now(), gets(t, rdb)
	serves(t, m, "k", string(make([]byte, 50<<10)), time.Minute)
	get := func() { _, _, _ = m.Get(context.Background(), "k") }
	if n := testing.AllocsPerRun(1000, get); n >= 1 { // apart from a read each second
		t.Errorf("%v allocations for an answer in memory", n)
	}
	if n, most := gets(t, rdb)-before, 1+int(time.Since(began)/time.Second); n > most {
		t.Errorf("Redis was read %d times, want at most %d", n, most)
	}
}

// An answer is there for the next caller, whether this process stored it or another did where there
// was none.
func TestWhatIsStoredIsSeenByTheNextRead(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	m := memory(t, cache.New(rdb), 0, nil)
	for i := range 200 {
		key := cache.Key(redistest.Name(t, "op"), "", nil)
		stop := make(chan struct{})
		var others sync.WaitGroup
		for range 4 { // a read is under way all the time
			others.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_, _, _ = m.Get(context.Background(), key)
					}
				}
			})
		}
		body := fmt.Sprint(i)
		if i%2 == 0 {
			put(t, rdb, key, answer(body, time.Minute), time.Hour)
		} else if err := m.Put(t.Context(), key, answer(body, time.Minute), time.Hour,
			cache.Owner{}); err != nil {
			t.Fatal(err)
		}
		if a, ok, err := m.Get(t.Context(), key); !ok || err != nil || string(a.Body) != body {
			t.Fatalf("round %d: %q, %v, %v", i, a.Body, ok, err)
		}
		close(stop)
		others.Wait()
	}
}

// A caller that gives up leaves the others their answer.
func TestACallerThatGivesUpLeavesTheReadRunning(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	m := memory(t, cache.New(rdb), 0, nil)
	put(t, rdb, "k", answer("one", 0), time.Hour)
	server.Stop()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok, err := m.Get(gone, "k"); ok || err == nil {
		t.Errorf("a caller that gave up: %v, %v", ok, err)
	}
	var other sync.WaitGroup
	other.Go(func() { serves(t, m, "k", "one", 0) })
	server.Cont()
	other.Wait()
}

// Two processes with one Redis. A purge by one reaches the other within about a second, even if the
// other's Redis was unavailable meanwhile.
func TestAPurgeReachesTheMemoryOfEveryProcess(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	var healthy atomic.Bool
	healthy.Store(true)
	here, there := memory(t, cache.New(rdb), 0, nil), memory(t, cache.New(rdb), 0, healthy.Load)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { there.Run(ctx) })
	of := cache.Owner{Operation: "report", Client: "acme"}
	store := func() string {
		key := cache.Key(redistest.Name(t, "op"), "", nil)
		for _, m := range []*cache.Memory{here, there} {
			if err := m.Put(t.Context(), key, answer("secret", 0), time.Hour, of); err != nil {
				t.Fatal(err)
			}
		}
		return key
	}
	eventually(t, "the first look is over", func() bool { // the first look drops earlier answers
		key := store()
		time.Sleep(20 * time.Millisecond)
		a, _, _ := there.Get(t.Context(), key)
		return string(a.Body) == "secret" && gets(t, rdb) > 0
	})

	key := store()
	if n, err := here.Purge(t.Context(), cache.Filter{Key: key}); n != 1 || err != nil {
		t.Fatalf("removed %d, %v", n, err)
	}
	serves(t, here, key, "", 0) // in this process at once
	eventually(t, "the other's memory forgets without being asked", func() bool {
		n, _ := there.Holds()
		return n == 0
	})

	key = store()
	healthy.Store(false)
	serves(t, there, key, "secret", 0)
	if _, err := here.Purge(t.Context(), cache.Filter{Client: "acme"}); err != nil {
		t.Fatal(err)
	}
	serves(t, there, key, "secret", 0) // it can't know of the purge
	healthy.Store(true)
	eventually(t, "with Redis back it knows", func() bool { n, _ := there.Holds(); return n == 0 })
	healthy.Store(false)
	serves(t, there, key, "", 0)
	cancel()
	running.Wait()
}

// An answer that was read before a purge, and arrives after it, is not remembered.
func TestWhatIsOnItsWayDuringAPurgeIsNotRemembered(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Client(t), cache.Key(redistest.Name(t, "op"), "", nil)
	var healthy atomic.Bool
	healthy.Store(true)
	m := memory(t, cache.New(rdb), 0, healthy.Load)
	put(t, rdb, key, answer("secret", 0), time.Hour)
	var purging atomic.Bool
	rdb.AddHook(between{func() {
		if purging.Swap(true) {
			return // the purge's own calls
		}
		if _, err := m.Purge(t.Context(), cache.Filter{Key: key}); err != nil {
			t.Error(err)
		}
	}})
	if _, _, err := m.Get(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	healthy.Store(false)
	serves(t, m, key, "", 0)
}

// Two processes with one Redis. An answer that one forgets is dropped there at once, and by the
// other at its next look. Neither drops any other answer.
func TestAForgottenAnswerIsGoneFromMemory(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	var healthy atomic.Bool
	healthy.Store(true)
	here, there := memory(t, cache.New(rdb), 0, healthy.Load),
		memory(t, cache.New(rdb), 0, healthy.Load)
	operation := redistest.Name(t, "op")
	key, other := cache.Key(operation, "", []byte("1")), cache.Key(operation, "", []byte("2"))
	for _, k := range []string{key, other} {
		for _, m := range []*cache.Memory{here, there} {
			if err := m.Put(t.Context(), k, answer("secret", 0), time.Hour,
				cache.Owner{Operation: operation}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := here.Forget(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	serves(t, here, key, "", 0)
	eventually(t, "the other's next look", func() bool {
		_, ok, _ := there.Get(t.Context(), key)
		return !ok
	})
	healthy.Store(false)
	for _, m := range []*cache.Memory{here, there} {
		serves(t, m, key, "", 0)
		serves(t, m, other, "secret", 0)
	}
}

// If Redis can't be reached, the caller gets the error, and this process forgets the answer
// nevertheless.
func TestAnAnswerIsForgottenInMemoryThoughRedisIsUnavailable(t *testing.T) {
	t.Parallel()
	m := unavailable(t, 0)
	remember(t, m, "k", answer("secret", 0), time.Hour)
	if err := m.Forget(t.Context(), "k"); !errors.Is(err, redistest.ErrUnavailable) {
		t.Errorf("%v, want Redis's error", err)
	}
	serves(t, m, "k", "", 0)
}

// An answer that was read before it was forgotten, and arrives after that, is not remembered. No
// later caller gets it.
func TestWhatIsOnItsWayIsForgottenToo(t *testing.T) {
	t.Parallel()
	rdb, operation := redistest.Client(t), redistest.Name(t, "op")
	key := cache.Key(operation, "", nil)
	var healthy atomic.Bool
	healthy.Store(true)
	m := memory(t, cache.New(rdb), 0, healthy.Load)
	put(t, rdb, key, answer("secret", 0), time.Hour)
	var forgetting atomic.Bool
	var asked sync.WaitGroup
	rdb.AddHook(between{func() {
		if forgetting.Swap(true) {
			return // another read, or one of Forget's own
		}
		if err := m.Forget(t.Context(), key); err != nil {
			t.Error(err)
		}
		// it may have to wait for the read held up here
		asked.Go(func() { serves(t, m, key, "", 0) })
	}})
	if _, _, err := m.Get(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	asked.Wait()
	healthy.Store(false)
	serves(t, m, key, "", 0)
}

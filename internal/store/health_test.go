package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/redistest"
)

// C124: no caller waits for a Redis that is down, and all works again soon after it is back.
func TestAKilledRedisIsNoticedAndSoIsItsReturn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, log := connected(t, server.URL())
	server.Kill()
	within(t, promised, "unhealthy after a kill", unhealthy(s))
	if !strings.Contains(s.Reason(), "connection refused") {
		t.Errorf("the reason is %q", s.Reason())
	}
	// More failed calls than the pool has connections: none waits, and the pool must not delay the
	// recovery.
	if took := median(100, func() {
		if s.Client().Ping(t.Context()).Err() == nil {
			t.Fatal("a killed Redis answers")
		}
	}); took > 100*time.Millisecond {
		t.Errorf("a call to a killed Redis took %v", took)
	}

	server.Restart()
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Errorf("the first call after the return: %v", err)
	}
	within(t, promised, "healthy after a restart", s.Healthy)
	for name, rdb := range map[string]redis.UniversalClient{"Client": s.Client(),
		"Executor": s.Executor()} {
		if err := rdb.Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Errorf("%s of a healthy store: %v", name, err)
		}
	}
	down, back := log.lines("redis: not healthy"), log.lines("redis: healthy")
	if len(down) != 1 || len(back) != 2 {
		t.Errorf("want one line for the outage, two for first contact and return:\n%s%s",
			down, back)
	}
}

// A goroutine that waits for a message from Redis is notified of an outage at once, each time.
func TestWaitersAreNotifiedOfAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, _ := connected(t, server.URL())
	closed := func(outage <-chan struct{}) func() bool {
		return func() bool {
			select {
			case <-outage:
				return true
			default:
				return false
			}
		}
	}
	for range 2 {
		outage := s.Unavailable()
		if closed(outage)() {
			t.Fatal("an outage is reported while it is healthy")
		}
		server.Kill()
		within(t, promised, "notified of an outage", closed(outage))
		if s.Healthy() || !closed(s.Unavailable())() {
			t.Error("a new waiter isn't notified during an outage")
		}
		server.Restart()
		within(t, promised, "healthy after a restart", s.Healthy)
		if !closed(outage)() {
			t.Error("an outage was taken back")
		}
	}
}

// C124: a Redis that hangs delays no caller for long, even if no context bounds the call.
func TestAHungRedisIsAnErrorWithinHalfASecond(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, _ := connected(t, server.URL())
	server.Stop()
	within(t, promised, "unhealthy while Redis hangs", unhealthy(s))
	ask := func(ctx context.Context) func() {
		return func() {
			if s.Client().Ping(ctx).Err() == nil {
				t.Error("a hung Redis answers")
			}
		}
	}
	if took := median(3, ask(t.Context())); took > 900*time.Millisecond {
		t.Errorf("the error took %v", took)
	}
	if took := median(3, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		ask(ctx)()
	}); took > 400*time.Millisecond {
		t.Errorf("a caller with 50 ms waited %v", took)
	}
	server.Cont()
	within(t, promised, "healthy after the hang", s.Healthy)
}

// median returns the median time of n calls.
func median(n int, call func()) time.Duration {
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		call()
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[n/2]
}

func TestARedisThatComesLaterIsUsedAndChecked(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	server.Kill()
	s, log := opened(t, server.URL())
	if s.Healthy() || !strings.Contains(s.Reason(), "connection refused") ||
		len(log.lines("redis: not healthy")) != 1 {
		t.Fatalf("without Redis the reason is %q", s.Reason())
	}
	server.Restart()
	within(t, promised, "healthy on first contact", s.Healthy)
	if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0], "allkeys-lru") {
		t.Errorf("the first contact was not checked: %q", w)
	}
}

// C132: blocked calls on the Executor's connections never delay admission.
func TestWaitersOfTheExecutorDontStarveTheClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, _ := connected(t, server.URL())
	key := redistest.Name(t, "list")
	var waiters sync.WaitGroup
	for range 100 {
		waiters.Go(func() { s.Executor().BLPop(t.Context(), 2*time.Second, key) })
	}
	blocked := func() bool {
		info, err := s.Client().InfoMap(t.Context(), "clients").Result()
		return err == nil && info["Clients"]["blocked_clients"] != "0"
	}
	within(t, 5*time.Second, "the waiters wait", blocked)
	if took := median(20, func() {
		if err := s.Client().Set(t.Context(), key+"x", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}); took > 100*time.Millisecond {
		t.Errorf("a call of the front took %v", took)
	}
	if !blocked() {
		t.Fatal("no call was blocked: the test shows nothing")
	}
	waiters.Wait()
}

// A lost reply leaves open whether the command ran. It must not run twice.
func TestNoCommandIsSentTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, _ := connected(t, server.URL())
	warm(t, s.Client(), "list") // otherwise a repetition would fail in its handshake
	server.Stop()
	if err := s.Client().Incr(t.Context(), "n").Err(); err == nil {
		t.Fatal("a hung Redis answers")
	}
	server.Cont()
	within(t, promised, "healthy after the hang", s.Healthy)
	if n := s.Client().Get(t.Context(), "n").Val(); n != "1" {
		t.Fatalf("one INCR counted %s", n)
	}
}

// warm leaves the pool with eight open connections.
func warm(t *testing.T, rdb redis.UniversalClient, emptyList string) {
	t.Helper()
	var busy sync.WaitGroup
	for range 8 {
		busy.Go(func() {
			if err := rdb.BLPop(t.Context(), 100*time.Millisecond,
				emptyList).Err(); !errors.Is(err, redis.Nil) {
				t.Errorf("warming up: %v", err)
			}
		})
	}
	busy.Wait()
}

func TestACloseIsFinal(t *testing.T) {
	t.Parallel()
	for _, url := range []string{redistest.Start(t).URL(), ""} {
		s, _ := opened(t, url)
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if s.Client().Ping(t.Context()).Err() == nil ||
			s.Executor().Ping(t.Context()).Err() == nil {
			t.Error("a closed store answers")
		}
	}
}

// C100: a Redis that is full answers, can be read, and takes no job. When there is room again, that
// is noticed.
func TestAFullRedisIsNoticedAndSoIsItsRoom(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, log := connected(t, server.URL())
	if !s.Writable() {
		t.Fatal("a new Redis takes no writes")
	}
	rdb := server.Client(t)
	limit := func(most string) {
		t.Helper()
		if err := rdb.ConfigSet(t.Context(), "maxmemory", most).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit("1")
	within(t, 2*promised, "full", func() bool { return !s.Writable() })
	if !s.Healthy() {
		t.Errorf("a full Redis can't be read: %s", s.Reason())
	}
	limit("0")
	within(t, 2*promised, "room again", s.Writable)
	within(t, 2*promised, "the recovery is logged", func() bool {
		return len(log.lines("takes writes again")) > 0
	})
	if no, again := log.lines("takes no writes"), log.lines("takes writes again"); len(no) != 1 ||
		len(again) != 1 {
		t.Errorf("log: %q, %q", no, again)
	}
}

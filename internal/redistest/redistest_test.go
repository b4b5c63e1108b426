package redistest_test

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestClientsReachTheSharedServerAndMiniredis(t *testing.T) {
	t.Parallel()
	key := redistest.Name(t, "key")
	if err := redistest.Client(t).Set(t.Context(), key, "shared", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got := redistest.Client(t).Get(t.Context(), key).Val(); got != "shared" {
		t.Fatalf("another client reads %q", got)
	}
	if n := redistest.Miniredis(t).Exists(t.Context(), key).Val(); n != 0 {
		t.Fatal("the embedded Redis holds a key of the shared one")
	}
}

func TestNamesAreValidAndUnique(t *testing.T) {
	t.Parallel()
	valid := regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	seen := map[string]bool{}
	for _, prefix := range []string{"reports", "", "9lives", "Füße/x", "-",
		strings.Repeat("long", 30), "reports"} {
		name := redistest.Name(t, prefix)
		if !valid.MatchString(name) || len(name) > 40 || seen[name] {
			t.Errorf("Name(%q) = %q", prefix, name)
		}
		seen[name] = true
	}
}

func TestAKilledServerComesBackWithItsData(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	if err := rdb.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	before := s.PID()
	s.Kill()
	if err := rdb.Ping(t.Context()).Err(); err == nil || s.PID() != 0 {
		t.Fatalf("a killed server answers; pid %d", s.PID())
	}
	s.Restart()
	if got, err := rdb.Get(t.Context(), "k").Result(); got != "v" || err != nil ||
		s.PID() == before {
		t.Fatalf("after a restart: %q, %v, pid %d", got, err, s.PID())
	}
}

func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func TestAHungServerAnswersAfterCont(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	s.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); !timedOut(err) {
		t.Fatalf("a stopped server: %v, want a timeout", err)
	}
	s.Cont()
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestTheProxyCutsHangsRefusesAndResumes(t *testing.T) {
	t.Parallel()
	p := redistest.StartProxy(t, redistest.Client(t).(*redis.Client).Options().Addr)
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr, MaxRetries: -1, DialerRetries: 1,
		ContextTimeoutEnabled: true})
	defer rdb.Close()
	ping := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		return rdb.Ping(ctx).Err()
	}
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	p.Cut() // the pooled connection is dead and a new one works
	for deadline := time.Now().Add(5 * time.Second); rdb.Ping(t.Context()).Err() != nil; {
		if time.Now().After(deadline) {
			t.Fatal("no new connection after a cut")
		}
	}
	p.Hang()
	if err := ping(); !timedOut(err) {
		t.Fatalf("hanging: %v, want a timeout", err)
	}
	p.Resume()
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	p.Refuse()
	if err := ping(); err == nil {
		t.Fatal("an answer through a proxy that refuses")
	}
	if err := ping(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("refusing: %v, want connection refused", err)
	}
	p.Resume()
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestAFaultStrikesOnceBeforeOrAfterTheCommand(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	faulty := redistest.NewFaulty(t, rdb)
	key, ctx := redistest.Name(t, "count"), t.Context()
	incr := func(cmd redis.Cmder) bool { return cmd.Name() == "incr" }

	faulty.FailNext(incr, false)
	if err := rdb.Incr(ctx, key).Err(); !errors.Is(err, redistest.ErrNotApplied) {
		t.Fatal(err)
	}
	faulty.FailNext(incr, true)
	if err := rdb.Incr(ctx, key).Err(); !errors.Is(err, redistest.ErrReplyLost) {
		t.Fatal(err)
	}
	faulty.FailNext(incr, true)
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Incr(ctx, key)
		p.Incr(ctx, key)
		return nil
	})
	if !errors.Is(err, redistest.ErrReplyLost) {
		t.Fatal(err)
	}
	if n, err := rdb.Incr(ctx, key).Result(); n != 4 || err != nil {
		t.Fatalf("the count is %d, %v; want 4: one lost reply, a pipeline of two, and this one", n,
			err)
	}
}

// A script's first call gets NOSCRIPT. The fault waits for the call that runs the script.
func TestALostReplyIsThatOfACommandThatRan(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	faulty := redistest.NewFaulty(t, rdb)
	key := redistest.Name(t, "count")
	script := redis.NewScript(`return redis.call("INCR", KEYS[1]) -- ` + key)
	faulty.FailNext(redistest.Any, true)
	err := script.Run(t.Context(), rdb, []string{key}).Err()
	if !errors.Is(err, redistest.ErrReplyLost) {
		t.Fatal(err)
	}
	if n, err := script.Run(t.Context(), rdb, []string{key}).Int(); n != 2 || err != nil {
		t.Fatalf("the count is %d, %v; want 2", n, err)
	}
}

func TestAClusterServesKeysOfAllSlots(t *testing.T) {
	t.Parallel()
	rdb, addrs := redistest.StartCluster(t)
	for i := range 50 {
		if err := rdb.Set(t.Context(), redistest.Name(t, "key"), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if len(addrs) != 3 {
		t.Fatalf("%d addresses", len(addrs))
	}
}

func TestASentinelFailsOverToTheReplica(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	if err := s.Master.Client(t).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n := s.Master.Client(t).Do(t.Context(), "WAIT", 1, 4000).Val(); n != int64(1) {
		t.Fatalf("%v replicas have the write", n)
	}
	s.Master.Kill()
	replica := s.Replica.Client(t)
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		role, err := replica.InfoMap(t.Context(), "replication").Result()
		if err == nil && role["Replication"]["role"] == "master" {
			break // an error may come from a connection that the promotion closed
		}
		if time.Now().After(deadline) {
			t.Fatal("the replica was not promoted")
		}
	}
	if got := replica.Get(t.Context(), "k").Val(); got != "v" {
		t.Fatalf("the new master reads %q", got)
	}
}

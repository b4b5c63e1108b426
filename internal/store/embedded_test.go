package store_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/store"
)

func TestTheEmbeddedRedisSaysThatItKeepsNothing(t *testing.T) {
	t.Parallel()
	s, log := connected(t, "")
	if !s.Embedded() || s.Cluster() {
		t.Fatalf("embedded %v, cluster %v", s.Embedded(), s.Cluster())
	}
	if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0], "nothing is kept") ||
		len(log.lines("nothing is kept")) != 1 {
		t.Errorf("warnings %q, logged %q", w, log.lines(""))
	}
	if err := s.Executor().Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got := s.Client().Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("Client doesn't see what Executor wrote: %q", got)
	}
}

func TestTheEmbeddedRedisIsClosedToOthers(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, "")
	stranger := redis.NewClient(&redis.Options{Addr: store.EmbeddedAddr(s), MaxRetries: -1})
	defer stranger.Close()
	if err := stranger.Get(t.Context(), "k").Err(); !redis.HasErrorPrefix(err, "NOAUTH") {
		t.Errorf("a stranger's GET: %v, want NOAUTH", err)
	}
}

// C133: expired keys disappear by themselves, and others stay.
func TestEmbeddedKeysEndWithTheirTime(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, "")
	rdb := s.Client()
	rdb.Set(t.Context(), "owned", "v", 0)
	rdb.Set(t.Context(), "long", "v", time.Hour)
	fill(t, rdb, "short", 5000, 10*time.Second)
	if n := rdb.DBSize(t.Context()).Val(); n != 5002 {
		t.Fatalf("%d keys", n)
	}
	within(t, 30*time.Second, "the keys are gone", func() bool {
		return rdb.DBSize(t.Context()).Val() == 2
	})
	if ttl := rdb.TTL(t.Context(), "long").Val(); ttl >= time.Hour || ttl < 50*time.Minute {
		t.Errorf("the time left of an hour is %v", ttl)
	}
}

// C133: the hard cap refuses writes and evicts nothing, so that used-up limits are remembered.
func TestAFullEmbeddedRedisRefusesAndForgetsNothing(t *testing.T) {
	t.Parallel()
	s, err := store.OpenSmall(t.Context(), slog.New(slog.DiscardHandler), 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Client().Set(t.Context(), "abuser", "limit used up", time.Hour)
	fill(t, s.Client(), "k", 1000, 4*time.Second)
	within(t, promised, "unhealthy when full", unhealthy(s))
	if !strings.Contains(s.Reason(), "over 1000 keys: set redis.url") {
		t.Errorf("the reason is %q", s.Reason())
	}
	if got := s.Client().Get(t.Context(), "abuser").Val(); got != "limit used up" {
		t.Errorf("the abuser's key is %q", got)
	}
	within(t, 20*time.Second, "healthy when keys have expired", s.Healthy)
}

func fill(t *testing.T, rdb redis.UniversalClient, prefix string, n int, ttl time.Duration) {
	t.Helper()
	const batch = 100
	for done := 0; done < n; done += batch {
		if _, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := range batch {
				p.Set(t.Context(), fmt.Sprint(prefix, done+i), "v", ttl)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

package clients

import (
	"testing"
	"time"

	"github.com/forebay/forebay/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// The key is the one that earlier versions wrote, so no client becomes new by an update.
func TestTheKeyOfAClientStays(t *testing.T) {
	t.Parallel()
	if key := seenKey("acme"); key != "fb:{fb2ef4b9e1ec52a48187711800c79c19}:seen" {
		t.Errorf("the key is %s", key)
	}
}

// A client is new for its first period, from when any process first saw it.
func TestAClientIsNewForItsFirstPeriod(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	client, began := redistest.Name(t, "client"), time.Now()
	until, err := NewNewcomers(rdb).Until(t.Context(), client, time.Hour)
	if err != nil || until.Before(began.Add(time.Hour)) || until.After(time.Now().Add(time.Hour)) {
		t.Fatalf("new until %v, %v; want an hour from now", until, err)
	}
	// Two hours ago by Redis's clock.
	first := time.Now().Add(-2 * time.Hour).UnixMicro()
	if err := rdb.Set(t.Context(), seenKey(client), first, 0).Err(); err != nil {
		t.Fatal(err)
	}
	other := NewNewcomers(rdb)
	if until, err := other.Until(t.Context(), client, time.Hour); err != nil || !until.IsZero() {
		t.Errorf("two hours later: new until %v, %v", until, err)
	}
	until, err = other.Until(t.Context(), client, 3*time.Hour)
	if left := time.Until(until).Round(time.Minute); err != nil || left != time.Hour {
		t.Errorf("of a period of three hours are left %v, %v", left, err)
	}
	if ttl := rdb.TTL(t.Context(), seenKey(client)).Val(); ttl < 399*24*time.Hour {
		t.Errorf("a client that came is remembered for %v", ttl)
	}
}

// Each process asks once for each client. While Redis is away no client is new, and none waits
// for it.
func TestNewcomersAskSeldom(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n := NewNewcomers(server.Client(t))
	for range 100 {
		if until, err := n.Until(t.Context(), "known", time.Hour); err != nil || until.IsZero() {
			t.Fatalf("%v, %v", until, err)
		}
	}
	server.Kill()
	if until, err := n.Until(t.Context(), "known", time.Hour); err != nil || until.IsZero() {
		t.Errorf("a client that is known needs Redis: %v, %v", until, err)
	}
	failed := 0
	for range 100 {
		until, err := n.Until(t.Context(), "unknown", time.Hour)
		if !until.IsZero() {
			t.Fatal("new without Redis")
		}
		if err != nil {
			failed++
		}
	}
	if failed == 0 || failed > 10 {
		t.Errorf("%d of 100 calls in a row asked a Redis that is away", failed)
	}
}

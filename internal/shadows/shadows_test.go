package shadows

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay/forebay/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Operators see which clients a shadow limit would have refused, over all processes and the last
// day, the most often refused first.
func TestTheBooksAreThoseOfAllProcesses(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	a, b := New(rdb, slog.New(slog.DiscardHandler)), New(rdb, slog.New(slog.DiscardHandler))
	now := time.Now().Truncate(time.Second)
	a.Note("trial", "acme", "report")
	a.Note("trial", "ip:2001:db8::/64", "report")
	a.flush(t.Context(), now.Add(-23*time.Hour))
	for range 3 {
		b.Note("trial", "acme", "report")
	}
	b.Note("trial", "acme", "chart")
	b.Note("long-ago", "acme", "chart")
	b.flush(t.Context(), now)
	b.Note("long-ago", "acme", "chart")
	b.flush(t.Context(), now.Add(-26*time.Hour))
	b.flush(t.Context(), now) // nothing new
	got, err := a.top(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	want := []Count{
		{"trial", "acme", "report", 4, now},
		{"long-ago", "acme", "chart", 1, now},
		{"trial", "acme", "chart", 1, now},
		{"trial", "ip:2001:db8::/64", "report", 1, now.Add(-23 * time.Hour)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	for _, key := range rdb.Keys(t.Context(), "fb:{shadows}:*").Val() {
		if ttl := rdb.TTL(t.Context(), key).Val(); ttl <= 0 || ttl > 25*time.Hour {
			t.Errorf("%s has TTL %v", key, ttl)
		}
	}
}

// A flood of new clients fills neither the process's memory nor Redis, and what Redis didn't take
// is counted later.
func TestTheBooksAreBoundedAndNotLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	b := New(rdb, slog.New(slog.DiscardHandler))
	for i := range maxNoted + 500 {
		b.Note("trial", fmt.Sprint("client", i), "report")
	}
	if len(b.noted) != maxNoted || b.dropped != 500 {
		t.Fatalf("%d noted, %d dropped", len(b.noted), b.dropped)
	}
	server.Stop()
	b.flush(t.Context(), time.Now())
	server.Cont()
	written := func() bool {
		b.flush(t.Context(), time.Now())
		counts, _ := keys(time.Now())
		return rdb.ZCard(t.Context(), counts).Val() == maxKept
	}
	for deadline := time.Now().Add(20 * time.Second); !written(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what was noted doesn't get to Redis")
		}
	}
	if top, err := b.Top(t.Context()); err != nil || len(top) != maxShown {
		t.Errorf("%d are shown, %v", len(top), err)
	}
}

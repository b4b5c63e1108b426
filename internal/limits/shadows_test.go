package limits

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay/forebay/internal/redistest"
)

// Operators see whom a shadow limit would have refused, over all processes and the last day, the most often refused first.
func TestShadowsAreToldOfAllProcesses(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	a, b := NewShadows(rdb, slog.New(slog.DiscardHandler)), NewShadows(rdb, slog.New(slog.DiscardHandler))
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
	want := []ShadowCount{
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

// Whoever mints clients fills neither the process's memory nor Redis, and what Redis didn't take is counted later.
func TestShadowsAreBoundedAndNotLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := NewShadows(rdb, slog.New(slog.DiscardHandler))
	for i := range notedShadows + 500 {
		s.Note("trial", fmt.Sprint("client", i), "report")
	}
	if len(s.noted) != notedShadows || s.dropped != 500 {
		t.Fatalf("%d noted, %d dropped", len(s.noted), s.dropped)
	}
	server.Stop()
	s.flush(t.Context(), time.Now())
	server.Cont()
	within(t, func() bool {
		s.flush(t.Context(), time.Now())
		counts, _ := shadowKeys(time.Now())
		n := rdb.ZCard(t.Context(), counts).Val()
		return n == keptShadows
	})
	if top, err := s.Top(t.Context()); err != nil || len(top) != maxShadows {
		t.Errorf("%d are shown, %v", len(top), err)
	}
}

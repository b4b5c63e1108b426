package jobs_test

import (
	"context"
	"sync"
	"testing"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/redistest"
)

func TestAllProcessesHaveOneSecret(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	found := make([]string, 20)
	var all sync.WaitGroup
	for n := range found {
		all.Go(func() {
			text, err := jobs.NewSecret(rdb).Text(t.Context())
			if err != nil {
				t.Error(err)
			}
			found[n] = text
		})
	}
	all.Wait()
	for _, text := range found {
		if text != found[0] || len(text) < 20 {
			t.Fatalf("secrets %q", found)
		}
	}
}

// Without Redis a new process has no secret. Once known, the secret stays.
func TestASecretOutlivesRedisAndIsNeverMadeUp(t *testing.T) {
	t.Parallel()
	rdb := redistest.Miniredis(t)
	s := jobs.NewSecret(rdb)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if text, err := s.Text(gone); err == nil {
		t.Errorf("got %q from nowhere", text)
	}
	first, err := s.Text(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if text, err := s.Text(gone); err != nil || text != first {
		t.Errorf("got %q, %v; want %q", text, err, first)
	}
	// A key of another type is an error.
	if err := rdb.Del(t.Context(), "fb:secret").Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.RPush(t.Context(), "fb:secret", "x").Err(); err != nil {
		t.Fatal(err)
	}
	if text, err := jobs.NewSecret(rdb).Text(t.Context()); err == nil {
		t.Errorf("got %q from a list", text)
	}
}

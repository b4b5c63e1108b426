package store_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/store"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// journal collects log lines.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

// lines returns the lines that contain part.
func (j *journal) lines(part string) (found []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.buf.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

// opened returns a store that is closed when t ends, and its log.
func opened(t *testing.T, url string) (*store.Store, *journal) {
	t.Helper()
	return openedAs(t, store.Config{URL: url})
}

func openedAs(t *testing.T, c store.Config) (*store.Store, *journal) {
	t.Helper()
	j := &journal{}
	s, err := store.Open(t.Context(), c, slog.New(slog.NewTextHandler(j, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, j
}

// within waits until met returns true, and fails t if that takes longer than limit.
func within(t *testing.T, limit time.Duration, name string, met func() bool) {
	t.Helper()
	for start := time.Now(); !met(); time.Sleep(2 * time.Millisecond) {
		if time.Since(start) > limit {
			t.Fatalf("not within %v: %s", limit, name)
		}
	}
}

// promised is twice what Healthy promises, since the machine may be busy with other tests.
const promised = 2 * time.Second

// connected returns an opened store once it is healthy.
func connected(t *testing.T, url string) (*store.Store, *journal) {
	t.Helper()
	s, log := opened(t, url)
	within(t, 10*time.Second, "healthy", s.Healthy)
	return s, log
}

func unhealthy(s *store.Store) func() bool { return func() bool { return !s.Healthy() } }

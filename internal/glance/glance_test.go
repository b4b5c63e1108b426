package glance_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/glance"
)

// However many readers there are, there is one read in the time that a value is fresh, also while
// reading fails.
func TestReadersShareAReading(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	var fails atomic.Bool
	now := time.Now()
	g := glance.New(time.Second, time.Second, func() time.Time { return now },
		func(context.Context) (int, error) {
			reads.Add(1)
			if fails.Load() {
				return 0, errors.New("away")
			}
			return 7, nil
		})
	readers := func(want int64) {
		t.Helper()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				seen, _ := g.Get(context.Background())
				if seen.Value != 7 || (seen.Err != nil) != fails.Load() {
					t.Errorf("seen %+v", seen)
				}
			})
		}
		all.Wait()
		if n := reads.Load(); n != want {
			t.Errorf("%d reads, want %d", n, want)
		}
	}
	readers(1)
	now = now.Add(999 * time.Millisecond)
	readers(1)
	now = now.Add(time.Millisecond)
	fails.Store(true)
	readers(2)
	if seen := g.Last(); seen.Err == nil || !seen.At.Equal(now.Add(-time.Second)) {
		t.Errorf("last = %+v at %v", seen, now)
	}
}

// One who asks while another reads gets the last value when its own time is over.
func TestAReadingThatHangsKeepsNobodyLongerThanItsTime(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	var reads atomic.Int64
	g := glance.New(time.Second, time.Minute, time.Now, func(ctx context.Context) (int, error) {
		if reads.Add(1) > 1 {
			return 7, nil
		}
		close(began)
		<-ctx.Done()
		return 0, ctx.Err()
	})
	hangs, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { g.Get(hangs); close(done) }()
	<-began
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if seen, mine := g.Get(over); !errors.Is(seen.Err, context.Canceled) || mine {
		t.Errorf("seen %+v", seen)
	}
	stop()
	<-done
	// Who left with a reading half done leaves no failure to the others.
	if seen, mine := g.Get(context.Background()); seen.Err != nil || seen.Value != 7 || !mine {
		t.Errorf("seen %+v", seen)
	}
}

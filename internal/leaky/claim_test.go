package leaky_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

// Of those who claim a decision at one time one gets it, until it gives it back. Nobody gives back another's.
func TestAClaimIsOnes(t *testing.T) {
	t.Parallel()
	cluster, _ := redistest.StartCluster(t)
	for name, rdb := range map[string]redis.UniversalClient{"server": redistest.Client(t), "miniredis": redistest.Miniredis(t), "cluster": cluster} {
		b := newLineOn(t, rdb, nil)
		backend := b.Settings().Backend
		claim := func(id, by string) bool {
			t.Helper()
			taken, err := leaky.New(rdb, b.Settings()).Claim(t.Context(), id, by)
			if err != nil {
				t.Error(err)
			}
			return taken
		}
		id := jobs.NewID(backend)
		var all sync.WaitGroup
		var got atomic.Int64
		for i := range 20 {
			all.Go(func() {
				if claim(id, string(rune('a'+i))) {
					got.Add(1)
				}
			})
		}
		all.Wait()
		if got.Load() != 1 {
			t.Errorf("on %s: %d have the claim", name, got.Load())
		}

		id = jobs.NewID(backend)
		if !claim(id, "me") || claim(id, "you") || !claim(jobs.NewID(backend), "you") {
			t.Errorf("on %s: a claim is of one id, and of one caller", name)
		}
		if err := b.Unclaim(t.Context(), id, "you"); err != nil || claim(id, "you") {
			t.Errorf("on %s: another gave it back (%v)", name, err)
		}
		for range 2 { // also where it has been
			if err := b.Unclaim(t.Context(), id, "me"); err != nil {
				t.Error(err)
			}
		}
		if !claim(id, "you") {
			t.Errorf("on %s: it was given back, and is taken", name)
		}
	}
}

// Whoever died with a claim keeps others from deciding for two seconds, no longer; what was taken since isn't given back by it.
func TestAClaimRunsOut(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	id := jobs.NewID(b.Settings().Backend)
	began := time.Now()
	if taken, err := b.Claim(t.Context(), id, "dead"); !taken || err != nil {
		t.Fatalf("%v, %v", taken, err)
	}
	for deadline := began.Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		taken, err := b.Claim(t.Context(), id, "next")
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("never taken: %v", err)
		}
		if taken {
			break
		}
	}
	if lasted := time.Since(began); lasted < 1900*time.Millisecond {
		t.Errorf("it lasted for %v", lasted)
	}
	taken := time.Now()
	if err := b.Unclaim(t.Context(), id, "dead"); err != nil {
		t.Error(err)
	}
	if again, err := b.Claim(t.Context(), id, "third"); err != nil || again && time.Since(taken) < 1900*time.Millisecond {
		t.Errorf("what was another's is given back: %v", err)
	}
}

func TestAClaimThatFailsSaysSo(t *testing.T) {
	t.Parallel()
	b := newLineOn(t, redistest.Client(t), nil)
	lost := leaky.New(redistest.Lost(t), b.Settings())
	if taken, err := lost.Claim(t.Context(), "x", "me"); taken || !errors.Is(err, redistest.ErrLost) {
		t.Errorf("%v, %v", taken, err)
	}
	if err := lost.Unclaim(t.Context(), "x", "me"); !errors.Is(err, redistest.ErrLost) {
		t.Error(err)
	}
}

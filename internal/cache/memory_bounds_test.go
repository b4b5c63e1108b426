package cache_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/redistest"
)

func TestABodyTooLargeToRememberIsServedFromRedisAlone(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	most, large := make([]byte, cache.MaxRemembered), make([]byte, cache.MaxRemembered+1)
	for name, pass := range map[string]func(m *cache.Memory, key string, a cache.Answer){
		"put": func(m *cache.Memory, key string, a cache.Answer) {
			if err := m.Put(t.Context(), key, a, time.Hour, cache.Owner{}); err != nil {
				t.Error(err)
			}
		},
		"got": func(m *cache.Memory, key string, a cache.Answer) {
			put(t, rdb, key, a, time.Hour)
			eventually(t, "the answer is read", func() bool { // after another was read just before
				got, ok, err := m.Get(t.Context(), key)
				return ok && err == nil && len(got.Body) == len(a.Body)
			})
		},
	} {
		key := cache.Key(redistest.Name(t, name), "", nil)
		var healthy atomic.Bool
		healthy.Store(true)
		m := memory(t, cache.New(rdb), 0, healthy.Load)
		pass(m, key, cache.Answer{Status: 200, Body: most, Age: time.Minute})
		if n, weight := m.Holds(); n != 1 || weight < cache.MaxRemembered {
			t.Errorf("%s: holds %d answers of %d bytes, want that of 1 MiB", name, n, weight)
		}
		// It is younger: the remembered answer isn't the last good one any more.
		pass(m, key, cache.Answer{Status: 200, Body: large, Age: time.Second})
		if n, weight := m.Holds(); n != 0 || weight != 0 {
			t.Errorf("%s: holds %d answers of %d bytes, want none", name, n, weight)
		}
	}
}

// After case C133: keys without end don't take memory without end.
func TestWhatIsRememberedStaysWithinItsBytes(t *testing.T) {
	t.Parallel()
	const bound = 1 << 20
	m := unavailable(t, bound)
	held := func(n int, body []byte) (answers int) {
		t.Helper()
		for i := range n {
			remember(t, m, cache.Key("op", "", fmt.Append(nil, i)),
				cache.Answer{Status: 200, Body: body}, time.Hour)
		}
		answers, weight := m.Holds()
		if weight > bound || answers*len(body) > bound {
			t.Errorf("%d answers of %d bytes weigh %d, bound %d", answers, len(body), weight, bound)
		}
		return answers
	}
	if got := held(1000, make([]byte, 10<<10)); got < 80 {
		t.Errorf("%d answers of 10 KiB fit, want about 100", got)
	}
	if got := held(20_000, nil); got > bound/200 { // an answer without a body takes memory too
		t.Errorf("%d answers without a body fit, want at most %d", got, bound/200)
	}
	small := unavailable(t, 1000)
	remember(t, small, "k", cache.Answer{Status: 200, Body: make([]byte, 1000)}, time.Hour)
	if n, _ := small.Holds(); n != 0 {
		t.Error("holds an answer larger than its bound")
	}
}

func TestTheCallersBufferIsItsOwn(t *testing.T) {
	t.Parallel()
	m := unavailable(t, 0)
	buffer := append(make([]byte, 0, 1<<20), "good"...) // keeping it would take 1 MiB for 4 bytes
	remember(t, m, "k", cache.Answer{Status: 200, Body: buffer}, time.Hour)
	copy(buffer, "torn")
	serves(t, m, "k", "good", 0)
	if a, _, _ := m.Get(t.Context(), "k"); cap(a.Body) > 64 {
		t.Errorf("keeps %d bytes for 4", cap(a.Body))
	}
}

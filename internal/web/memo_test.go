package web

import (
	"sync"
	"sync/atomic"
	"testing"
)

// However many ask for a key at once, its value is made once.
func TestAMemoMakesEachValueOnce(t *testing.T) {
	t.Parallel()
	var m Memo[series, *int64]
	var made atomic.Int64
	keys := []series{{"/a", "GET", 200}, {"/a", "GET", 404}, {"/b", "GET", 200}}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for _, key := range keys {
				n := m.Get(key, func() *int64 { made.Add(1); return new(int64) })
				atomic.AddInt64(n, 1)
			}
		})
	}
	all.Wait()
	for _, key := range keys {
		if n := *m.Get(key, nil); n != 50 {
			t.Errorf("%v was counted %d times, want 50", key, n)
		}
	}
	if n := made.Load(); n != int64(len(keys)) {
		t.Errorf("%d values were made, want %d", n, len(keys))
	}
}

package web

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Memo remembers what was made for each key, such as the metrics of some labels: looking those up
// one by one takes longer than counting. It forgets nothing, so the keys must come from closed
// lists. A known key is found without a lock or an allocation. The zero value is empty. Safe for
// concurrent use.
type Memo[K comparable, V any] struct {
	mu    sync.Mutex              // held while a key is added
	known atomic.Pointer[map[K]V] // the map is never changed, only replaced
}

// Get returns what was made for a key, and makes it the first time.
func (m *Memo[K, V]) Get(key K, make func() V) V {
	if v, ok := m.lookup(key); ok {
		return v
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.lookup(key); ok {
		return v
	}
	more := map[K]V{}
	if known := m.known.Load(); known != nil {
		maps.Copy(more, *known)
	}
	v := make()
	more[key] = v
	m.known.Store(&more)
	return v
}

func (m *Memo[K, V]) lookup(key K) (v V, ok bool) {
	if known := m.known.Load(); known != nil {
		v, ok = (*known)[key]
	}
	return v, ok
}

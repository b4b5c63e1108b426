package web

import (
	"sync"
	"sync/atomic"
	"time"
)

// maxLogged is how many lines a second AtMost allows.
const maxLogged = 100

// AtMost allows 100 things in each second of the clock. The zero value is ready. Safe for
// concurrent use.
type AtMost struct {
	mu     sync.Mutex
	second int64 // guarded by mu
	count  int   // guarded by mu: allowed in that second
}

// Allow reports whether one more is allowed, and counts it.
func (a *AtMost) Allow(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := now.Unix(); s != a.second {
		a.second, a.count = s, 0
	}
	a.count++
	return a.count <= maxLogged
}

// Sometimes does at most one thing a second: during an outage every request has the same to say.
// The zero value is ready. Safe for concurrent use.
type Sometimes struct{ last atomic.Int64 }

// Do calls f, unless something was done in the same second of the clock.
func (s *Sometimes) Do(f func()) {
	now, last := time.Now().Unix(), s.last.Load()
	if now != last && s.last.CompareAndSwap(last, now) {
		f()
	}
}

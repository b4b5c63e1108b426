package admission

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

const (
	// maxRefreshing bounds the refreshes that are being offered at one time, each in one call of
	// Redis. Beyond the bound none is offered: the next stale answer tries again.
	maxRefreshing = 16
	// refreshTime bounds one offer.
	refreshTime = 600 * time.Millisecond
	// refreshRest is how long a process waits until it offers another refresh of the same stale
	// answer. Thousands of requests a second may get that answer, and the backend may have no
	// better one.
	refreshRest = 10 * time.Second
	// maxRefreshed bounds the answers whose refreshes are remembered, some 100 bytes each.
	maxRefreshed = 10_000
)

// refreshes are the refreshes that this process has offered lately. Safe for concurrent use.
type refreshes struct {
	offering chan struct{} // has a value for each that is being offered
	stopped  atomic.Bool
	running  sync.WaitGroup

	mu sync.Mutex
	at map[string]time.Time // guarded by mu; by Join
}

func newRefreshes() refreshes { return refreshes{offering: make(chan struct{}, maxRefreshing)} }

// due reports whether to refresh an answer now, and if so, isn't due again for refreshRest.
func (r *refreshes) due(join string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, was := r.at[join]; was && now.Sub(last) < refreshRest {
		return false
	}
	if r.at == nil || len(r.at) >= maxRefreshed {
		r.at = make(map[string]time.Time)
	}
	r.at[join] = now
	return true
}

// StopRefreshing ends the offering of refreshes, before the process stops.
func (a *Admission) StopRefreshing() { a.refreshes.stopped.Store(true) }

// Wait waits until no refresh is being offered any more, for 600 ms at most. No Submit may be under
// way.
func (a *Admission) Wait() { a.refreshes.running.Wait() }

// refresh offers a job that renews the stale answer that was served. It is an ordinary job of the
// client, of priority low, but spends no limit, and is placed only if the line has room for it and
// no job for the same answer is under way.
func (s *submission) refresh() {
	o := s.operation
	if !o.Overload.Refresh || s.refreshes.stopped.Load() {
		return
	}
	if s.Health != nil && s.Health.Sick(o.Backend, 1) {
		return // its slots are few, and its answers doubtful
	}
	join := joinOf(s.cacheKey())
	if !s.refreshes.due(join, time.Now()) {
		return
	}
	select {
	case s.refreshes.offering <- struct{}{}:
	default:
		return
	}
	offer := leaky.Offer{
		Job: jobs.Job{ID: jobs.NewID(o.Backend), Operation: o.Name, Client: s.req.Caller.ID,
			Tier:     s.req.Caller.Tier,
			Priority: jobs.Low, Payload: s.req.Payload},
		Weight: s.plan.Weight * jobs.Low.Weight(), // the line weighs each client's priorities apart
		MaxAge: o.MaxAge, Keep: o.Keep, Join: join, Refresh: true,
		MaxStored: s.Tiers[s.req.Caller.Tier].MaxStored,
	}
	a, line, id := s.Admission, s.line, s.req.ID
	a.refreshes.running.Go(func() {
		defer func() { <-a.refreshes.offering }()
		ctx, cancel := context.WithTimeout(context.Background(), refreshTime)
		defer cancel()
		if _, err := line.Offer(ctx, offer); err != nil {
			a.storeLog.Do(func() { a.Log.Warn("no refresh", "request_id", id, "error", err) })
		}
	})
}

// joinOf returns the Join of requests with one cache key: a client that may see the answer may
// share the job.
func joinOf(cacheKey string) string {
	sum := sha256.Sum256([]byte(cacheKey))
	return hex.EncodeToString(sum[:16])
}

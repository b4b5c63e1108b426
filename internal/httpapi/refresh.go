package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

const (
	// maxRefreshing bounds the refreshes that are being offered at one time. Each is one call of Redis; beyond that they are let go: the
	// next stale answer asks again.
	maxRefreshing = 16
	// refreshRest is how long a process leaves a stale answer alone that it had asked for anew: thousands of requests a second may get it.
	refreshRest = time.Second
	// maxRefreshed bounds the answers that are known to have been asked for, some 100 bytes each.
	maxRefreshed = 10_000
)

// refreshed are the stale answers that were asked for anew lately. The zero value has none. Safe for concurrent use.
type refreshed struct {
	mu sync.Mutex
	at map[string]time.Time // guarded by mu; by Join
}

// due reports whether it is time to ask for an answer anew, and takes it that it is done.
func (r *refreshed) due(join string, now time.Time) bool {
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

// refresh has the answer that was served stale asked for anew, behind the client's back: a job that spends no limit, mostly gives way to
// the client's own, and is placed only where the line has room and nothing of its kind is under way.
func (a *attempt) refresh() {
	if !a.o.Overload.Refresh || a.s.Web.Leaving() {
		return
	}
	if a.s.Health != nil && a.s.Health.Sick(a.o.Backend, 1) {
		return // its slots are few, and its answers doubtful
	}
	join := a.joint()
	if !a.s.refreshed.due(join, time.Now()) {
		return
	}
	select {
	case a.s.refreshing <- struct{}{}:
	default:
		return
	}
	offer := leaky.Offer{
		Job: jobs.Job{ID: jobs.NewID(a.o.Backend), Operation: a.o.Name, Client: a.client.ID, Tier: a.client.Tier, Priority: jobs.Low, Payload: a.payload},
		// The line weighs each client's priorities apart.
		Weight: a.plan.weight * jobs.Low.Weight(), MaxAge: a.o.MaxAge, Keep: a.o.Keep, Join: join, Refresh: true,
	}
	s, line, id := a.s, a.line, a.RequestID
	go func() {
		defer func() { <-s.refreshing }()
		ctx, cancel := context.WithTimeout(context.Background(), web.StoreTime)
		defer cancel()
		if _, err := line.Offer(ctx, offer); err != nil {
			s.Web.StoreLog.Do(func() { s.Web.Log.Warn("no refresh", "request_id", id, "error", err) })
		}
	}()
}

package adminapi

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/glance"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/text"
	"github.com/forebay/forebay/internal/web"
	"github.com/forebay/forebay/internal/webhook"
)

// How often what only a diagnosis needs is read, at most, and for how long it may be read. Workers
// and webhooks come and go slowly.
const (
	workersFresh  = 5 * time.Second
	webhooksFresh = 10 * time.Second
	glanceTime    = 500 * time.Millisecond
)

// outlook is what a Server keeps in mind between two diagnoses.
type outlook struct {
	watch    *leaky.Watch
	workers  *glance.Glance[int]             // nil: it isn't known how many there are
	webhooks map[string]*glance.Glance[post] // by backend; empty: operators can't look at them

	mu     sync.Mutex
	served []servedThen          // guarded by mu: of the last minute, the oldest first
	since  map[finding]time.Time // guarded by mu: when each that isn't ok was first seen
}

// finding identifies what was found between two diagnoses.
type finding struct{ thing, backend, level string }

// servedThen is how many stale answers the process had served at a moment, by operation.
type servedThen struct {
	at    time.Time
	stale map[string]int64
}

func newOutlook(c Config) *outlook {
	o := &outlook{watch: leaky.NewWatch(c.Lines), webhooks: map[string]*glance.Glance[post]{},
		since: map[finding]time.Time{}}
	if c.Workers != nil {
		o.workers = glance.New(workersFresh, glanceTime, time.Now, c.Workers)
	}
	for name := range c.Lines {
		if c.Deliveries != nil {
			o.webhooks[name] = glance.New(webhooksFresh, glanceTime, time.Now,
				func(ctx context.Context) (post, error) { return look(ctx, c.Deliveries, name) })
		}
	}
	return o
}

// look reads how a backend's webhooks are doing, from the first of each list.
func look(ctx context.Context, d Deliveries, backend string) (p post, err error) {
	pending, _, err := d.List(ctx, backend, webhook.Pending, "", 1)
	if err != nil {
		return post{}, err
	}
	failed, _, err := d.List(ctx, backend, webhook.Failed, "", 1)
	if err != nil {
		return post{}, err
	}
	if len(pending) > 0 {
		p.Due = pending[0].NextAt
	}
	if len(failed) > 0 {
		p.GivenUp = failed[0].GivenUpAt
	}
	return p, nil
}

// Run remembers what happens, for forecasts and diagnoses, until ctx ends.
func (s *Server) Run(ctx context.Context) {
	var watching sync.WaitGroup
	watching.Go(func() { s.watch.Run(ctx) })
	tick := time.NewTicker(servedEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		s.noteServed(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	watching.Wait()
}

// The stale answers of the last minute are the difference of counts that are taken every 5 s.
const (
	servedEvery = 5 * time.Second
	servedSpan  = time.Minute
)

// noteServed takes the counts of stale answers, and returns those of the last minute.
func (s *Server) noteServed(now time.Time) (lately map[string]int64) {
	counts := servedThen{at: now, stale: map[string]int64{}}
	for name := range s.Operations {
		counts.stale[name] = s.Front.Served(name).Stale
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.served) > 1 && now.Sub(s.served[1].at) >= servedSpan {
		s.served = s.served[1:]
	}
	if n := len(s.served); n == 0 || now.Sub(s.served[n-1].at) >= servedEvery {
		s.served = append(s.served, counts)
	}
	for name, n := range s.served[0].stale {
		counts.stale[name] -= n
	}
	return counts.stale
}

// health answers GET /admin/v1/health. It is answered without the store, too: what was seen last
// counts for a while.
func (s *Server) health(c *web.Call) error {
	asked, err := parseQuery(c)
	if err != nil {
		return err
	}
	seen := s.sight(c.Ctx)
	d := diagnose(seen)
	s.noteFindings(&d, seen.now)
	return show(c, asked, d, text.Health)
}

// sight gathers what a diagnosis is made of. Nothing is asked of a store that is unavailable.
func (s *Server) sight(ctx context.Context) sighting {
	now := time.Now()
	seen := sighting{now: now, backends: map[string]backendSeen{},
		webhooks: map[string]glance.Seen[post]{}, stale: s.noteServed(now),
		store: storeSeen{healthy: s.Store.Healthy(), writable: s.Store.Writable(),
			since: s.Store.Since(), warnings: s.Store.Warnings()}}
	asks := func(ask, last func()) func() {
		if seen.store.healthy {
			return ask
		}
		return last
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, name := range slices.Sorted(maps.Keys(s.Lines)) {
		all.Go(func() {
			var b backendSeen
			asks(func() { b.status = s.watch.Status(ctx, name) },
				func() { b.status = s.watch.Last(name) })()
			b.recent = s.watch.Recent(name)
			if b.status.Value.Paused && seen.store.healthy {
				b.expires = firstDue(s.watch.Dues(ctx, name).Value)
			}
			mu.Lock()
			defer mu.Unlock()
			seen.backends[name] = b
		})
	}
	for name, hooks := range s.webhooks {
		all.Go(func() {
			var p glance.Seen[post]
			asks(func() { p, _ = hooks.Get(ctx) }, func() { p = hooks.Last() })()
			mu.Lock()
			defer mu.Unlock()
			seen.webhooks[name] = p
		})
	}
	if s.workers != nil {
		var workers glance.Seen[int]
		asks(func() { workers, _ = s.workers.Get(ctx) }, func() { workers = s.workers.Last() })()
		seen.workers = &workers
	}
	all.Wait()
	return seen
}

// firstDue is the earliest deadline of the jobs that were looked at; zero: there is none.
func firstDue(due leaky.Dues) (first time.Time) {
	for _, d := range due.Jobs {
		if first.IsZero() || d.At.Before(first) {
			first = d.At
		}
	}
	return first
}

// noteFindings adds to each finding that isn't ok since when it has been seen, unless that is
// known better.
func (s *Server) noteFindings(d *api.Diagnosis, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	still := map[finding]time.Time{}
	for i := range d.Findings {
		f := &d.Findings[i]
		if f.Level == api.LevelOK {
			continue
		}
		key := finding{f.Thing, f.Backend, f.Level}
		first, seen := s.since[key]
		if !seen {
			first = now
		}
		still[key] = first
		if f.Since == nil {
			f.Since = web.Time(first)
		}
	}
	s.since = still
}

package leaky

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/forebay/forebay/internal/glance"
)

const (
	// watchFresh is how long a reading is used again: however many ask, a backend is read once a
	// second at most.
	watchFresh = time.Second
	// watchEvery is how often each backend is read when nobody asks, for what a minute has brought.
	watchEvery = 5 * time.Second
	// watchSpan is how far back the readings that are kept reach.
	watchSpan = time.Minute
	// watchEnough is the shortest time over which arrivals say something.
	watchEnough = 2 * watchEvery
)

// Watched is a line as a Watch reads it.
type Watched interface {
	Status(context.Context) (Status, error)
	Dues(context.Context) (Dues, error)
}

// Watch reads the statuses of several backends for all who ask, and remembers what the last minute
// has brought. Each backend costs Redis at most one status and one look at deadlines a second, and
// one status in 5 s where nobody asks. Safe for concurrent use.
type Watch struct {
	backends map[string]*watched
	now      func() time.Time // time.Now, except in tests
}

type watched struct {
	status *glance.Glance[Status]
	dues   *glance.Glance[Dues]

	mu      sync.Mutex
	past    []past    // guarded by mu: of the last minute, about watchEvery apart
	last    past      // guarded by mu: the newest
	stalled time.Time // guarded by mu: since when starts should come and don't; zero: they do
}

// past is one earlier reading: when it was made, and the books at that time.
type past struct {
	at    time.Time
	books Books
}

// NewWatch returns the Watch of the backends of these lines, by name.
func NewWatch[L Watched](lines map[string]L) *Watch {
	w := &Watch{backends: make(map[string]*watched, len(lines)), now: time.Now}
	for name, line := range lines {
		clock := func() time.Time { return w.now() }
		w.backends[name] = &watched{
			status: glance.New(watchFresh, callTimeout, clock, line.Status),
			dues:   glance.New(watchFresh, callTimeout, clock, line.Dues),
		}
	}
	return w
}

// Run reads each backend every 5 s until ctx ends. Without it only what others ask for is
// remembered.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		var all sync.WaitGroup
		for name := range w.backends {
			all.Go(func() { w.Status(ctx, name) }) // a failure shows in the age of the last one
		}
		all.Wait()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Status returns a backend's status of the last second. The backend must be one of the Watch's.
func (w *Watch) Status(ctx context.Context, backend string) glance.Seen[Status] {
	b := w.backends[backend]
	seen, mine := b.status.Get(ctx)
	if mine && seen.Err == nil {
		b.remember(seen.At, seen.Value)
	}
	return seen
}

// Last is Status without a call to Redis.
func (w *Watch) Last(backend string) glance.Seen[Status] {
	return w.backends[backend].status.Last()
}

// Dues returns the deadlines of a backend's line, of the last second.
func (w *Watch) Dues(ctx context.Context, backend string) glance.Seen[Dues] {
	seen, _ := w.backends[backend].dues.Get(ctx)
	return seen
}

// Recent is what the last minute has brought to a backend, as far as the process has seen it.
type Recent struct {
	Over  time.Duration // between the first reading and the last; 0: there is only one
	Books Books         // what was added to the books in that time
	Arrivals
	// StalledFor is how long jobs have waited and no call has begun, though the drain isn't paused,
	// the gate is open and there is room for a call; 0: they do begin.
	StalledFor time.Duration
}

// Recent returns what the last minute has brought to a backend.
func (w *Watch) Recent(backend string) Recent {
	b, now := w.backends[backend], w.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	var r Recent
	if len(b.past) == 0 {
		return r
	}
	if !b.stalled.IsZero() {
		r.StalledFor = b.last.at.Sub(b.stalled)
	}
	first, last := b.past[0], b.past[len(b.past)-1]
	r.Over, r.Books = last.at.Sub(first.at), last.books.less(first.books)
	if r.Over < watchEnough || now.Sub(last.at) > 2*watchEvery {
		return r
	}
	r.PerSecond, r.Arrivals.Over = entered(first, last), r.Over
	for i := range len(b.past) - 1 {
		off := entered(b.past[i], b.past[i+1]) - r.PerSecond
		r.Spread += off * off / float64(len(b.past)-1)
	}
	r.Spread = math.Sqrt(r.Spread)
	return r
}

// entered is how many jobs a second entered the line between two readings.
func entered(from, to past) float64 {
	n := to.books.Accepted + to.books.Redriven - from.books.Accepted - from.books.Redriven
	return float64(n) / to.at.Sub(from.at).Seconds()
}

// remember keeps a reading as a part of the recent past.
func (b *watched) remember(at time.Time, s Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.Books.Accepted < b.last.books.Accepted {
		b.past, b.stalled = nil, time.Time{} // Redis has lost its keys
	}
	held := s.Waiting == 0 || s.Paused || s.WaitingOn == OnQueuePaused || s.Probing ||
		s.GateUntil.After(s.Now) || s.InFlight >= int64(s.EffectiveConcurrency)
	switch {
	case held || b.last.at.IsZero() || s.Books.Started != b.last.books.Started:
		b.stalled = time.Time{}
	case b.stalled.IsZero():
		b.stalled = b.last.at
	}
	b.last = past{at, s.Books}
	if n := len(b.past); n > 0 && at.Sub(b.past[n-1].at) < watchEvery-watchFresh {
		return
	}
	for len(b.past) > 1 && at.Sub(b.past[0].at) > watchSpan {
		b.past = b.past[1:]
	}
	b.past = append(b.past, b.last)
}

// less returns what was added to the books since they were as in before.
func (b Books) less(before Books) Books {
	return Books{Accepted: b.Accepted - before.Accepted, Succeeded: b.Succeeded - before.Succeeded,
		Failed: b.Failed - before.Failed, Canceled: b.Canceled - before.Canceled,
		Expired: b.Expired - before.Expired, Lost: b.Lost - before.Lost,
		Redriven: b.Redriven - before.Redriven, Started: b.Started - before.Started,
		Throttled: b.Throttled - before.Throttled}
}

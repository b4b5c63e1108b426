package leaky

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Health is what feedback says of a backend. While it is off, the backend is always well.
type Health struct {
	Gate    time.Duration // until the gate opens; 0: it is open
	Probing bool          // one call tries whether the backend is well again; nothing else starts until it has ended
	Factor  float64       // what is left of the rate; 1: all of it
}

// Health tells how the backend is.
func (l *Line) Health(ctx context.Context) (Health, error) {
	a, err := l.run(ctx, healthScript)
	if err != nil {
		return Health{}, err
	}
	h := Health{Gate: a.micros(), Probing: a.text() == "1", Factor: a.real()}
	return h, a.err
}

const (
	// healthPoll is how often a backend's health is asked for: a closed gate is at least 1 s long.
	healthPoll = 250 * time.Millisecond
	// healthHolds is how long the last word holds where no newer one comes.
	healthHolds = 5 * time.Second
)

// Healths knows how several backends are: it asks in the background, so that who wants to know pays nothing. Safe for concurrent use.
type Healths struct {
	lines map[string]*Line
	last  map[string]*atomic.Pointer[heardHealth]
}

type heardHealth struct {
	Health
	at time.Time
}

// NewHealths returns the Healths of these lines' backends, by name. Of any other it knows nothing. Until Run has asked once, all are well.
func NewHealths(lines map[string]*Line) *Healths {
	h := &Healths{lines: lines, last: make(map[string]*atomic.Pointer[heardHealth], len(lines))}
	for backend := range lines {
		h.last[backend] = new(atomic.Pointer[heardHealth])
	}
	return h
}

// Run asks for every backend's health four times a second until ctx ends.
func (h *Healths) Run(ctx context.Context) {
	var all sync.WaitGroup
	for backend, line := range h.lines {
		all.Go(func() { h.follow(ctx, line, h.last[backend]) })
	}
	all.Wait()
}

func (h *Healths) follow(ctx context.Context, line *Line, last *atomic.Pointer[heardHealth]) {
	tick := time.NewTicker(healthPoll)
	defer tick.Stop()
	for {
		asked := time.Now()
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		if found, err := line.Health(bounded); err == nil { // else the last word holds for a while
			last.Store(&heardHealth{found, asked})
		}
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Sick reports whether a backend's gate is closed or being probed, or what feedback leaves of its rate is under the given part. It
// waits for nothing. A backend of which nothing was heard for 5 s isn't sick.
func (h *Healths) Sick(backend string, below float64) bool {
	last := h.last[backend]
	if last == nil {
		return false
	}
	heard := last.Load()
	if heard == nil {
		return false
	}
	age := time.Since(heard.at)
	return age <= healthHolds && (heard.Gate > age || heard.Probing || heard.Factor < below)
}

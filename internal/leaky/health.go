package leaky

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Health is a backend's health according to feedback. While feedback is off, a backend is always
// healthy.
type Health struct {
	Gate time.Duration // until the gate opens; 0: it is open
	// A call probes whether the backend has recovered; no other starts meanwhile.
	Probing bool
	Factor  float64 // the part of the rate that is in force; 1: all of it
}

// Health reads the backend's health.
func (l *Line) Health(ctx context.Context) (Health, error) {
	a, err := l.run(ctx, healthScript)
	if err != nil {
		return Health{}, err
	}
	h := Health{Gate: a.micros(), Probing: a.text() == "1", Factor: a.real()}
	return h, a.err
}

const (
	// healthPoll is how often a backend's health is read: a gate is closed for at least 1 s.
	healthPoll = 250 * time.Millisecond
	// healthHolds is how long a reading is used if there is no newer one.
	healthHolds = 5 * time.Second
)

// Healths reads the health of several backends in the background, so that Sick costs nothing. Safe
// for concurrent use.
type Healths struct {
	lines map[string]*Line
	last  map[string]*atomic.Pointer[healthReading]
}

type healthReading struct {
	Health
	at time.Time
}

// NewHealths returns the Healths of the backends of these lines, by name. Until Run has read them
// once, all are healthy.
func NewHealths(lines map[string]*Line) *Healths {
	h := &Healths{lines: lines, last: make(map[string]*atomic.Pointer[healthReading], len(lines))}
	for backend := range lines {
		h.last[backend] = new(atomic.Pointer[healthReading])
	}
	return h
}

// Run reads every backend's health four times a second until ctx ends.
func (h *Healths) Run(ctx context.Context) {
	var all sync.WaitGroup
	for backend, line := range h.lines {
		all.Go(func() { h.follow(ctx, line, h.last[backend]) })
	}
	all.Wait()
}

func (h *Healths) follow(ctx context.Context, line *Line, last *atomic.Pointer[healthReading]) {
	tick := time.NewTicker(healthPoll)
	defer tick.Stop()
	for {
		asked := time.Now()
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		// Otherwise the last reading is used for a while.
		if found, err := line.Health(bounded); err == nil {
			last.Store(&healthReading{found, asked})
		}
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Sick reports whether a backend's gate is closed or being probed, or its Factor is below the given
// part. It doesn't block. A backend without a reading in the last 5 s isn't sick, and neither is an
// unknown one.
func (h *Healths) Sick(backend string, below float64) bool {
	last := h.last[backend]
	if last == nil {
		return false
	}
	reading := last.Load()
	if reading == nil {
		return false
	}
	age := time.Since(reading.at)
	return age <= healthHolds && (reading.Gate > age || reading.Probing || reading.Factor < below)
}

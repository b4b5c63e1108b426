package admission

import (
	"slices"
	"sync"
	"time"

	"github.com/forebay/forebay/internal/limits"
)

const (
	// maxRecent bounds the clients whose limits are remembered, in under 1 KiB each. At the bound
	// all are forgotten.
	maxRecent = 10_000
	// maxPlans bounds what is remembered of one client: its limits for some operations, and for
	// calls that name no operation.
	maxPlans = 4
)

// recent remembers for a moment where clients' limits stood, so that answers that spend nothing
// needn't call Redis. A client's own requests through this process are always included. Requests of
// other clients, and through other processes, may be missing. The zero value remembers nothing.
// Safe for concurrent use.
type recent struct {
	mu      sync.Mutex
	clients map[string]*recentLimits // guarded by mu; by client id
	emptied time.Time                // guarded by mu: when clients was emptied last
}

// recentLimits are one client's.
type recentLimits struct {
	decided  time.Time // the newest decision, by the store's clock: earlier reads are old
	changed  time.Time // the last other change, by this process's clock: reads begun before are old
	readings []reading
}

// reading is where the limits of one plan stood.
type reading struct {
	plan    *Plan
	subject limits.Subject
	verdict limits.Verdict
	when    time.Time // by this process's clock
}

// of returns a client's recent limits. m.mu must be held.
func (m *recent) of(client string) *recentLimits {
	if m.clients == nil || len(m.clients) >= maxRecent && m.clients[client] == nil {
		m.clients, m.emptied = make(map[string]*recentLimits), time.Now()
	}
	if m.clients[client] == nil {
		m.clients[client] = &recentLimits{}
	}
	return m.clients[client]
}

// newReading returns the part of a verdict that is remembered. v.Standings must not change
// afterwards.
func newReading(p *Plan, s limits.Subject, v limits.Verdict) reading {
	standings := limits.Verdict{Allowed: true, Standings: v.Standings, At: v.At}
	return reading{plan: p, subject: s, verdict: standings, when: time.Now()}
}

// decision notes a verdict on a request that may have been charged. Everything remembered of the
// client before is then out of date.
func (m *recent) decision(p *Plan, r limits.Request, v limits.Verdict) {
	if r.Subject.Client == "" || len(p.Rules) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of(r.Subject.Client)
	if v.At.Before(c.decided) {
		return
	}
	// The order of two decisions in one batch isn't known here. The standings of a refused request
	// are about its own cost and bytes.
	tied := v.At.Equal(c.decided)
	c.decided, c.readings = v.At, c.readings[:0]
	if !tied && (v.Allowed || r.Cost == 1 && !p.Bytes) {
		c.readings = append(c.readings, newReading(p, r.Subject, v))
	}
}

// peek notes where the limits stood when they were read, by a call that began at the given time.
func (m *recent) peek(p *Plan, s limits.Subject, v limits.Verdict, began time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of(s.Client)
	if !v.At.After(c.decided) || began.Before(c.changed) || began.Before(m.emptied) {
		return
	}
	c.readings = slices.DeleteFunc(c.readings, func(r reading) bool { return r.plan == p })
	if len(c.readings) == maxPlans {
		c.readings = slices.Delete(c.readings, 0, 1)
	}
	c.readings = append(c.readings, newReading(p, s, v))
}

// forget drops a client's recent limits, after a change that no verdict reports.
func (m *recent) forget(client string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.clients[client]; c != nil {
		c.changed, c.readings = time.Now(), c.readings[:0]
	}
}

// recall returns where a plan's limits stood for a subject, no longer ago than within, or nil if
// that isn't known.
func (m *recent) recall(p *Plan, s limits.Subject, within time.Duration) *limits.Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clients[s.Client]
	if c == nil {
		return nil
	}
	for _, r := range slices.Backward(c.readings) {
		if time.Since(r.when) > within {
			continue
		}
		v := r.verdict
		if r.plan == p && r.subject == s {
			return &v
		}
		// The limits on all of the client's requests come first among those of an operation.
		n := len(p.Rules)
		r.subject.Operation = s.Operation
		if p.Own == n && r.plan.Own == n && r.subject == s &&
			slices.Equal(r.plan.Rules[:n], p.Rules) {
			v.Standings = v.Standings[:n:n]
			return &v
		}
	}
	return nil
}

package leaky_test

import (
	"cmp"
	"math"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// treatment returns how the backend is treated at the moment of the view.
func (v *view) treatment() leaky.Feedback {
	return leaky.Feedback{Factor: v.factor, Gate: span(us(max(v.gate-v.now, 0)))}
}

// learn applies an outcome's sign of the backend's health, and returns the changes.
func (m *model) learn(s leaky.Settlement, to jobs.State, v *view) (changes []leaky.Change) {
	if took := usec(s.Took); took > 0 {
		if m.call != 0 {
			took = us(m.call + (took-m.call)/8)
		}
		m.call = took
	}
	throttled := s.Sign == leaky.Throttled
	if throttled {
		m.books["throttled"]++
	}
	if !v.feedback {
		return nil
	}
	probes, rest := v.probe == s.ID, usec(s.Gate)
	trouble := throttled || s.Sign == leaky.Timeout || s.Sign == leaky.Unreachable
	if probes || v.probe == "" && m.now >= v.gate { // it began after the last trouble
		switch {
		case trouble:
			if m.lower(s.Sign) {
				changes = append(changes, leaky.Lowered)
			}
			if throttled && rest == 0 {
				m.streak++
				rest = min(1e6*math.Pow(2, float64(m.streak-1)), 60e6)
			}
		case to == jobs.Succeeded && m.now >= v.gate:
			if m.streak = 0; m.raise() {
				changes = append(changes, leaky.RaisedToFull)
			}
		}
	}
	if throttled {
		if m.now >= v.gate && rest > 0 {
			changes = append(changes, leaky.GateClosed)
		}
		m.gate, m.at, m.last = us(max(v.gate, m.now+rest)), m.now, v.last
		m.probe = cmp.Or(m.probe, "due")
	}
	if probes {
		if m.probe = "due"; !trouble && m.now >= v.gate &&
			(s.Sign == leaky.Answered || to == jobs.Succeeded) {
			m.probe, changes = "", append(changes, leaky.ProbePassed)
		}
	}
	return changes
}

const coolDown = 5e6 // µs

// past returns a time, or none if it is in the future because the clock was set back.
func (m *model) past(moment float64) float64 {
	if moment > m.now {
		return 0
	}
	return moment
}

func (m *model) lower(cause leaky.Sign) bool {
	m.cause = cause
	if m.now-m.past(m.cut) < coolDown {
		return false
	}
	before := cmp.Or(m.factor, 1)
	m.factor, m.cut = max(0.05, before/2), m.now
	return m.factor < before
}

func (m *model) raise() bool {
	if m.factor == 0 {
		return false
	}
	m.factor = min(1, m.factor+min(m.now-max(m.past(m.cut), m.past(m.healed)), coolDown)/60e6)
	m.healed = m.now
	if m.factor < 1 {
		return false
	}
	m.factor, m.cut, m.healed, m.cause = 0, 0, 0, ""
	return true
}

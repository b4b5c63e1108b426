package leaky_test

import (
	"fmt"
	"math"
	"reflect"

	"github.com/forebay/forebay/internal/leaky"
)

// overrides are a model's live overrides. Those that have ended count as none at once, and are
// removed by the next release.
type overrides struct {
	override   leaky.Override
	notes      map[string]leaky.Note
	by, reason string
	tunedAt    int64
	revision   int
}

func newOverrides() overrides { return overrides{notes: map[string]leaky.Note{}} }

// field is the field of a name in o.
func field(o *leaky.Override, name string) reflect.Value {
	to, _ := o.Field(name)
	return reflect.ValueOf(to).Elem()
}

// inForce returns the overrides that haven't ended, and when the next one ends.
func (m *model) inForce() (o leaky.Override, nextEnd float64) {
	o, nextEnd = m.override, math.Inf(1)
	for name, note := range m.notes {
		switch end := float64(note.Ends.UnixMicro()); {
		case note.Ends.IsZero():
		case end > m.now:
			nextEnd = min(nextEnd, end)
		default:
			field(&o, name).SetZero()
		}
	}
	return o, nextEnd
}

// lapse removes the overrides that have ended, and returns them.
func (m *model) lapse() (lapsed leaky.Override) {
	live, _ := m.inForce()
	for _, name := range m.override.Names() {
		if field(&live, name).IsNil() {
			field(&lapsed, name).Set(field(&m.override, name))
			delete(m.notes, name)
		}
	}
	m.override = live
	return lapsed
}

func (m *model) version() string {
	o, _ := m.inForce()
	return fmt.Sprintf("%d.%d.%d", m.revision, m.tunedAt, len(o.Names()))
}

func (m *model) notesOn(o leaky.Override) map[string]leaky.Note {
	notes := map[string]leaky.Note{}
	for _, name := range o.Names() {
		notes[name] = m.notes[name]
	}
	return notes
}

// tune is the model's Retune.
func (m *model) tune(t leaky.Tuning) error {
	if t.If != "" && t.If != m.version() {
		return leaky.ErrChanged
	}
	if t.Reset {
		m.override, m.notes = leaky.Override{}, map[string]leaky.Note{}
	}
	for _, name := range t.Set.Names() {
		field(&m.override, name).Set(field(&t.Set, name))
		note := leaky.Note{By: t.By, Reason: t.Reason, At: when(m.now)}
		if t.For != 0 {
			note.Ends = when(m.now + usec(t.For))
		}
		m.notes[name] = note
	}
	if m.override.Paused != nil && !*m.override.Paused {
		m.override.Paused = nil
		delete(m.notes, "paused")
	}
	m.by, m.reason, m.tunedAt = t.By, t.Reason, int64(m.now)
	m.revision++
	return nil
}

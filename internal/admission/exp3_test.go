package admission

import (
	"testing"
	"time"
)

func BenchmarkParts(b *testing.B) {
	rules := []*Rule{bucketOf(b, MaxAmount, time.Hour, 0), counterOf(b, MaxAmount, time.Hour), counterOf(b, 2, time.Hour)}
	r := request(1, rules...)
	c := newClock()
	m := &memory{clock: c.now.Load, kept: map[string]kept{}}
	s := &script{slack: time.Second}
	q, _ := r.question(spend)
	batch := make([]question, 32)
	for i := range batch {
		batch[i] = q
	}
	b.Run("question", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.question(spend)
		}
	})
	b.Run("twin", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.answer(q)
		}
	})
	a := m.answer(q)
	b.Run("verdict", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			verdict(r, []question{q}, []answer{a})
		}
	})
	b.Run("encode32", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.encode(batch)
		}
	})
	l := NewLocal()
	b.Run("local", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.Decide(b.Context(), r)
		}
	})
}

package leaky_test

import (
	"context"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/leaky"
)

// fakeLine is a line whose status a test sets.
type fakeLine struct{ status func() (leaky.Status, error) }

func (f *fakeLine) Status(context.Context) (leaky.Status, error) { return f.status() }

func (f *fakeLine) Dues(context.Context) (leaky.Dues, error) { return leaky.Dues{}, nil }

// The arrivals of the last minute are their mean and spread, unknown for a young process, and old
// ones don't count.
func TestAWatchKnowsTheArrivalsOfTheLastMinute(t *testing.T) {
	t.Parallel()
	var s leaky.Status
	w := leaky.NewWatch(map[string]*fakeLine{"b": {status: func() (leaky.Status, error) {
		return s, nil
	}}})
	now := time.Now()
	w.SetClock(func() time.Time { return now })
	pass := func(jobs int64) {
		now = now.Add(5 * time.Second)
		s.Books.Accepted += jobs
		w.Status(context.Background(), "b")
	}
	pass(1000)
	pass(25)
	if r := w.Recent("b"); r.Arrivals != (leaky.Arrivals{}) {
		t.Errorf("after 5 s: %+v", r)
	}
	pass(25)
	if r := w.Recent("b"); r.PerSecond != 5 || r.Spread != 0 || r.Arrivals.Over != 10*time.Second {
		t.Errorf("after 10 s: %+v", r)
	}
	for i := range 30 {
		pass(int64(40 + 20*(i%2)))
	}
	if r := w.Recent("b"); r.PerSecond != 10 || r.Spread != 2 || r.Arrivals.Over != time.Minute ||
		r.Books.Accepted != 600 {
		t.Errorf("after minutes: %+v", r)
	}
	now = now.Add(time.Minute)
	if r := w.Recent("b"); r.Arrivals.Over != 0 {
		t.Errorf("a minute later: %+v", r)
	}
	s.Books.Accepted = 3 // the store has lost everything
	pass(0)
	pass(0)
	pass(0)
	if r := w.Recent("b"); r.PerSecond != 0 || r.Arrivals.Over != 10*time.Second {
		t.Errorf("after a loss: %+v", r)
	}
}

// A line is stalled while jobs wait, nothing keeps their starts back, and none comes.
func TestAWatchNoticesThatNobodyDrains(t *testing.T) {
	t.Parallel()
	s := leaky.Status{Waiting: 5, EffectiveConcurrency: 4}
	w := leaky.NewWatch(map[string]*fakeLine{"b": {status: func() (leaky.Status, error) {
		return s, nil
	}}})
	now := time.Now()
	w.SetClock(func() time.Time { return now })
	stalled := func(after time.Duration) time.Duration {
		now = now.Add(after)
		w.Status(context.Background(), "b")
		return w.Recent("b").StalledFor
	}
	if d := stalled(0); d != 0 {
		t.Errorf("at first sight: %v", d)
	}
	for i := range 20 {
		if d := stalled(time.Second); d != time.Duration(i+1)*time.Second {
			t.Errorf("after %d s: %v", i+1, d)
		}
	}
	s.Books.Started++
	if d := stalled(time.Second); d != 0 {
		t.Errorf("after a start: %v", d)
	}
	for _, held := range []func(*leaky.Status){
		func(s *leaky.Status) { s.Waiting = 0 },
		func(s *leaky.Status) { s.Paused = true },
		func(s *leaky.Status) { s.Probing = true },
		func(s *leaky.Status) { s.InFlight = 4 },
		func(s *leaky.Status) { s.Now, s.GateUntil = now, now.Add(time.Minute) },
	} {
		before := s
		held(&s)
		stalled(time.Second)
		if d := stalled(time.Minute); d != 0 {
			t.Errorf("%+v: %v", s, d)
		}
		s = before
	}
}

package leaky_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/units"
)

func (b *bench) retune(t leaky.Tuning) {
	b.t.Helper()
	if err := b.Retune(context.Background(), t); err != nil {
		b.t.Fatal(err)
	}
}

// Whatever is set for a while is as configured again from that moment on, for every reader. Each
// override has an end of its own.
func TestAnOverrideEndsByItself(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	all := leaky.Override{Rate: new(rate(t, "0.5/s")), Burst: new(2), Concurrency: new(3),
		Capacity: new(4), Paused: new(true), Feedback: new(units.Switch(false))}
	const why = "the backend restarts"
	b.retune(leaky.Tuning{Set: all, By: "kim", Reason: why, For: 10 * time.Second})
	set := b.now
	b.pass(time.Second)
	b.retune(leaky.Tuning{Set: leaky.Override{Burst: new(5)}, By: "jo"})
	b.retune(leaky.Tuning{Set: leaky.Override{Capacity: new(6)}, By: "jo", For: time.Minute})
	s := b.status()
	later := leaky.Override{Burst: new(5), Capacity: new(6)}
	if s.Settings != later.Apply(all.Apply(s.Configured)) {
		t.Errorf("in force: %+v", s.Settings)
	}
	for name, want := range map[string]leaky.Note{
		"rate":     {By: "kim", Reason: why, At: set, Ends: set.Add(10 * time.Second)},
		"paused":   {By: "kim", Reason: why, At: set, Ends: set.Add(10 * time.Second)},
		"burst":    {By: "jo", At: b.now},
		"capacity": {By: "jo", At: b.now, Ends: b.now.Add(time.Minute)},
	} {
		if got := s.Notes[name]; got.By != want.By || got.Reason != want.Reason ||
			!got.At.Equal(want.At) || !got.Ends.Equal(want.Ends) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if s.By != "jo" || s.Reason != "" || len(s.Notes) != 6 {
		t.Errorf("last by %s because of %q, %d notes", s.By, s.Reason, len(s.Notes))
	}

	b.pass(9*time.Second - time.Microsecond)
	if s := b.status(); len(s.Override.Names()) != 6 || !s.Paused {
		t.Errorf("just before the end: %+v", s.Override)
	}
	before := b.status().Version
	b.pass(time.Microsecond)
	s = b.status()
	if got := s.Override.Names(); !slices.Equal(got, []string{"burst", "capacity"}) ||
		s.Settings != later.Apply(s.Configured) || len(s.Notes) != 2 || s.Version == before {
		t.Errorf("at the end: %v in version %s, settings %+v", got, s.Version, s.Settings)
	}
	if p := b.offer(b.job("acme")); p.WaitingOn != leaky.OnRate {
		t.Errorf("a job offered then waits on %s", p.WaitingOn)
	}
	r := b.release()
	if len(r.Tickets) != 1 {
		t.Errorf("a release then = %+v", r)
	}
	// Just one release removes what has ended, and says so.
	ended := []string{"rate", "concurrency", "paused", "feedback"}
	if got := r.Lapsed.Names(); !slices.Equal(got, ended) || r.Lapsed.Rate.String() != "0.5/s" {
		t.Errorf("it says that %v have ended", got)
	}
	if r := b.again().release(); len(r.Lapsed.Names()) > 0 {
		t.Errorf("another one says it again: %v", r.Lapsed.Names())
	}
	fields := b.rdb.HKeys(t.Context(), jobs.KeyPrefix(b.Settings().Backend)+"pace").Val()
	for _, name := range []string{"rate", "interval", "paused", "note_rate", "note_interval"} {
		if slices.Contains(fields, name) {
			t.Errorf("%s is still stored", name)
		}
	}
	b.pass(51 * time.Second)
	if s := b.status(); !slices.Equal(s.Override.Names(), []string{"burst"}) || s.Capacity != 100 {
		t.Errorf("after the other's end: %+v", s)
	}
	b.pass(30 * 24 * time.Hour)
	if s := b.status(); s.Burst != 5 {
		t.Errorf("what has no end has ended: %+v", s)
	}
}

// A change of an override replaces its end: by another, or by none.
func TestAChangedOverrideHasAnEndOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	for _, lasts := range []time.Duration{time.Minute, time.Second, time.Hour, 0} {
		b.retune(leaky.Tuning{Set: leaky.Override{Paused: new(true)}, For: lasts})
	}
	b.pass(2 * time.Hour)
	if !b.status().Paused {
		t.Error("a pause without an end has ended")
	}
	b.retune(leaky.Tuning{Set: leaky.Override{Paused: new(true)}, For: time.Minute})
	b.pause(false)
	b.pause(true)
	b.pass(time.Hour)
	if !b.status().Paused {
		t.Error("a pause has ended at the time of the one before")
	}
	b.retune(leaky.Tuning{Set: leaky.Override{Rate: new(rate(t, "1/s"))}, For: time.Minute})
	b.retune(leaky.Tuning{Reset: true})
	b.tune(leaky.Override{Rate: new(rate(t, "2/s"))})
	b.pass(time.Hour)
	if got := b.status().Rate.String(); got != "2/s" {
		t.Errorf("after a reset, the rate ended all the same: %s", got)
	}
}

// The dispatchers needn't poll for an end: a release says when it is worth calling again.
func TestAReleaseComesBackWhenAnOverrideEnds(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.retune(leaky.Tuning{Set: leaky.Override{Paused: new(true)}, For: 2 * time.Second})
	b.retune(leaky.Tuning{Set: leaky.Override{Burst: new(3)}, For: time.Minute})
	b.fill("acme", 2)
	r := b.release()
	if r.Reason != leaky.OnPaused || r.Wait != 2*time.Second {
		t.Fatalf("while it is paused: %+v", r)
	}
	b.pass(r.Wait)
	if r := b.release(); len(r.Tickets) != 2 || r.Wait != 58*time.Second {
		t.Errorf("at the end of the pause: %+v", r)
	}
}

// The schedule stays exact: an end of an override grants the slots that an operator's reset at that
// moment would grant.
func TestAnEndIsLikeAnOperatorsReset(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set   leaky.Override
		lasts time.Duration
	}{
		"a lower rate":  {leaky.Override{Rate: new(rate(t, "7/m"))}, 4130 * time.Millisecond},
		"a higher rate": {leaky.Override{Rate: new(rate(t, "70/s"))}, 1007 * time.Millisecond},
		"no rate":       {leaky.Override{Rate: new(leaky.Unlimited)}, time.Second},
		"another burst": {leaky.Override{Burst: new(5)}, 1500 * time.Millisecond},
		"fewer calls":   {leaky.Override{Concurrency: new(1)}, 2300 * time.Millisecond},
		"a pause":       {leaky.Override{Paused: new(true)}, 3333 * time.Millisecond},
		"a rate and a burst": {leaky.Override{Rate: new(rate(t, "3/s")), Burst: new(2)},
			time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var dues [2][]int64
			first := time.Now().Add(-60 * 24 * time.Hour).Truncate(time.Second)
			for i := range dues {
				b := newLine(t, nil)
				b.now = first
				b.fill("acme", 100)
				d := b.drainer(170 * time.Millisecond)
				d.run(430 * time.Millisecond)
				end := b.now.Add(c.lasts)
				tuning := leaky.Tuning{Set: c.set}
				if i == 0 {
					tuning.For = c.lasts
				}
				b.retune(tuning)
				d.askAt = b.now // the wake-up
				d.until(end)
				if i == 1 {
					b.retune(leaky.Tuning{Reset: true})
				}
				d.askAt = b.now
				d.run(3 * time.Second)
				for _, s := range d.starts {
					dues[i] = append(dues[i], s.Due-first.UnixMicro())
				}
				d.empty()
			}
			if !slices.Equal(dues[0], dues[1]) {
				t.Errorf("with an end the starts are\n%v, with a reset\n%v", dues[0], dues[1])
			}
		})
	}
}

// An override ends although no process lives at that moment, on Redis's clock.
func TestAnOverrideEndsWhileNoProcessRuns(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	line := leaky.New(b.rdb, b.Settings())
	id := jobs.NewID(b.Settings().Backend)
	o := b.job("acme")
	o.Job.ID = id
	if _, err := line.Offer(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := line.Retune(t.Context(), leaky.Tuning{Set: leaky.Override{Paused: new(true),
		Rate: new(rate(t, "1/h"))}, By: "kim", For: time.Second}); err != nil {
		t.Fatal(err)
	}
	s, err := line.Status(t.Context())
	if err != nil || !s.Paused {
		t.Fatalf("%+v, %v", s, err)
	}
	waitForRedis(t, b.rdb, s.Notes["paused"].Ends)
	line = leaky.New(b.rdb, b.Settings())
	s, err = line.Status(t.Context())
	if err != nil || s.Paused || s.Rate != b.Settings().Rate || s.WaitingOn != leaky.OnRate {
		t.Errorf("the next process finds %+v, %v", s, err)
	}
	r, err := line.Release(t.Context())
	if err != nil || len(r.Tickets) != 1 ||
		!slices.Equal(r.Lapsed.Names(), []string{"rate", "paused"}) {
		t.Errorf("its release = %+v, %v", r, err)
	}
	if _, err := line.Cancel(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// waitForRedis waits until Redis's clock has reached a moment.
func waitForRedis(t *testing.T, rdb redis.UniversalClient, moment time.Time) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		now, err := rdb.Time(t.Context()).Result()
		if err != nil || time.Now().After(end) {
			t.Fatalf("Redis's clock doesn't get to %v: %v, %v", moment, now, err)
		}
		if !now.Before(moment) {
			return
		}
	}
}

// Of operators who have all read the same settings, one changes them. The others are told.
func TestOfTwoOperatorsAtOnceOneIsTurnedAway(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.tune(leaky.Override{Burst: new(2)})
	read := b.status().Version
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() {
			errs[i] = b.Retune(context.Background(), leaky.Tuning{By: "x", If: read,
				Set: leaky.Override{Concurrency: new(i + 1)}})
		})
	}
	all.Wait()
	made := 0
	for i, err := range errs {
		switch {
		case err == nil:
			made++
			if got := b.status().Concurrency; got != i+1 {
				t.Errorf("concurrency is %d, want %d", got, i+1)
			}
		case !errors.Is(err, leaky.ErrChanged):
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("%d of %d changes were made", made, len(errs))
	}
	now := b.status().Version
	b.pass(time.Hour) // time alone changes no version
	if b.status().Version != now {
		t.Error("another version without a change")
	}
	for _, err := range []error{
		b.Retune(t.Context(), leaky.Tuning{If: read, Reset: true}),
		b.Retune(t.Context(), leaky.Tuning{If: "rubbish", Reset: true}),
	} {
		if !errors.Is(err, leaky.ErrChanged) {
			t.Error(err)
		}
	}
	b.retune(leaky.Tuning{If: now, Set: leaky.Override{Burst: new(3)}})
}

// Who read a pause that has ended since, read other settings.
func TestAnEndIsAChange(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.retune(leaky.Tuning{Set: leaky.Override{Paused: new(true)}, For: time.Minute})
	read := b.status().Version
	b.pass(time.Minute)
	for range 2 { // before and after a release has removed it
		if err := b.Retune(t.Context(),
			leaky.Tuning{If: read, Reset: true}); !errors.Is(err, leaky.ErrChanged) {
			t.Error(err)
		}
		b.release()
	}
}

func TestATuningThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	for _, c := range []leaky.Tuning{{For: time.Second - 1}, {For: -time.Hour},
		{For: 30*24*time.Hour + 1}, {Reason: "two\nlines"}, {By: "two\nlines"},
		{Reason: strings.Repeat("ü", 201)}, {Set: leaky.Override{Burst: new(0)}}} {
		if err := b.Retune(t.Context(), c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
	if s := b.status(); !s.At.IsZero() {
		t.Errorf("status = %+v", s)
	}
	b.retune(leaky.Tuning{Set: leaky.Override{Burst: new(2)}, Reason: strings.Repeat("ü", 200),
		For: 30 * 24 * time.Hour})
}

// Overrides of the version before have no note, no end and no revision.
func TestOverridesOfTheVersionBeforeGoOnWorking(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	pace := jobs.KeyPrefix(b.Settings().Backend) + "pace"
	asBefore := func(fields ...any) {
		t.Helper()
		fields = append(fields, "tuned_by", "kim", "tuned_at", b.now.UnixMicro())
		if err := b.rdb.HSet(t.Context(), pace, fields...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	asBefore("rate", "2/s", "interval", "500000", "paused", "1")
	s := b.status()
	if !s.Paused || s.Rate.String() != "2/s" || s.By != "kim" ||
		s.Notes["rate"] != (leaky.Note{}) || len(s.Notes) != 2 {
		t.Fatalf("status = %+v", s)
	}
	b.pass(time.Hour)
	b.retune(leaky.Tuning{If: s.Version, Set: leaky.Override{Paused: new(false)}, By: "jo"})
	s = b.status()
	if s.Paused || s.Rate.String() != "2/s" {
		t.Errorf("resumed: %+v", s)
	}
	// A process of the version before counts no revision, and its change is noticed all the same.
	b.pass(time.Second)
	asBefore("rate", "3/s", "interval", "333333")
	if err := b.Retune(t.Context(), leaky.Tuning{If: s.Version, Reset: true}); !errors.Is(err,
		leaky.ErrChanged) {
		t.Error(err)
	}
	b.retune(leaky.Tuning{Reset: true, By: "jo"})
	if s := b.status(); len(s.Override.Names()) > 0 || s.Rate != b.Settings().Rate {
		t.Errorf("reset: %+v", s)
	}
}

// Ends and versions work wherever scripts run.
func TestEndsOnEveryKindOfRedis(t *testing.T) {
	t.Parallel()
	cluster, _ := redistest.StartCluster(t)
	for name, rdb := range map[string]redis.UniversalClient{"cluster": cluster,
		"miniredis": redistest.Miniredis(t)} {
		b := newLineOn(t, rdb, nil)
		b.retune(leaky.Tuning{Set: leaky.Override{Rate: new(rate(t, "1/h")), Paused: new(true)},
			For: time.Minute, If: b.status().Version})
		if s := b.status(); !s.Paused {
			t.Errorf("%s: %+v", name, s)
		}
		b.pass(time.Minute)
		if s, r := b.status(), b.release(); s.Paused || s.Rate != s.Configured.Rate ||
			len(r.Lapsed.Names()) != 2 {
			t.Errorf("%s: %+v, %+v", name, s, r)
		}
	}
}

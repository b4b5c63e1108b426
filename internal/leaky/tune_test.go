package leaky_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/units"
)

func TestOverridesHoldForAllProcessesAndSurviveThem(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	before := b.status()
	if before.Rate.String() != "10/s" || before.Override != (leaky.Override{}) || before.By != "" ||
		!before.At.IsZero() {
		t.Fatalf("untuned: %+v", before)
	}
	fast, burst, concurrency, capacity, paused := rate(t, "0.5/s"), 2, 3, 4, true
	b.tune(leaky.Override{Rate: &fast, Burst: &burst, Concurrency: &concurrency,
		Capacity: &capacity})
	b.pass(time.Second)
	b.tune(leaky.Override{Paused: &paused}) // other settings stay

	s := b.again().status()
	if s.Rate.String() != "0.5/s" || s.Rate.Interval() != 2e6 || s.Burst != 2 ||
		s.Concurrency != 3 || s.Capacity != 4 || !s.Paused {
		t.Errorf("in force: %+v", s)
	}
	if *s.Override.Rate != s.Rate || *s.Override.Burst != 2 || *s.Override.Concurrency != 3 ||
		*s.Override.Capacity != 4 || !*s.Override.Paused {
		t.Errorf("override: %+v", s.Override)
	}
	if s.By != "operator" || !s.At.Equal(b.now) || s.Configured != b.Settings() {
		t.Errorf("by %q at %v, configured %+v", s.By, s.At, s.Configured)
	}
	b.retune(leaky.Tuning{Reset: true, By: "operator"})
	if s := b.status(); s.Override != (leaky.Override{}) || s.Rate.String() != "10/s" ||
		s.Burst != 1 || s.Concurrency != 10 || s.Capacity != 100 || s.Paused || s.By != "operator" {
		t.Errorf("after a reset: %+v", s)
	}
}

func TestTuningToNothingIsRefused(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	zero, less, more := 0, -1, 10_001
	for _, o := range []leaky.Override{{Burst: &zero}, {Concurrency: &zero}, {Capacity: &less},
		{Burst: &more}, {Concurrency: &more}, {Rate: &leaky.Rate{}}} {
		if err := b.Tune(context.Background(), o, "operator"); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	if s := b.status(); s.By != "" {
		t.Errorf("status = %+v", s)
	}
}

func TestTunedCapacityAndConcurrencyHoldAtOnce(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate = leaky.Unlimited })
	b.fill("acme", 10)
	five, two := 5, 2
	b.tune(leaky.Override{Capacity: &five, Concurrency: &two})
	if p := b.offer(b.job("acme")); p.Outcome != leaky.LineFull {
		t.Errorf("offer = %+v, want line_full", p)
	}
	r := b.release()
	if len(r.Tickets) != 2 || r.Reason != leaky.OnConcurrency {
		t.Errorf("release = %+v, want 2 tickets", r)
	}
	four := 4
	b.tune(leaky.Override{Concurrency: &four})
	if r := b.release(); len(r.Tickets) != 2 {
		t.Errorf("release = %+v, want 2 more", r)
	}
}

func TestStatusCountsWhereEachJobIs(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate = leaky.Unlimited })
	if s := b.status(); s.WaitingOn != leaky.OnIdle || s.OldestWait != 0 || s.CallTime != 0 {
		t.Errorf("an empty line: %+v", s)
	}
	ids := b.fill("acme", 6)
	for i, ticket := range b.release().Tickets {
		switch i {
		case 0: // released
		case 1: // running
			b.begin(ticket, "me")
		default:
			b.begin(ticket, "me")
			b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", Took: time.Second,
				Delay: time.Hour,
				To:    []jobs.State{jobs.Succeeded, jobs.Failed, jobs.Delayed, jobs.Canceled}[i-2]})
		}
	}
	b.fill("acme", 2)
	b.cancel(b.accept("acme"))
	b.pass(3 * time.Second)
	s := b.status()
	if s.Waiting != 2 || s.Delayed != 1 || s.InFlight != 2 ||
		(3*time.Second-s.OldestWait).Abs() > time.Millisecond || s.CallTime != time.Second ||
		s.WaitingOn != leaky.OnConcurrency {
		t.Errorf("status = %+v", s)
	}
	if want := (leaky.Books{Accepted: 9, Succeeded: 1, Failed: 1, Canceled: 2,
		Started: 5}); s.Books != want {
		t.Errorf("books = %+v, want %+v", s.Books, want)
	}
	if look := b.look(ids[0]); look.Standing.State != jobs.Released || look.Position != 0 {
		t.Errorf("look = %+v", look)
	}
}

// The status has the throughput and the lengths of calls of the last one to two minutes, over all
// workers.
func TestStatusHasStatisticsOfTheLastCalls(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate, s.Concurrency = rate(t, "unlimited"), 200 })
	if c := b.status().Recent; c != (leaky.Calls{}) {
		t.Errorf("before any call: %+v", c)
	}
	end := func(n int, took time.Duration) {
		for range n {
			b.accept("acme")
		}
		for range n {
			ticket := b.release().Tickets
			for _, x := range ticket {
				b.begin(x, "me")
				b.settle(leaky.Settlement{Ticket: x, Owner: "me", To: jobs.Succeeded, Took: took})
			}
		}
	}
	end(90, 10*time.Millisecond)
	b.pass(time.Minute)
	end(8, 300*time.Millisecond)
	end(2, 5*time.Second)
	c := b.status().Recent
	near := func(got, want time.Duration) bool {
		return got >= want && float64(got) <= 1.42*float64(want)
	}
	if c.Ended != 100 || !near(c.P50, 10*time.Millisecond) || !near(c.P95, 300*time.Millisecond) ||
		!near(c.P99, 5*time.Second) || c.PerSecond < 100./120 || c.PerSecond > 100./60 {
		t.Errorf("%+v", c)
	}
	b.pass(2 * time.Minute)
	if c := b.status().Recent; c != (leaky.Calls{}) {
		t.Errorf("two minutes later: %+v", c)
	}
}

// Whatever can be set live is read, reported and taken back by the one list of it.
func TestTheFieldsOfAnOverrideAreTheListOfWhatCanBeTuned(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	all := leaky.Override{Rate: new(rate(t, "0.5/s")), Burst: new(2), Concurrency: new(3),
		Capacity: new(4), Paused: new(true), Feedback: new(units.Switch(false))}
	names := []string{"rate", "burst", "concurrency", "capacity", "paused", "feedback"}
	if !slices.Equal(leaky.Tunables(), names) || !slices.Equal(all.Names(), names) {
		t.Fatalf("the names are %v and %v", leaky.Tunables(), all.Names())
	}
	configured := b.status()
	b.tune(all)
	s := b.status()
	if s.Settings != all.Apply(configured.Settings) || s.Configured != configured.Settings ||
		!slices.Equal(s.Override.Names(), names) {
		t.Errorf("in force: %+v", s)
	}
	for n, want := range []string{"10/s 0.5/s", "1 2", "10 3", "100 4", "false true", "on off"} {
		if got := s.Configured.Text(names[n]) + " " + s.Text(names[n]); got != want {
			t.Errorf("%s: %s, want %s", names[n], got, want)
		}
	}
	for name, want := range map[string]int{
		"burst": 10_000, "concurrency": jobs.MaxConcurrency, "capacity": 10_000_000, "rate": 0,
	} {
		if field, most := all.Field(name); field == nil || most != want {
			t.Errorf("%s: %v, at most %d, want %d", name, field, most, want)
		}
	}
	if field, _ := all.Field("max_wait"); field != nil {
		t.Error("there is a field for what can't be tuned")
	}
	if s.Text("max_wait") != "" {
		t.Error("there is a text for what can't be tuned")
	}
}

package leaky_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// The outcomes of attempts in these tests.
var (
	succeeds   = leaky.Settlement{To: jobs.Succeeded}
	isAnswered = leaky.Settlement{To: jobs.Failed, Sign: leaky.Answered} // 404, say
	isThrottle = leaky.Settlement{To: jobs.Waiting, Sign: leaky.Throttled}
	timesOut   = leaky.Settlement{To: jobs.Delayed, Delay: time.Hour, Sign: leaky.Timeout}
	isRefused  = leaky.Settlement{To: jobs.Delayed, Delay: time.Hour, Sign: leaky.Unreachable}
)

// outcome settles a ticket's running job with s.
func (b *bench) outcome(ticket leaky.Ticket, s leaky.Settlement) leaky.Feedback {
	b.t.Helper()
	s.Ticket, s.Owner = ticket, "me"
	v, f := b.settleFeedback(s)
	if v != leaky.Settled {
		b.t.Fatalf("settle of %s = %s", ticket.ID, v)
	}
	return f
}

// try1 accepts a fresh job, which must be the only one, and ends its only attempt with s.
func (b *bench) try1(s leaky.Settlement) leaky.Feedback {
	b.t.Helper()
	b.accept("acme")
	return b.outcome(b.next(), s)
}

// next starts the next job. No other may be granted with it.
func (b *bench) next() leaky.Ticket {
	b.t.Helper()
	r := b.release()
	if len(r.Tickets) == 0 && r.Reason == leaky.OnRate {
		b.pass(r.Wait)
		r = b.release()
	}
	if len(r.Tickets) != 1 {
		b.t.Fatalf("release = %+v, want one ticket", r)
	}
	b.begin(r.Tickets[0], "me")
	return r.Tickets[0]
}

// sick returns a line whose backend has been in trouble for so long that the factor is at its
// minimum.
func sick(t *testing.T, adjust func(*leaky.Settings)) *bench {
	t.Helper()
	b := newLine(t, adjust)
	for range 5 {
		b.pass(5 * time.Second)
		b.try1(timesOut)
	}
	if f := b.status().Factor; f != 0.05 {
		t.Fatalf("factor %v after 5 troubles", f)
	}
	return b
}

func TestTroubleHalvesTheRateOnceACoolDownAndNeverToNothing(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Concurrency = 50 })
	for i, want := range []float64{0.5, 0.25, 0.125, 0.0625, 0.05, 0.05} {
		b.pass(5 * time.Second)
		f := b.try1(isRefused)
		if lowered := slices.Equal(f.Changes, []leaky.Change{leaky.Lowered}); f.Factor != want ||
			lowered != (i < 5) || f.Gate != 0 {
			t.Errorf("trouble %d: %+v, want factor %v", i, f, want)
		}
		b.pass(4999 * time.Millisecond)
		if f := b.try1(timesOut); f.Factor != want || len(f.Changes) != 0 {
			t.Errorf("more of trouble %d: %+v", i, f)
		}
	}
	if s := b.status(); s.Cause != leaky.Timeout || s.Rate.String() != "10/s" ||
		s.EffectiveRate != 0.5 || s.Factor != 0.05 || !s.GateUntil.IsZero() || s.Probing {
		t.Errorf("status = %+v", s)
	}
}

func TestTheEffectiveRateIsKeptAsExactlyAsAnyOther(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.try1(isRefused)
	b.fill("acme", 20)
	d := b.drainer(0)
	// Neither trouble nor success: the factor stays.
	d.outcome = func(leaky.Started) leaky.Settlement { return isAnswered }
	d.run(3 * time.Second)
	if len(d.starts) != 15 {
		t.Fatalf("%d starts in 3 s at half of 10/s", len(d.starts))
	}
	for i, s := range d.starts {
		if want := d.starts[0].Due + int64(i)*200_000; s.Due != want {
			t.Fatalf("start %d is due %d µs off", i, s.Due-want)
		}
	}
	if p := b.offer(b.job("acme")); p.Wait < 1100*time.Millisecond ||
		p.Wait > 1300*time.Millisecond {
		t.Errorf("behind 5 jobs at 5/s: %v predicted", p.Wait)
	}
}

func TestAMinuteOfHealthMakesTheRateWholeAgain(t *testing.T) {
	t.Parallel()
	for name, every := range map[string]time.Duration{"a busy line": 100 * time.Millisecond,
		"a slow one": 4 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := sick(t, func(s *leaky.Settings) { s.Rate = rate(t, "1000/s") })
			began, before := b.now, 0.05
			var changes []leaky.Change
			for len(changes) == 0 && b.now.Sub(began) < 2*time.Minute {
				b.pass(every)
				f := b.try1(succeeds)
				if f.Factor <= before || f.Factor-before > every.Minutes()+1e-9 {
					t.Fatalf("after %v: factor from %v to %v", b.now.Sub(began), before, f.Factor)
				}
				before, changes = f.Factor, f.Changes
			}
			if took := b.now.Sub(began); took < 57*time.Second || took > time.Minute ||
				!slices.Equal(changes, []leaky.Change{leaky.RaisedToFull}) {
				t.Errorf("%v after %v, want raised to full after 57 s", changes, took)
			}
			if s := b.status(); s.Factor != 1 || s.Cause != leaky.NoSign ||
				s.EffectiveRate != 1000 {
				t.Errorf("status = %+v", s)
			}
			if f := b.try1(succeeds); len(f.Changes) != 0 {
				t.Errorf("a further success: %+v", f)
			}
		})
	}
}

// However long a line was idle, one success makes up for 5 s, and any other answer for nothing.
func TestIdlingHealsNothing(t *testing.T) {
	t.Parallel()
	b := sick(t, nil)
	b.pass(time.Hour)
	if f := b.try1(isAnswered); f.Factor != 0.05 {
		t.Errorf("after a 404: %+v", f)
	}
	if f := b.try1(succeeds); math.Abs(f.Factor-0.05-5.0/60) > 1e-12 {
		t.Errorf("after an hour and one success: factor %v", f.Factor)
	}
}

// The bound of rate × w + burst, with the rate without feedback, holds however the factor changes.
func TestAFactorThatRisesGivesNoBurst(t *testing.T) {
	t.Parallel()
	rdb := ownServer(t)
	rapid.Check(t, func(rt *rapid.T) {
		burst := rapid.IntRange(1, 5).Draw(rt, "burst")
		r := rate(t, rapid.SampledFrom([]string{"100/s", "10/s", "1/s"}).Draw(rt, "rate"))
		b := newUnchecked(t, rdb, func(s *leaky.Settings) {
			s.Rate, s.Burst, s.Concurrency, s.Capacity = r, burst, 100, 500
		})
		gaps := []time.Duration{0, time.Millisecond, time.Second, 6 * time.Second, time.Minute}
		var starts []int64
		for range rapid.IntRange(10, 60).Draw(rt, "steps") {
			for range rapid.IntRange(0, 4).Draw(rt, "jobs") {
				b.accept("acme")
			}
			for _, ticket := range b.release().Tickets {
				s := b.start(ticket, "me")
				if s.Outcome != leaky.Go {
					continue
				}
				starts = append(starts, max(s.Due, b.now.UnixMicro()))
				b.outcome(ticket,
					rapid.SampledFrom([]leaky.Settlement{succeeds, succeeds, succeeds, timesOut,
						isThrottle}).Draw(rt, "outcome"))
			}
			b.pass(rapid.SampledFrom(gaps).Draw(rt, "gap"))
		}
		b.checkWindows(starts, r, burst, 0)
	})
}

// Slots that were saved up at a low factor are no more than a burst at a higher one.
func TestSlotsThatASickBackendWasSparedAreNotMadeUpFor(t *testing.T) {
	t.Parallel()
	b := sick(t, func(s *leaky.Settings) { s.Burst, s.Concurrency, s.Capacity = 5, 100, 500 })
	b.pass(time.Hour)
	var starts []int64
	for range 8 { // one at a time: each success raises the factor before the next is granted
		b.accept("acme")
		r := b.release()
		for _, ticket := range r.Tickets {
			starts = append(starts, b.begin(ticket, "me").Due)
			b.outcome(ticket, succeeds)
		}
	}
	b.checkWindows(starts, b.Settings().Rate, 5, 0)
	if len(starts) == 0 {
		t.Error("no start")
	}
}

func TestWithoutARateTheConcurrencyIsLowered(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate, s.Concurrency = leaky.Unlimited, 9 })
	b.try1(timesOut)
	b.fill("acme", 10)
	r := b.release()
	if s := b.status(); len(r.Tickets) != 4 || r.Reason != leaky.OnConcurrency ||
		s.Concurrency != 9 || s.EffectiveConcurrency != 4 || !math.IsInf(s.EffectiveRate, 1) {
		t.Fatalf("at half of 9: %+v, %+v", r, s)
	}
	for _, ticket := range r.Tickets {
		b.begin(ticket, "me")
		b.pass(5 * time.Second)
		b.outcome(ticket, timesOut)
	}
	if r := b.release(); len(r.Tickets) != 1 || b.status().EffectiveConcurrency != 1 {
		t.Fatalf("at 0.05 of 9: %+v, want one", r)
	}
}

// A cut that is in the future, because Redis's clock was set back, delays neither the next cut nor
// the recovery.
func TestFeedbackBearsAClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.try1(timesOut)
	b.pass(-time.Hour)
	if f := b.try1(timesOut); f.Factor != 0.25 {
		t.Errorf("trouble: factor %v, want 0.25", f.Factor)
	}
	b.pass(-time.Hour)
	if f := b.try1(succeeds); f.Factor <= 0.25 {
		t.Errorf("success: factor %v", f.Factor)
	}
}

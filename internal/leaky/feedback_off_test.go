package leaky_test

import (
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/units"
)

func TestWithoutFeedbackAThrottledJobWaitsByItself(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Feedback, s.Attempts = false, 1 })
	for _, c := range []struct{ asked, want time.Duration }{{0, time.Second},
		{7 * time.Second, 7 * time.Second}} {
		id := b.accept("acme")
		ticket := b.next()
		throttle := isThrottle
		throttle.Gate = c.asked
		if f := b.outcome(ticket, throttle); f.Factor != 1 || f.Gate != 0 || len(f.Changes) != 0 {
			t.Errorf("throttled: %+v", f)
		}
		look := b.look(id)
		if at := b.now.Add(c.want); look.Standing.State != jobs.Delayed ||
			look.Standing.Attempts != 0 || !look.Standing.NextAt.Equal(at) {
			t.Errorf("the throttled job: %+v, want delayed by %v", look.Standing, c.want)
		}
		b.try1(succeeds)
		b.pass(c.want)
		b.outcome(b.next(), succeeds)
	}
	for _, trouble := range []leaky.Settlement{timesOut, isRefused} {
		b.pass(10 * time.Second)
		if f := b.try1(trouble); f.Factor != 1 {
			t.Errorf("%s: %+v", trouble.Sign, f)
		}
	}
	if s := b.status(); bool(s.Feedback) || s.Factor != 1 || s.EffectiveRate != 10 ||
		s.Books.Throttled != 2 {
		t.Errorf("status = %+v", s)
	}
}

func TestWithoutFeedbackAJobThatIsThrottledForEverEndsByItsAge(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Feedback, s.Attempts = false, 2 })
	o := b.job("acme")
	o.MaxAge = 30 * time.Second
	b.offer(o)
	d := b.drainer(0)
	d.outcome = func(leaky.Started) leaky.Settlement { return isThrottle }
	d.run(40 * time.Second)
	if look := b.look(o.Job.ID); look.Standing.State != jobs.Expired || len(d.starts) < 25 ||
		len(d.starts) > 30 {
		t.Errorf("%+v after %d calls", look.Standing, len(d.starts))
	}
}

// An operator may switch feedback off and on, for all workers at once.
func TestFeedbackIsSwitchedLive(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.fill("acme", 5)
	b.throttle(5 * time.Minute)
	if r := b.release(); r.Reason != leaky.OnCooldown {
		t.Fatalf("release = %+v", r)
	}
	off, on := units.Switch(false), units.Switch(true)
	b.tune(leaky.Override{Feedback: &off})
	b.pass(100 * time.Millisecond)
	other := b.again()
	if s := other.status(); bool(s.Feedback) || s.Override.Feedback == nil || bool(*s.Override.Feedback) ||
		s.Factor != 1 || s.Cause != "" || !s.GateUntil.IsZero() {
		t.Errorf("switched off: %+v", s)
	}
	d := other.drainer(0)
	d.run(200 * time.Millisecond)
	if len(d.starts) != 3 {
		t.Errorf("%d starts in 200 ms at 10/s with feedback off", len(d.starts))
	}
	// Switched on again it begins anew, as its old state doesn't count any more.
	other.tune(leaky.Override{Feedback: &on})
	if s := other.status(); !bool(s.Feedback) || !bool(*s.Override.Feedback) || s.Factor != 1 ||
		!s.GateUntil.IsZero() {
		t.Errorf("switched on: %+v", s)
	}
	other.retune(leaky.Tuning{Reset: true})
	if s := other.status(); !bool(s.Feedback) || s.Override.Feedback != nil {
		t.Errorf("reset: %+v", s)
	}
}

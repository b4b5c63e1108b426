package leaky_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// gated returns a line of n jobs whose backend has closed its gate for 2 s; its clock is at the
// gate's opening.
func gated(t *testing.T, n int, adjust func(*leaky.Settings)) *bench {
	t.Helper()
	b := newLine(t, adjust)
	throttle := isThrottle
	throttle.Gate = 2 * time.Second
	f := b.try1(throttle)
	if !slices.Equal(f.Changes, []leaky.Change{leaky.Lowered, leaky.GateClosed}) ||
		f.Factor != 0.5 || f.Gate != 2*time.Second {
		t.Fatalf("the settlement that closed the gate: %+v", f)
	}
	b.fill("acme", n-1)
	b.pass(2 * time.Second)
	return b
}

// rests fails unless the line grants nothing while its probe is under way.
func (b *bench) rests(while string) {
	b.t.Helper()
	if r := b.release(); len(r.Tickets) != 0 || r.Reason != leaky.OnCooldown ||
		r.Wait != time.Hour {
		b.t.Fatalf("release %s = %+v, want none, for cooldown", while, r)
	}
}

func TestAfterAClosedGateOneCallProbesAlone(t *testing.T) {
	t.Parallel()
	for name, adjust := range map[string]func(*leaky.Settings){"at a rate": nil,
		"unlimited":    func(s *leaky.Settings) { s.Rate = leaky.Unlimited },
		"with a burst": func(s *leaky.Settings) { s.Burst = 5 }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gated(t, 5, adjust)
			if s := b.status(); s.Probing || s.Cause != leaky.Throttled ||
				s.WaitingOn == leaky.OnCooldown {
				t.Errorf("when the gate opens: %+v", s)
			}
			probe := b.next()
			other := b.again()
			for range 5 {
				other.now = b.now
				other.rests("of another process")
				b.pass(time.Second)
				if v, err := b.Renew(context.Background(), "me",
					[]leaky.Ticket{probe}); err != nil || v[0] != leaky.Held {
					t.Fatal(v, err)
				}
			}
			if s := b.status(); !s.Probing || s.WaitingOn != leaky.OnCooldown || s.InFlight != 1 {
				t.Errorf("status = %+v", s)
			}
			if p := b.offer(b.job("acme")); p.WaitingOn != leaky.OnCooldown {
				t.Errorf("offer = %+v", p)
			}
			l := listen(t, b)
			if f := b.outcome(probe, succeeds); !slices.Equal(f.Changes,
				[]leaky.Change{leaky.ProbePassed}) {
				t.Errorf("the probe's success: %+v", f)
			}
			receive(t, l.Wake(b.Settings().Backend))
			if r := b.release(); len(r.Tickets) == 0 || b.status().Probing {
				t.Errorf("after it: %+v", r)
			}
		})
	}
}

// Any answer shows that the backend serves again, even if not that it is healthy.
func TestAProbeThatIsAnsweredOpensTheLine(t *testing.T) {
	t.Parallel()
	b := gated(t, 3, nil)
	if f := b.outcome(b.next(), isAnswered); !slices.Equal(f.Changes,
		[]leaky.Change{leaky.ProbePassed}) || f.Factor != 0.5 {
		t.Errorf("a 404: %+v", f)
	}
	b.outcome(b.next(), succeeds)
}

func TestATroubledProbeIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	b := gated(t, 8, nil)
	for _, trouble := range []leaky.Settlement{timesOut, isRefused} {
		if f := b.outcome(b.next(), trouble); f.Gate != 0 {
			t.Errorf("%s closed the gate: %+v", trouble.Sign, f)
		}
		b.next()
		b.rests("after " + string(trouble.Sign))
		b = gated(t, 8, nil)
	}
	for _, want := range []time.Duration{1, 2, 4} {
		f := b.outcome(b.next(), isThrottle)
		if f.Gate != want*time.Second || !slices.Contains(f.Changes, leaky.GateClosed) {
			t.Errorf("a throttled probe: %+v, want a gate of %d s", f, want)
		}
		if r := b.release(); len(r.Tickets) != 0 || r.Reason != leaky.OnCooldown ||
			r.Wait != f.Gate {
			t.Errorf("release = %+v", r)
		}
		b.pass(f.Gate)
	}
	b.next()
	b.rests("after three throttled probes")
}

// If a probe leaves flight without an answer, in whatever way, another follows.
func TestAProbeWithoutAnAnswerIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*bench, leaky.Ticket){
		"canceled before its start": func(b *bench, probe leaky.Ticket) { b.cancel(probe.ID) },
		"its ticket was lost": func(b *bench, _ leaky.Ticket) {
			b.pass(leaky.Grace + leaky.Horizon)
		},
		"started too late for its deadline": func(b *bench, probe leaky.Ticket) {
			b.pass(time.Second)
			if s := b.start(probe, "me"); s.Outcome != leaky.Go {
				b.t.Fatalf("start = %+v", s)
			}
			b.outcome(probe,
				leaky.Settlement{To: jobs.Failed, Failure: jobs.Failure{Code: jobs.CodeDeadline}})
		},
		"canceled while it ran": func(b *bench, probe leaky.Ticket) {
			b.begin(probe, "me")
			b.cancel(probe.ID)
			b.outcome(probe, leaky.Settlement{To: jobs.Canceled})
		},
		"given back": func(b *bench, probe leaky.Ticket) {
			b.begin(probe, "me")
			b.outcome(probe, leaky.Settlement{To: jobs.Waiting})
		},
		"its worker died": func(b *bench, probe leaky.Ticket) {
			b.begin(probe, "me")
			b.pass(leaky.Lease + time.Millisecond)
		},
		"paused meanwhile": func(b *bench, probe leaky.Ticket) {
			b.pause(true)
			if s := b.start(probe, "me"); s.Outcome != leaky.Back {
				b.t.Fatalf("start = %+v", s)
			}
			b.pause(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gated(t, 4, nil)
			r := b.release()
			if len(r.Tickets) != 1 {
				t.Fatalf("release = %+v", r)
			}
			lose(b, r.Tickets[0])
			probe := b.next()
			b.rests("with the next probe under way")
			b.outcome(probe, succeeds)
			b.outcome(b.next(), succeeds)
		})
	}
}

// A job that was granted before the gate closed doesn't start beside the probe.
func TestAReleasedJobThatIsNotTheProbeGoesBack(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate = rate(t, "100/s") })
	b.fill("acme", 3)
	tickets := b.release().Tickets
	b.begin(tickets[0], "me")
	b.outcome(tickets[0], isThrottle)
	b.pass(time.Second)
	if s := b.start(tickets[1], "me"); s.Outcome != leaky.Back {
		t.Errorf("before the probe: %+v, want back", s)
	}
	probe := b.next()
	if s := b.start(tickets[2], "me"); s.Outcome != leaky.Back {
		t.Errorf("beside the probe: %+v, want back", s)
	}
	b.outcome(probe, succeeds)
}

// Calls that were under way when the gate closed began before the trouble. Only the probe shows
// whether it is over.
func TestOldCallsAreNoSignOfARestingBackend(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate = leaky.Unlimited })
	b.fill("acme", 6)
	tickets := b.release().Tickets
	for _, ticket := range tickets {
		b.begin(ticket, "me")
	}
	b.outcome(tickets[0], isThrottle)
	b.pass(6 * time.Second)
	for i, old := range []leaky.Settlement{succeeds, timesOut, isThrottle} {
		if f := b.outcome(tickets[i+1], old); f.Factor != 0.5 || f.Gate != 0 ||
			len(f.Changes) != 0 {
			t.Errorf("an old call, %+v: %+v", old, f)
		}
	}
	longer := isThrottle
	longer.Gate = 9 * time.Second
	if f := b.outcome(tickets[4], longer); f.Gate != 9*time.Second || f.Factor != 0.5 {
		t.Errorf("an old call that asks for a longer rest: %+v", f)
	}
	b.outcome(tickets[5], succeeds)
	b.pass(9 * time.Second)
	// None of them reset the doubling of the gate.
	if f := b.outcome(b.next(), isThrottle); f.Gate != 2*time.Second || f.Factor != 0.25 {
		t.Errorf("the throttled probe: %+v, want 2 s and a quarter", f)
	}
}

// It is called as often as its gate allows and no more, and no job waits forever.
func TestABackendThatAlwaysThrottlesRestsAndItsJobsEndByTheirAge(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Attempts = 1 })
	var ids []string
	for range 30 {
		o := b.job("acme")
		o.MaxAge = 10 * time.Minute
		b.offer(o)
		ids = append(ids, o.Job.ID)
	}
	d := b.drainer(5 * time.Millisecond)
	d.outcome = func(leaky.Started) leaky.Settlement { return isThrottle }
	d.run(11 * time.Minute)
	gate := time.Second
	for i := range d.starts[1:] {
		if gap := time.Duration(d.starts[i+1].at-d.starts[i].at) * time.Microsecond; gap < gate ||
			gap > gate+time.Second {
			t.Errorf("call %d came %v after the one before, its gate was %v", i+1, gap, gate)
		}
		gate = min(2*gate, time.Minute)
	}
	if n := len(d.starts); n < 14 || n > 16 { // 1 + 2 + 4 + … + 32 s, then each minute
		t.Errorf("%d calls in 10 minutes", n)
	}
	for _, id := range ids {
		if look := b.look(id); look.Standing.State != jobs.Expired || look.Standing.Attempts != 0 {
			t.Errorf("job: %+v", look.Standing)
		}
	}
}

func TestTheLineMovesOnGentlyWhenTheGateOpens(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Burst = 3 })
	b.fill("acme", 100)
	d := b.drainer(20 * time.Millisecond)
	d.outcome = func(leaky.Started) leaky.Settlement {
		d.outcome = nil
		return leaky.Settlement{To: jobs.Waiting, Sign: leaky.Throttled, Gate: time.Minute}
	}
	d.run(time.Minute + time.Second)
	b.checkWindows(d.times(), b.Settings().Rate, 3, 0)
	d.starts = nil
	d.run(9 * time.Second)
	if n := len(d.starts); n < 45 || n > 70 {
		t.Errorf("%d starts in the first 10 s after the gate at 5/s and rising, want about 52", n)
	}
	d.empty()
	b.checkWindows(d.times(), b.Settings().Rate, 3, 0)
}

package leaky_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/leaky"
)

// arrive offers a job at a steady rate for so long, while the drain works, until is reports true.
// It returns how long that took, and how many jobs were refused.
func (d *drain) arrive(perSecond float64, for_ time.Duration, is func(leaky.Status) bool) (
	took time.Duration, refused int) {
	d.t.Helper()
	began, every := d.now, time.Duration(float64(time.Second)/perSecond)
	for end := began.Add(for_); d.now.Before(end) && (is == nil || !is(d.status())); {
		if p := d.offer(d.job("steady")); p.Outcome != leaky.Accepted {
			refused++
		}
		d.run(every)
	}
	return d.now.Sub(began), refused
}

// near fails if got isn't within 10 % of want, or within slack.
func near(t *testing.T, what string, got, want, slack float64) {
	t.Helper()
	if off := math.Abs(got - want); off > max(0.1*want, slack) {
		t.Errorf("%s: %.2f predicted, %.2f came", what, want, got)
	}
}

// What a forecast says of a line comes true within 10 %, with steady arrivals: when it is empty or
// full, by which rule, the wait of a job that is offered now, and the refusals of a full line.
func TestAForecastComesTrue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rate        string
		concurrency int
		capacity    int
		maxWait     time.Duration
		call        time.Duration
		waiting     int
		arrive      float64 // a second
		proposal    leaky.Override
		boundBy     string
		fullBy      leaky.Outcome
	}{
		"empties": {rate: "10/s", waiting: 100, arrive: 5, boundBy: leaky.OnRate},
		"fills to its capacity": {rate: "5/s", capacity: 150, waiting: 50, arrive: 10,
			boundBy: leaky.OnRate, fullBy: leaky.LineFull},
		"fills to its longest wait": {rate: "5/s", maxWait: 20 * time.Second, waiting: 40,
			arrive: 10, boundBy: leaky.OnRate, fullBy: leaky.WaitTooLong},
		"is bound by concurrency": {rate: "20/s", concurrency: 2, call: 400 * time.Millisecond,
			waiting: 60, arrive: 2, boundBy: leaky.OnConcurrency},
		"empties at a higher rate": {rate: "4/s", waiting: 100, arrive: 5, boundBy: leaky.OnRate,
			proposal: leaky.Override{Rate: new(rate(t, "10/s"))}},
		"fills while it is paused": {rate: "10/s", capacity: 100, waiting: 20, arrive: 5,
			boundBy: leaky.OnPaused, fullBy: leaky.LineFull,
			proposal: leaky.Override{Paused: new(true)}},
		"empties with more calls at once": {rate: "20/s", concurrency: 2,
			call: 400 * time.Millisecond, waiting: 100, arrive: 6, boundBy: leaky.OnConcurrency,
			proposal: leaky.Override{Concurrency: new(4)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLineOn(t, ownServer(t), func(s *leaky.Settings) {
				s.Rate, s.Capacity = rate(t, c.rate), 1000
				if c.capacity > 0 {
					s.Capacity = c.capacity
				}
				if c.concurrency > 0 {
					s.Concurrency = c.concurrency
				}
				if c.maxWait > 0 {
					s.MaxWait = c.maxWait
				}
			})
			d := b.drainer(max(c.call, 20*time.Millisecond))
			b.fill("before", 20) // the line has seen calls
			d.empty()
			b.fill("steady", c.waiting) // one flow, so that the job of now is behind all
			due, err := b.Dues(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			o := leaky.Forecast(b.status(), c.proposal,
				leaky.Arrivals{PerSecond: c.arrive, Over: time.Minute}, due)
			if o.BoundBy != c.boundBy || o.FullBy != c.fullBy {
				t.Errorf("bound by %s, full by %q", o.BoundBy, o.FullBy)
			}
			if len(c.proposal.Names()) > 0 {
				if err := b.Tune(context.Background(), c.proposal, "test"); err != nil {
					t.Fatal(err)
				}
			}
			d.askAt, d.reason = b.now, ""
			if o.Wait != nil {
				offered := b.now
				mine := b.job("steady")
				b.offer(mine)
				defer func() {
					d.run(time.Minute)
					for _, s := range d.starts {
						if s.Job.ID == mine.Job.ID {
							near(t, "wait", time.UnixMicro(s.at).Sub(offered).Seconds(),
								o.Wait.Seconds(), 0.1)
							return
						}
					}
					t.Error("the job of now hasn't started")
				}()
			}
			switch {
			case o.EmptyIn != nil && o.FullIn == nil:
				took, _ := d.arrive(c.arrive, time.Hour, func(s leaky.Status) bool {
					return s.Waiting == 0
				})
				near(t, "empty", took.Seconds(), o.EmptyIn.Seconds(), 1)
			case o.FullIn != nil && o.EmptyIn == nil:
				took := time.Duration(0)
				for refused := 0; refused == 0; {
					var more time.Duration
					more, refused = d.arrive(c.arrive, time.Second, nil)
					took += more
				}
				near(t, "full", took.Seconds(), o.FullIn.Seconds(), 1)
				_, refused := d.arrive(c.arrive, 30*time.Second, nil)
				near(t, "refusals a minute", 2*float64(refused), *o.RefusedPerMinute, 4)
			default:
				t.Errorf("empty in %v, full in %v", o.EmptyIn, o.FullIn)
			}
		})
	}
}

// Jobs whose deadline a lower rate would miss are told of before it is set.
func TestAForecastCountsTheJobsThatWouldExpire(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waiting int
		sampled bool
	}{"of a short line": {80, false}, "of a long line": {400, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLineOn(t, ownServer(t), func(s *leaky.Settings) {
				s.Capacity, s.Rate = 1000, rate(t, "10/s")
			})
			d := b.drainer(20 * time.Millisecond)
			b.fill("before", 20)
			d.empty()
			for range c.waiting {
				o := b.job("acme")
				o.StartWithin = time.Duration(c.waiting) * 110 * time.Millisecond
				if p := b.offer(o); p.Outcome != leaky.Accepted {
					t.Fatal(p)
				}
			}
			due, err := b.Dues(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			in := leaky.Arrivals{PerSecond: 1, Over: time.Minute}
			if o := leaky.Forecast(b.status(), leaky.Override{}, in, due); o.Expiring != 0 {
				t.Errorf("%d would expire as it is", o.Expiring)
			}
			slower := leaky.Override{Rate: new(rate(t, "4/s"))}
			o := leaky.Forecast(b.status(), slower, in, due)
			if o.Sampled != c.sampled {
				t.Errorf("sampled = %v", o.Sampled)
			}
			if err := b.Tune(context.Background(), slower, "test"); err != nil {
				t.Fatal(err)
			}
			d.askAt, d.reason = b.now, ""
			d.empty()
			near(t, "expired", float64(b.status().Books.Expired), float64(o.Expiring), 2)
			paused := leaky.Forecast(b.status(), leaky.Override{Paused: new(true)}, in, due)
			if paused.Expiring != int64(c.waiting) || paused.Wait != nil {
				t.Errorf("paused: %+v", paused)
			}
		})
	}
}

// Whatever the numbers are, a forecast is finite where it is known, and says nothing of arrivals
// that it doesn't know.
func TestAForecastOfOddNumbers(t *testing.T) {
	t.Parallel()
	unlimited := leaky.Status{Factor: 1}
	unlimited.Rate, unlimited.Concurrency, unlimited.Capacity = leaky.Unlimited, 3, 10
	unlimited.MaxWait, unlimited.Feedback = time.Minute, true
	o := leaky.Forecast(unlimited, leaky.Override{}, leaky.Arrivals{}, leaky.Dues{})
	if o.EmptyIn != nil || o.FullIn != nil || o.RefusedPerMinute != nil || *o.Wait != 0 ||
		!math.IsInf(o.PerSecond, 1) || o.BoundBy != leaky.OnConcurrency {
		t.Errorf("unknown arrivals, unlimited: %+v", o)
	}
	none := leaky.Arrivals{Over: time.Minute}
	o = leaky.Forecast(unlimited, leaky.Override{}, none, leaky.Dues{})
	if *o.EmptyIn != 0 || o.FullIn != nil || *o.RefusedPerMinute != 0 {
		t.Errorf("no arrivals: %+v", o)
	}
	sick := unlimited
	sick.Rate, sick.Factor, sick.Waiting = rate(t, "10/s"), 0.5, 20
	sick.GateUntil = time.Now().Add(4 * time.Second)
	due := leaky.Dues{Now: time.Now()}
	o = leaky.Forecast(sick, leaky.Override{}, none, due)
	near(t, "empty", o.EmptyIn.Seconds(), 8, 0.1)
	if o.BoundBy != leaky.OnGate || o.PerSecond != 5 {
		t.Errorf("behind a gate: %+v", o)
	}
	sick.GateUntil = time.Time{}
	if o = leaky.Forecast(sick, leaky.Override{}, none, due); o.BoundBy != leaky.OnFeedback {
		t.Errorf("at a lowered rate: %+v", o)
	}
	if o = leaky.Forecast(sick, leaky.Override{Rate: new(rate(t, "1/d"))}, none, due); o.EmptyIn ==
		nil || *o.EmptyIn < 20*24*time.Hour {
		t.Errorf("at 1/d: %+v", o)
	}
}

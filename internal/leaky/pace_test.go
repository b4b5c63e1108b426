package leaky_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// Cases C19 and C78 and C86.
//
// Rates below one per second are kept as exactly as others. Being held back by the rate uses no
// attempt and is no backoff.
func TestWithABacklogSlotsAreExactlyOneIntervalApart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate string
		jobs int
	}{{"1/h", 4}, {"0.2/s", 8}, {"7/m", 30}, {"10/s", 50}, {"700/s", 300}, {"90000/s", 300}} {
		t.Run(c.rate, func(t *testing.T) {
			t.Parallel()
			b := newLine(t, func(s *leaky.Settings) {
				s.Rate, s.Capacity, s.MaxWait = rate(t, c.rate), c.jobs, 24*time.Hour
			})
			b.fill("acme", c.jobs)
			d := b.drainer(0)
			d.poll = 24 * time.Hour // no more than the wait of the release
			d.empty()
			if len(d.starts) != c.jobs {
				t.Fatalf("%d starts of %d jobs", len(d.starts), c.jobs)
			}
			// A slot takes whole quarters of a µs, so that none ever comes early.
			interval := math.Ceil(b.Settings().Rate.Interval()*4) / 4
			first := float64(d.starts[0].Due)
			for i, s := range d.starts {
				if want := int64(math.RoundToEven(first + float64(i)*interval)); s.Due != want {
					t.Fatalf("start %d is due %d µs after the first, want %d", i,
						s.Due-int64(first), want-int64(first))
				}
				if s.Attempt != 1 {
					t.Fatalf("start %d is attempt %d", i, s.Attempt)
				}
			}
		})
	}
}

// Case C11: High rates are kept, too.
func TestAHighRateIsHeldBackToo(t *testing.T) {
	t.Parallel()
	b := newLineOn(t, ownServer(t), func(s *leaky.Settings) {
		s.Rate, s.Capacity, s.Concurrency = rate(t, "1500/s"), 4500, 4500
	})
	b.pause(true)
	b.fill("acme", 4500)
	b.pause(false)
	d := b.drainer(time.Minute)
	d.run(3 * time.Second)
	if n := len(d.starts); n != 4500 {
		t.Fatalf("%d starts in 3 s at 1500/s", n)
	}
	if length := d.starts[4499].at - d.starts[0].at; length < 2_999_333 {
		t.Fatalf("4500 starts at 1500/s took %d µs", length)
	}
}

// Cases C07 and C80: Time that passed without a start doesn't allow more starts later.
func TestNoCatchUpAfter(t *testing.T) {
	t.Parallel()
	for name, gap := range map[string]func(*bench, *drain){
		"an idle minute": func(b *bench, d *drain) {
			b.fill("acme", 3)
			d.empty()
			b.pass(time.Minute)
			b.fill("acme", 20)
		},
		"a pause": func(b *bench, d *drain) {
			b.fill("acme", 20)
			d.run(time.Second)
			b.pause(true)
			d.run(time.Minute)
			b.pause(false)
		},
		"a minute without workers": func(b *bench, d *drain) {
			b.fill("acme", 20)
			d.run(time.Second)
			b.pass(time.Minute)
		},
		"a clock set forward": func(b *bench, d *drain) {
			b.fill("acme", 20)
			d.run(time.Second)
			b.pass(5 * time.Hour)
		},
		"a clock set back": func(b *bench, d *drain) {
			b.fill("acme", 20)
			d.run(time.Second)
			b.pass(-5 * time.Hour)
		},
		"a rate that had been tuned up": func(b *bench, d *drain) {
			fast := rate(b.t, "1000/s")
			b.tune(leaky.Override{Rate: &fast})
			b.fill("acme", 40)
			d.run(20 * time.Millisecond)
			slow := rate(b.t, "10/s")
			b.tune(leaky.Override{Rate: &slow})
			d.run(60 * time.Millisecond) // what was reserved
		},
		"a higher rate that has ended": func(b *bench, d *drain) {
			b.retune(leaky.Tuning{Set: leaky.Override{Rate: new(rate(b.t, "50/s"))},
				For: time.Second})
			b.fill("acme", 100)
			d.run(time.Second + 60*time.Millisecond) // and what was reserved
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLine(t, nil)
			d := b.drainer(0)
			gap(b, d)
			d.starts, d.askAt, d.reason = nil, b.now, ""
			d.empty()
			if len(d.starts) < 9 {
				t.Fatalf("%d starts after the gap", len(d.starts))
			}
			b.checkWindows(d.times(), b.Settings().Rate, 1, 0)
			took := d.starts[len(d.starts)-1].at - d.starts[0].at
			if took != int64(len(d.starts)-1)*100_000 {
				t.Errorf("%d starts took %d µs: the drain fell behind its rate", len(d.starts),
					took)
			}
		})
	}
}

func TestIdlingSavesUpSlotsForOneBurst(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Burst = 3 })
	b.fill("acme", 8)
	d := b.drainer(0)
	first := b.now.UnixMicro()
	d.empty()
	for i, s := range d.starts {
		if want := first + max(0, int64(i)-2)*100_000; s.at != want {
			t.Fatalf("start %d is %d µs after the first, want %d", i, s.at-first, want-first)
		}
	}
	b.pass(time.Minute)
	b.fill("acme", 4)
	r := b.release()
	if len(r.Tickets) != 3 || r.Reason != leaky.OnRate {
		t.Fatalf("after idling: %+v, want a burst of 3", r)
	}
	if p := b.offer(b.job("acme")); p.Wait != 200*time.Millisecond {
		t.Errorf("a job behind the burst and one other is predicted to wait %v, want 200ms", p.Wait)
	}
}

// The wait that a burst saves is part of the prediction.
func TestABurstIsPredicted(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Burst = 3 })
	for i, want := range []time.Duration{0, 0, 0, 100 * time.Millisecond, 200 * time.Millisecond} {
		if p := b.offer(b.job("acme")); p.Wait != want {
			t.Errorf("job %d is predicted to wait %v, want %v", i, p.Wait, want)
		}
	}
}

func TestAnUnlimitedRateIsBoundedByConcurrencyOnly(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) {
		s.Rate, s.Concurrency, s.Capacity = leaky.Unlimited, 70, 200
	})
	b.fill("acme", 200)
	d := b.drainer(time.Second)
	for i := range 3 {
		d.run(time.Second - time.Microsecond)
		if want := min((i+1)*70, 200); len(d.starts) != want {
			t.Fatalf("%d starts after %d s of 1 s calls, want %d", len(d.starts), i+1, want)
		}
		d.run(time.Microsecond)
	}
}

func TestConcurrencyHoldsOverAllWorkers(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate, s.Concurrency = rate(t, "100/s"), 4 })
	other := b.again()
	b.fill("acme", 20)
	var held []leaky.Ticket
	for range 20 {
		held = append(held, b.release().Tickets...)
		held = append(held, other.release().Tickets...)
		b.pass(10 * time.Millisecond)
		other.now = b.now
	}
	if r := b.release(); len(held) != 4 || r.Reason != leaky.OnConcurrency {
		t.Fatalf("%d jobs in flight, then %+v; want 4, then concurrency", len(held), r)
	}
	b.begin(held[0], "one")
	other.begin(held[1], "two")
	other.end(held[1], "two", jobs.Succeeded)
	if r := b.release(); len(r.Tickets) != 1 || r.Reason != leaky.OnConcurrency {
		t.Fatalf("after one of four ended: %+v, want one ticket", r)
	}
}

// Case C83.
//
// A second process doesn't double the rate, and when one stops the other keeps the rate up.
func TestAllProcessesDrainAtOneRate(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Concurrency = 100 })
	other := b.again()
	b.fill("acme", 60)
	var dues []int64
	for range 200 {
		for _, process := range []*bench{b, other} {
			if process == other && len(dues) > 30 {
				continue // it was killed
			}
			for _, ticket := range process.release().Tickets {
				dues = append(dues, ticket.Due)
				process.begin(ticket, "me")
				process.end(ticket, "me", jobs.Succeeded)
			}
			b.pass(17 * time.Millisecond)
			other.now = b.now
		}
	}
	if len(dues) < 40 {
		t.Fatalf("%d slots", len(dues))
	}
	for i, due := range dues {
		if want := dues[0] + int64(i)*100_000; due != want {
			t.Fatalf("slot %d is off by %d µs", i, due-want)
		}
	}
}

// again returns the same line in another process.
func (b *bench) again() *bench {
	other := &bench{t: b.t, rdb: b.rdb, now: b.now}
	other.Line = leaky.New(b.rdb, b.Settings()).At(func() int64 { return other.now.UnixMicro() })
	return other
}

// The bound of rate × w + burst holds whenever workers ask, with any burst, and with workers that
// start late.
func TestNoWindowHoldsMoreStartsThanTheRateAllows(t *testing.T) {
	t.Parallel()
	rdb := ownServer(t)
	rapid.Check(t, func(rt *rapid.T) {
		burst := rapid.IntRange(1, 4).Draw(rt, "burst")
		r := rate(t, rapid.SampledFrom([]string{"1000/s", "70/s", "10/s", "1/s"}).Draw(rt, "rate"))
		b := newLineOn(t, rdb, func(s *leaky.Settings) {
			s.Rate, s.Burst, s.Concurrency, s.Capacity = r, burst, 100, 200
		})
		latest := rapid.SampledFrom([]int64{0, 0, 10, 1900}).Draw(rt, "latest start, ms")
		b.fill("acme", 40)
		var starts []int64
		for range rapid.IntRange(3, 10).Draw(rt, "releases") {
			granted := b.release().Tickets
			for _, ticket := range granted {
				if by := time.UnixMicro(ticket.Due - 5000 +
					1000*rapid.Int64Range(0, latest).Draw(rt, "late")); by.After(b.now) {
					b.now = by
				}
				if s := b.start(ticket, "w"); s.Outcome == leaky.Go {
					starts = append(starts, max(s.Due, b.now.UnixMicro()))
					b.end(ticket, "w", jobs.Succeeded)
				}
			}
			b.pass(time.Duration(rapid.Int64Range(0, 3*int64(r.Interval())).Draw(rt,
				"gap")) * time.Microsecond)
		}
		slack := time.Duration(0)
		if latest > 0 {
			slack = leaky.Late
		}
		b.checkWindows(starts, r, burst, slack)
	})
}

func TestATunedRateHoldsFromTheNextRelease(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate, s.MaxWait = rate(t, "1/h"), 1000*time.Hour })
	b.fill("acme", 60)
	if r := b.release(); len(r.Tickets) != 1 || r.Reason != leaky.OnRate ||
		r.Wait < 59*time.Minute {
		t.Fatalf("at 1/h: %+v", r)
	}
	b.pass(time.Second)
	fast := rate(t, "100/s")
	b.tune(leaky.Override{Rate: &fast})
	if r := b.release(); len(r.Tickets) != 6 ||
		r.Tickets[5].Due != b.now.Add(leaky.Horizon).UnixMicro() {
		t.Fatalf("just tuned to 100/s: %+v, want the 6 slots of the next 50 ms", r)
	}
	slow := rate(t, "1/h")
	b.tune(leaky.Override{Rate: &slow})
	for range 100 {
		b.pass(10 * time.Millisecond)
		if r := b.release(); len(r.Tickets) > 0 {
			t.Fatalf("tuned back to 1/h, and still %+v", r)
		}
	}
}

func TestAPausedLineGrantsNothingAndStillAccepts(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.MaxWait = time.Millisecond })
	b.pause(true)
	for range 5 {
		if p := b.offer(b.job("acme")); p.Outcome != leaky.Accepted ||
			p.WaitingOn != leaky.OnPaused || p.Wait != 0 {
			t.Fatalf("offer to a paused line = %+v", p)
		}
	}
	b.pass(time.Minute)
	if r := b.release(); len(r.Tickets) != 0 || r.Reason != leaky.OnPaused {
		t.Fatalf("release of a paused line = %+v", r)
	}
}

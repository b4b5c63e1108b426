package leaky_test

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// Case C90.
//
// Of 50 offers at once over two processes exactly as many are accepted as the line holds.
func TestTheLineHoldsExactlyItsCapacity(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Capacity = 10 })
	b.pause(true)
	lines := []*leaky.Line{b.Line, b.again().Line}
	places := make([]leaky.Place, 50)
	var all sync.WaitGroup
	for i := range places {
		offer := b.job("acme")
		all.Go(func() {
			var err error
			if places[i], err = lines[i%2].Offer(context.Background(), offer); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	accepted := 0
	for _, p := range places {
		switch p.Outcome {
		case leaky.Accepted:
			accepted++
		case leaky.LineFull:
			if p.RetryAfter != 30*time.Second {
				t.Errorf("refused by a full, paused line: retry after %v, want 30s: a pause has "+
					"no predicted end", p.RetryAfter)
			}
		default:
			t.Errorf("%+v", p)
		}
	}
	if s := b.status(); accepted != 10 || s.Waiting != 10 || s.Books.Accepted != 10 {
		t.Errorf("%d accepted, %d wait, %d in the books; want 10", accepted, s.Waiting,
			s.Books.Accepted)
	}
}

func TestBackoffsTakePlacesInTheLine(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Capacity = 1 })
	b.accept("acme")
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Delayed,
		Delay: 40 * time.Second})
	p := b.offer(b.job("acme"))
	if p.Outcome != leaky.LineFull || p.RetryAfter < 40*time.Second ||
		p.RetryAfter > 41*time.Second {
		t.Errorf("offer = %+v, want line_full until the backoff is over", p)
	}
}

func TestAnOfferOfAJobOnRecordChangesNothing(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) {
		s.Capacity, s.ClientShare, s.MaxWait = 2, 0.5, time.Second
	})
	first := b.job("acme")
	b.offer(first)
	again := func(when string) {
		t.Helper()
		changed := first
		changed.Job.Payload = []byte("other")
		before := b.status()
		if p := b.offer(changed); p.Outcome != leaky.Exists {
			t.Errorf("offered again %s: %+v, want exists", when, p)
		}
		if after := b.status(); after.Books != before.Books || after.Waiting != before.Waiting {
			t.Errorf("offered again %s: %+v, before it was %+v", when, after, before)
		}
	}
	again("while its client has its share")
	b.accept("other")
	again("while the line is full")
	ticket := b.release().Tickets[0]
	if s := b.begin(ticket, "me"); ticket.ID != first.Job.ID || string(s.Job.Payload) != `{"n":1}` {
		t.Fatalf("started %s with %q", ticket.ID, s.Job.Payload)
	}
	again("while it runs")
	slow := rate(t, "1/h")
	b.tune(leaky.Override{Rate: &slow})
	again("while the wait is too long")
	b.end(ticket, "me", jobs.Succeeded)
	again("after its end")
	if look := b.look(first.Job.ID); look.Standing.State != jobs.Succeeded {
		t.Errorf("it is %s", look.Standing.State)
	}
}

func TestNoClientHasMoreThanItsShareOfTheLine(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Capacity, s.ClientShare = 10, 0.3 })
	ids := b.fill("greedy", 3)
	if p := b.offer(b.prioritized("greedy", jobs.High)); p.Outcome != leaky.ClientShare {
		t.Errorf("a fourth of ten places for one client: %+v", p)
	}
	b.fill("other", 3)
	b.cancel(ids[2])
	b.fill("greedy", 1)
	b.release() // one of its jobs is on its way: it doesn't wait any more
	b.fill("greedy", 1)
	if p := b.offer(b.job("greedy")); p.Outcome != leaky.ClientShare {
		t.Errorf("offer = %+v", p)
	}
}

// A client's share of a small line is at least one place.
func TestAClientsShareIsAtLeastOnePlace(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Capacity, s.ClientShare = 3, 0.1 })
	b.accept("acme")
	if p := b.offer(b.job("acme")); p.Outcome != leaky.ClientShare {
		t.Errorf("second offer = %+v", p)
	}
}

func TestAWaitThatIsTooLongIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate, s.MaxWait = rate(t, "1/s"), 10*time.Second })
	b.fill("acme", 11)
	if p := b.offer(b.job("acme")); p.Outcome != leaky.WaitTooLong || p.Wait != 11*time.Second ||
		p.RetryAfter != time.Second {
		t.Errorf("offer = %+v, want wait_too_long by 1 s", p)
	}
	hasty := b.job("other")
	hasty.StartWithin = 900 * time.Millisecond
	if p := b.offer(hasty); p.Outcome != leaky.WaitTooLong || p.Wait != time.Second {
		t.Errorf("offer of a job that must start within 0.9 s = %+v, want wait_too_long", p)
	}
	hasty.StartWithin = time.Second
	if p := b.offer(hasty); p.Outcome != leaky.Accepted {
		t.Errorf("offer of a job that must start within 1 s = %+v, want accepted", p)
	}
}

// Predictions at the offer come true, to the µs, while calls are short and no job overtakes.
func TestPredictedWaitsComeTrue(t *testing.T) {
	t.Parallel()
	rdb := ownServer(t)
	rapid.Check(t, func(rt *rapid.T) {
		b := newLineOn(t, rdb, func(s *leaky.Settings) {
			s.Rate, s.Burst = rate(t, rapid.SampledFrom([]string{"100/s", "7/s", "0.2/s"}).Draw(rt,
				"rate")), rapid.IntRange(1, 3).Draw(rt, "burst")
		})
		d := b.drainer(0)
		predicted := map[string]int64{}
		for range rapid.IntRange(1, 4).Draw(rt, "batches") {
			for range rapid.IntRange(1, 10).Draw(rt, "jobs") {
				o := b.job("acme")
				predicted[o.Job.ID] = b.now.Add(b.offer(o).Wait).UnixMicro()
			}
			d.askAt, d.reason = b.now, "" // the wake-up
			d.run(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms")) * time.Millisecond)
		}
		d.empty()
		for _, s := range d.starts {
			if off := s.at - predicted[s.Job.ID]; off < -1 || off > 1 {
				t.Fatalf("%s started %d µs after the predicted time", s.Job.ID, off)
			}
		}
	})
}

func TestPredictionsKnowConcurrencyAndCallTime(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate, s.Concurrency = rate(t, "100/s"), 2 })
	b.fill("acme", 10)
	d := b.drainer(time.Second) // two at a time, 1 s each: 2/s
	d.run(2500 * time.Millisecond)
	o := b.job("acme")
	p := b.offer(o)
	if p.WaitingOn != leaky.OnConcurrency {
		t.Errorf("waits on %s, want concurrency", p.WaitingOn)
	}
	at := b.now
	d.empty()
	actual := time.UnixMicro(d.starts[len(d.starts)-1].at).Sub(at)
	if error := math.Abs(p.Wait.Seconds() - actual.Seconds()); error > 1 {
		t.Errorf("predicted %v, waited %v", p.Wait, actual)
	}
}

func TestAClosedGateIsPartOfThePrediction(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.throttle(time.Minute)
	if p := b.offer(b.job("acme")); p.Wait != time.Minute+200*time.Millisecond ||
		p.WaitingOn != leaky.OnCooldown {
		t.Errorf("offer = %+v, want the gate's minute and the throttled job's slot, at half the "+
			"rate", p)
	}
}

// throttle makes the backend ask for rest in the first call of a fresh job.
func (b *bench) throttle(gate time.Duration) leaky.Ticket {
	b.t.Helper()
	b.accept("throttled")
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	if v := b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Waiting,
		Sign: leaky.Throttled, Gate: gate}); v != leaky.Settled {
		b.t.Fatalf("settle = %s", v)
	}
	return ticket
}

// A client that waits for exactly its Retry-After is admitted, if nothing else has changed
// meanwhile.
func TestAClientThatWaitsItsRetryAfterIsAdmitted(t *testing.T) {
	t.Parallel()
	rdb := ownServer(t)
	seen := map[leaky.Outcome]int{}
	rapid.Check(t, func(rt *rapid.T) {
		b := newLineOn(t, rdb, func(s *leaky.Settings) {
			s.Rate, s.Burst = rate(t, rapid.SampledFrom([]string{"20/s", "7/s", "1/s"}).Draw(rt,
				"rate")), rapid.IntRange(1, 2).Draw(rt, "burst")
			s.Capacity = rapid.SampledFrom([]int{5, 20, 40}).Draw(rt, "capacity")
			s.ClientShare = rapid.SampledFrom([]float64{1, 0.5, 0.2}).Draw(rt, "share")
			s.MaxWait = rapid.SampledFrom([]time.Duration{time.Hour, 4 * time.Second,
				300 * time.Millisecond}).Draw(rt, "max_wait")
		})
		draw := func() leaky.Offer {
			o := b.prioritized(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "client"),
				rapid.SampledFrom([]jobs.Priority{jobs.Normal, jobs.Normal, jobs.High,
					jobs.Low}).Draw(rt, "priority"))
			o.StartWithin = rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Second}).Draw(rt,
				"start_within")
			return o
		}
		d := b.drainer(0)
		attempts := 0
		d.outcome = func(leaky.Started) leaky.Settlement {
			if attempts++; attempts%5 == 2 {
				return leaky.Settlement{To: jobs.Delayed, Delay: 3 * time.Second}
			}
			return leaky.Settlement{To: jobs.Succeeded}
		}
		for range rapid.IntRange(1, 60).Draw(rt, "offers") {
			b.offer(draw())
			d.askAt, d.reason = b.now, ""
			d.run(time.Duration(rapid.IntRange(0, 60).Draw(rt, "ms")) * time.Millisecond)
		}
		d.outcome = nil // from here on no new job comes into the line
		o := draw()
		p := b.offer(o)
		if p.Outcome == leaky.Accepted {
			return
		}
		seen[p.Outcome]++
		if p.RetryAfter <= 0 {
			t.Fatalf("refused with %+v", p)
		}
		d.run(p.RetryAfter)
		o.Job.ID = jobs.NewID(b.Settings().Backend)
		if again := b.offer(o); again.Outcome != leaky.Accepted {
			t.Fatalf("refused with %+v, and after that time with %+v", p, again)
		}
	})
	for _, outcome := range []leaky.Outcome{leaky.LineFull, leaky.ClientShare, leaky.WaitTooLong} {
		if seen[outcome] == 0 {
			t.Errorf("no refusal was %s: nothing was tested", outcome)
		}
	}
}

// An invalid offer is an error for its caller, not for the others in the call.
func TestABadOfferIsRefusedByItself(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	for what, spoil := range map[string]func(*leaky.Offer){
		"no weight":               func(o *leaky.Offer) { o.Weight = 0 },
		"a weight that isn't one": func(o *leaky.Offer) { o.Weight = math.NaN() },
		"an infinite weight":      func(o *leaky.Offer) { o.Weight = math.Inf(1) },
		"a weight too small":      func(o *leaky.Offer) { o.Weight = 1e-320 },
		"no age":                  func(o *leaky.Offer) { o.MaxAge = 0 },
		"no time to be kept":      func(o *leaky.Offer) { o.Keep = 0 },
		"a start before now":      func(o *leaky.Offer) { o.StartWithin = -time.Second },
		"metadata that is too long": func(o *leaky.Offer) {
			o.Job.Fingerprint = strings.Repeat("x", 1000)
		},
	} {
		o := b.job("acme")
		spoil(&o)
		if p, err := b.Offer(context.Background(), o); err == nil {
			t.Errorf("%s: %+v, want an error", what, p)
		}
	}
	if s := b.status(); s.Books.Accepted != 0 {
		t.Errorf("%d accepted", s.Books.Accepted)
	}
}

package leaky_test

import (
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// Case C78: A throttled call doesn't fail the job.
func TestAThrottledCallUsesNoAttempt(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Attempts = 1 })
	for range 5 {
		b.pass(2 * time.Minute)
		var ticket leaky.Ticket
		if r := b.release(); len(r.Tickets) == 1 {
			ticket = r.Tickets[0]
		} else {
			b.accept("acme")
			ticket = b.release().Tickets[0]
		}
		if s := b.begin(ticket, "me"); s.Attempt != 1 {
			t.Fatalf("attempt %d, want 1", s.Attempt)
		}
		b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Waiting,
			Sign: leaky.Throttled, Failure: jobs.Failure{Code: jobs.CodeBackendStatus}})
		if look := b.look(ticket.ID); look.Standing.State != jobs.Waiting ||
			look.Standing.Attempts != 0 || look.Position != 1 {
			t.Fatalf("the throttled job: %+v", look)
		}
	}
	if s := b.status(); s.Books.Throttled != 5 || s.Books.Started != 5 {
		t.Errorf("books = %+v", s.Books)
	}
}

func TestTheGateClosesForAllUntilTheBackendsTime(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.fill("acme", 3)
	other := b.again()
	ahead := b.release().Tickets[0]
	b.begin(ahead, "me")
	b.pass(100 * time.Millisecond)
	onTheWay := b.release().Tickets[0]
	closed := b.now
	b.settle(leaky.Settlement{Ticket: ahead, Owner: "me", To: jobs.Waiting, Sign: leaky.Throttled,
		Gate: 7 * time.Second})

	if s := other.start(onTheWay, "other"); s.Outcome != leaky.Back {
		t.Errorf("a released job's start behind the closed gate = %+v, want back", s)
	}
	for b.now.Before(closed.Add(7*time.Second - time.Millisecond)) {
		other.now = b.now
		if r := other.release(); len(r.Tickets) != 0 || r.Reason != leaky.OnCooldown ||
			r.Wait != closed.Add(7*time.Second).Sub(b.now) {
			t.Fatalf("release of another process, %v after the gate closed = %+v",
				b.now.Sub(closed), r)
		}
		b.pass(500 * time.Millisecond)
	}
	b.now = closed.Add(7 * time.Second)
	if r := b.release(); len(r.Tickets) != 1 || r.Tickets[0].ID != ahead.ID {
		t.Errorf("when the gate opens: %+v, want one ticket, the throttled job's", r)
	}
}

// Without a Retry-After the line closes the gate for 1 s, then 2, up to a minute; a success resets
// that.
func TestTheLinesOwnGateDoublesUpToAMinute(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Concurrency = 3 })
	closedFor := func(settle func(leaky.Ticket)) time.Duration {
		b.accept("acme")
		b.now = b.now.Add(2 * time.Minute)
		ticket := b.release().Tickets[0]
		b.begin(ticket, "me")
		settle(ticket)
		return max(b.status().GateUntil.Sub(b.now), 0)
	}
	throttled := func(ticket leaky.Ticket) {
		b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Waiting,
			Sign: leaky.Throttled})
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if got := closedFor(throttled); got != want*time.Second {
			t.Errorf("closed for %v the %d. time, want %v", got, i+1, want*time.Second)
		}
	}
	closedFor(func(ticket leaky.Ticket) { b.end(ticket, "me", jobs.Succeeded) })
	if got := closedFor(throttled); got != time.Second {
		t.Errorf("closed for %v the first time after a success, want 1s", got)
	}
}

// Calls that were under way when the gate closed are no new sign.
func TestOneTroubleOfTheBackendCountsOnce(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate = leaky.Unlimited })
	b.fill("acme", 5)
	tickets := b.release().Tickets
	for _, ticket := range tickets {
		b.begin(ticket, "me")
	}
	closed := b.now
	for _, ticket := range tickets {
		b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Waiting,
			Sign: leaky.Throttled})
		b.pass(50 * time.Millisecond)
	}
	if until := b.status().GateUntil; !until.Equal(closed.Add(time.Second)) {
		t.Errorf("the gate is closed for %v, want 1s from the first 503", until.Sub(closed))
	}
}

func TestTheLongerOfTwoRestsCounts(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate = leaky.Unlimited })
	b.fill("acme", 2)
	tickets := b.release().Tickets
	b.begin(tickets[0], "me")
	b.begin(tickets[1], "me")
	for i, gate := range []time.Duration{9 * time.Second, 2 * time.Second} {
		b.settle(leaky.Settlement{Ticket: tickets[i], Owner: "me", To: jobs.Waiting,
			Sign: leaky.Throttled, Gate: gate})
	}
	if until := b.status().GateUntil; !until.Equal(b.now.Add(9 * time.Second)) {
		t.Errorf("the gate is closed for %v, want 9s", until.Sub(b.now))
	}
}

// A worker that stops gives back jobs that it can't finish.
func TestAGivenBackJobIsNextAndKeepsItsAttempts(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	ids := b.fill("acme", 3)
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	b.end(ticket, "me", jobs.Waiting)
	if s := b.status(); !s.GateUntil.IsZero() || s.InFlight != 0 {
		t.Errorf("status = %+v", s)
	}
	b.pass(100 * time.Millisecond)
	again := b.release().Tickets[0]
	if s := b.begin(again, "other"); again.ID != ids[0] || s.Attempt != 1 {
		t.Errorf("next is %s, attempt %d, want %s, attempt 1", again.ID, s.Attempt, ids[0])
	}
}

// Case C71: Backoffs that end at the same moment hold up nothing, and keep the rate.
func TestManyBackoffsThatEndAtOnceDrainAtTheRate(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) {
		s.Rate, s.Capacity, s.Concurrency = rate(t, "200/s"), 300, 300
	})
	b.fill("acme", 300)
	d := b.drainer(0)
	over := b.now.Add(time.Minute)
	d.outcome = func(s leaky.Started) leaky.Settlement {
		if s.Attempt == 1 {
			return leaky.Settlement{To: jobs.Delayed, Delay: over.Sub(b.now)}
		}
		return leaky.Settlement{To: jobs.Succeeded}
	}
	d.until(over.Add(-time.Second))
	d.starts = nil
	d.until(over.Add(2 * time.Second))
	if n := len(d.starts); n != 300 {
		t.Errorf("%d of 300 retries started within 2 s at 200/s", n)
	}
	b.checkWindows(d.times(), b.Settings().Rate, 1, 0)
}

package leaky_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

func TestAReleasedJobThatDoesNotStartIsBackAfterTwoSeconds(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	id := b.accept("acme")
	lost := b.release().Tickets[0]
	b.pass(leaky.Grace - time.Microsecond)
	if r := b.release(); r.Returned != 0 {
		t.Fatalf("before its time: %+v", r)
	}
	b.pass(time.Microsecond)
	r := b.release()
	if r.Returned != 1 || len(r.Tickets) != 1 || r.Tickets[0].ID != id ||
		r.Tickets[0].Run != lost.Run+1 {
		t.Fatalf("release = %+v, want the job again, with a new run", r)
	}
	if s := b.start(lost, "late"); s.Outcome != leaky.Gone {
		t.Errorf("the old ticket's start = %+v, want gone", s)
	}
	if s := b.begin(r.Tickets[0], "me"); s.Attempt != 1 {
		t.Errorf("attempt %d: a lost ticket uses none", s.Attempt)
	}
}

// Case C65: The job of a killed worker starts elsewhere, ahead of waiting jobs.
func TestAJobOfADeadWorkerIsBackAtTheHead(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	ids := b.fill("acme", 5)
	ticket := b.release().Tickets[0]
	b.begin(ticket, "dead")
	b.pass(leaky.Lease)
	r := b.release()
	if r.Returned != 1 || r.Tickets[0].ID != ids[0] {
		t.Fatalf("release = %+v, want %s first", r, ids[0])
	}
	if s := b.begin(r.Tickets[0], "alive"); s.Attempt != 2 {
		t.Errorf("attempt %d, want 2", s.Attempt)
	}
	late := leaky.Settlement{Ticket: ticket, Owner: "dead", To: jobs.Succeeded,
		Body: []byte("late"), Result: jobs.Meta{Status: 200}}
	if v := b.settle(late); v != leaky.Forfeited {
		t.Errorf("the dead worker's result = %s, want forfeited", v)
	}
	if got, err := b.Renew(context.Background(), "dead", []leaky.Ticket{ticket}); err != nil ||
		got[0] != leaky.Lost {
		t.Errorf("the dead worker's renewal = %v, %v, want lost", got, err)
	}
	if st := b.look(ids[0]).Standing; st.State != jobs.Running || st.Attempts != 2 {
		t.Errorf("it is %+v", st)
	}
}

// A worker that froze for longer than a lease may still be the only one with an answer.
func TestALateResultStandsWhileNoNewerAttemptRuns(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.accept("acme")
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	b.pass(time.Hour)
	b.end(ticket, "me", jobs.Succeeded)
	if r := b.release(); r.Returned != 0 || len(r.Tickets) != 0 {
		t.Errorf("release = %+v", r)
	}
}

func TestARenewedLeaseHolds(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) {
		s.Concurrency, s.Rate = 400, leaky.Unlimited
		s.Capacity = 400
	})
	b.fill("acme", 300)
	var mine []leaky.Ticket
	for range 5 { // more than one call's worth
		mine = append(mine, b.release().Tickets...)
	}
	for _, ticket := range mine {
		b.begin(ticket, "me")
	}
	for range 10 {
		b.pass(leaky.RenewEvery)
		got, err := b.Renew(context.Background(), "me", mine)
		if err != nil || len(got) != 300 || slices.ContainsFunc(got, func(r leaky.Renewal) bool {
			return r != leaky.Held
		}) {
			t.Fatalf("renew = %v, %v, want all 300 held", got, err)
		}
		if r := b.release(); r.Returned != 0 {
			t.Fatalf("after %v: %d jobs were taken from a living worker", leaky.RenewEvery,
				r.Returned)
		}
	}
	b.pass(leaky.Lease)
	if r := b.release(); r.Returned != 64 {
		t.Fatalf("%d jobs back in one call, want 64: a call's work is bounded", r.Returned)
	}
}

func TestAJobThatKillsItsWorkersFails(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	id := b.accept("acme")
	for attempt := 1; attempt <= 3; attempt++ {
		r := b.release()
		if len(r.Tickets) != 1 {
			t.Fatalf("before attempt %d: %+v", attempt, r)
		}
		if s := b.begin(r.Tickets[0], "victim"); s.Attempt != attempt {
			t.Fatalf("attempt %d, want %d", s.Attempt, attempt)
		}
		b.pass(leaky.Lease)
	}
	r := b.release()
	if len(r.Ended) != 1 ||
		r.Ended[0] != (leaky.Ended{ID: id, State: jobs.Failed, Code: jobs.CodeWorkerLost}) {
		t.Fatalf("release = %+v", r)
	}
	if st := b.look(id).Standing; st.Failure.Code != jobs.CodeWorkerLost || st.Attempts != 3 {
		t.Errorf("it is %+v", st)
	}
}

// Both are repeated after a lost reply.
func TestStartAndSettleMayBeRepeated(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	id := b.accept("acme")
	ticket := b.release().Tickets[0]
	first := b.begin(ticket, "me")
	b.pass(time.Second)
	second := b.begin(ticket, "me")
	if second.Attempt != 1 || second.Due != first.Due ||
		string(second.Job.Payload) != string(first.Job.Payload) {
		t.Errorf("the repeated start = %+v, the first was %+v", second, first)
	}
	retry := leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Delayed, Delay: time.Second,
		Failure: jobs.Failure{Code: "backend_status"}}
	b.settle(retry)
	version := b.look(id).Standing.Version
	if v := b.settle(retry); v != leaky.Settled || b.look(id).Standing.Version != version {
		t.Errorf("the repeated settlement = %s, version %d, want settled and %d", v,
			b.look(id).Standing.Version, version)
	}
	b.pass(time.Second)
	again := b.release().Tickets[0]
	b.begin(again, "me")
	if v := b.settle(retry); v == leaky.Settled && b.look(id).Standing.State != jobs.Running {
		t.Error("the first attempt's settlement ended the second")
	}
	if s := b.status(); s.Books.Started != 2 {
		t.Errorf("%d starts in the books, want 2", s.Books.Started)
	}
}

// A slot that was missed may not be used beside the one that came after it.
func TestALateStartTakesAnotherSlot(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate = rate(t, "40/s") })
	b.fill("acme", 2)
	r := b.release() // due at 0 and 25 ms
	if len(r.Tickets) != 2 {
		t.Fatalf("release = %+v", r)
	}
	b.pass(20 * time.Millisecond)
	if s := b.begin(r.Tickets[0], "me"); s.Due != b.now.Add(30*time.Millisecond).UnixMicro() {
		t.Errorf("20 ms late: due in %d µs, want 30 ms from now: the slot after the other's",
			s.Due-b.now.UnixMicro())
	}
	b.begin(r.Tickets[1], "me")
}

// At a slow rate the next slot may be far. A lone late job moves its own slot; any other goes back.
func TestALateStartKeepsItsSlotIfNoneFollowed(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate = rate(t, "0.2/s") })
	b.accept("acme")
	ticket := b.release().Tickets[0]
	b.pass(time.Second)
	if s := b.begin(ticket, "me"); s.Due != b.now.UnixMicro() {
		t.Errorf("due in %d µs, want now", s.Due-b.now.UnixMicro())
	}
	b.accept("acme")
	if r := b.release(); r.Reason != leaky.OnRate || r.Wait != 5*time.Second-leaky.Horizon/2 {
		t.Errorf("release = %+v, want the next slot 5 s after the late start", r)
	}
}

func TestALateStartGoesBackIfTheNextSlotIsFar(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	ids := b.fill("acme", 2)
	first := b.release().Tickets[0]
	b.pass(100 * time.Millisecond)
	second := b.release().Tickets[0]
	if s := b.start(first, "me"); s.Outcome != leaky.Back {
		t.Fatalf("start 100 ms late, with another slot granted since = %+v, want back", s)
	}
	b.begin(second, "me")
	if look := b.look(ids[0]); look.Standing.State != jobs.Waiting || look.Position != 1 ||
		look.Standing.Attempts != 0 {
		t.Errorf("the late job: %+v, want it at the head", look)
	}
}

// After a clock was set back, leases and slots are far in the future.
func TestAClockSetBackStrandsNothing(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.fill("acme", 3)
	running := b.release().Tickets[0]
	b.begin(running, "dead")
	b.pass(100 * time.Millisecond)
	released := b.release().Tickets[0]
	b.pass(-time.Hour)
	if s := b.start(released, "me"); s.Outcome == leaky.Go &&
		s.Due > b.now.Add(leaky.Horizon).UnixMicro() {
		t.Errorf("start = %+v: a slot an hour ahead", s)
	}
	d := b.drainer(0)
	d.run(leaky.Lease + time.Second)
	if n := len(d.starts); n != 3 {
		t.Errorf("%d of 3 jobs ran within a lease", n)
	}
	b.checkWindows(d.times(), b.Settings().Rate, 1, 0)
}

// A message that comes twice, the second time long after its attempt has ended without a
// settlement, starts nothing. The job's next call comes after its lease has expired, with a slot of
// its own.
func TestADoubledTicketStartsNothingOnceItsAttemptHasEnded(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.accept("acme")
	ticket := b.release().Tickets[0]
	if first := b.start(ticket, "me"); first.Outcome != leaky.Go {
		t.Fatalf("start = %+v", first)
	}
	b.pass(2 * time.Second)
	if again := b.start(ticket, "me"); again.Outcome != leaky.Go || again.Attempt != 1 {
		t.Fatalf("the same question 2 s later = %+v, want the same answer", again)
	}
	b.pass(leaky.Lease/2 - time.Second)
	if late := b.start(ticket, "me"); late.Outcome != leaky.Gone {
		t.Fatalf("the ticket half a lease later = %+v, want gone", late)
	}
}

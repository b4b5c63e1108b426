package leaky_test

import (
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

func TestAJobThatIsTooLateUsesNoSlot(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate = rate(t, "1/s") })
	first := b.accept("acme")
	var hasty []string
	for range 3 {
		o := b.job("acme")
		o.StartWithin = 3500 * time.Millisecond
		b.offer(o)
		hasty = append(hasty, o.Job.ID)
	}
	patient := b.accept("acme")
	r := b.release()
	if len(r.Tickets) != 1 || r.Tickets[0].ID != first {
		t.Fatalf("release = %+v", r)
	}
	b.begin(r.Tickets[0], "me")
	b.pass(4 * time.Second)
	r = b.release()
	if len(r.Tickets) != 1 || r.Tickets[0].ID != patient || r.Tickets[0].Due != b.now.UnixMicro() {
		t.Fatalf("release = %+v, want the slot for the job behind those that are too late", r)
	}
	if len(r.Ended) != 3 {
		t.Fatalf("ended = %+v", r.Ended)
	}
	for _, id := range hasty {
		st := b.look(id).Standing
		if st.State != jobs.Expired || st.Failure.Code != jobs.CodeDeadline || st.Attempts != 0 ||
			!st.FinishedAt.Equal(b.now) {
			t.Errorf("a job past its start_within: %+v", st)
		}
	}
}

// A start_within passes anywhere in the line, not only at its head, and while the line is paused.
func TestDeadlinesPassInTheMiddleOfTheLineAndInAPause(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.fill("acme", 5)
	o := b.job("acme")
	o.StartWithin = time.Second
	b.offer(o)
	b.fill("acme", 5)
	b.pause(true)
	b.pass(time.Second)
	if r := b.release(); len(r.Ended) != 1 ||
		r.Ended[0] != (leaky.Ended{ID: o.Job.ID, State: jobs.Expired, Code: jobs.CodeDeadline}) {
		t.Errorf("release = %+v, want the job with the deadline ended", r)
	}
}

func TestNoSlotIsGrantedAfterTheDeadline(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.accept("acme")
	o := b.job("acme")
	o.StartWithin = 110 * time.Millisecond
	b.offer(o)
	b.release()
	b.pass(75 * time.Millisecond)
	// The second slot moves from 100 ms to 125 ms: within the horizon, past the deadline.
	slow := rate(t, "8/s")
	b.tune(leaky.Override{Rate: &slow})
	if r := b.release(); len(r.Tickets) != 0 || len(r.Ended) != 1 {
		t.Errorf("release = %+v, want the job expired: its slot lies past its start_within", r)
	}
}

func TestMaxAgeEndsWaitingAndDelayedJobs(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	o := b.job("acme")
	o.MaxAge = 10 * time.Second
	b.offer(o)
	ticket := b.release().Tickets[0]
	if s := b.begin(ticket, "me"); s.Ends != b.now.Add(10*time.Second).UnixMicro() {
		t.Errorf("the call may last until %d, want 10 s from now", s.Ends)
	}
	b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Delayed, Delay: time.Hour})
	if at := b.look(o.Job.ID).Standing.NextAt; !at.Equal(b.now.Add(10 * time.Second)) {
		t.Errorf("a backoff past max_age ends at %v, want the job's end", at)
	}
	b.pass(10 * time.Second)
	if r := b.release(); len(r.Tickets) != 0 || len(r.Ended) != 1 {
		t.Errorf("release = %+v, want the job expired", r)
	}
}

// start_within only bounds the first start.
func TestARetryIsBoundedByMaxAgeOnly(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	o := b.job("acme")
	o.StartWithin = time.Second
	b.offer(o)
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Delayed, Delay: time.Minute})
	b.pass(time.Minute)
	r := b.release()
	if len(r.Tickets) != 1 {
		t.Fatalf("release = %+v, want the retry", r)
	}
	if s := b.begin(r.Tickets[0], "me"); s.Attempt != 2 {
		t.Errorf("attempt %d, want 2", s.Attempt)
	}
}

// A late ticket doesn't bypass the deadline.
func TestALateStartKeepsTheDeadline(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	o := b.job("acme")
	o.StartWithin = time.Second
	b.offer(o)
	ticket := b.release().Tickets[0]
	b.pass(time.Second)
	if s := b.start(ticket, "me"); s.Outcome != leaky.Back {
		t.Fatalf("start = %+v, want back", s)
	}
	if r := b.release(); len(r.Ended) != 1 || r.Ended[0].State != jobs.Expired {
		t.Errorf("release = %+v, want the job expired", r)
	}
}

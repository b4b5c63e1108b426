package leaky_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// refresh offers a refresh with the Join of joint, in acme's turn.
func (b *bench) refresh(want leaky.Outcome) leaky.Offer {
	b.t.Helper()
	o := b.joint("acme")
	o.Refresh = true
	if place := b.offer(o); place.Outcome != want {
		b.t.Fatalf("offer of a refresh at %v = %+v, want %s", b.now, place, want)
	}
	return o
}

// failedJobs returns the failed jobs that an operator sees.
func (b *bench) failedJobs() []string {
	b.t.Helper()
	page, err := b.List(b.t.Context(), leaky.ListFilter{State: jobs.Failed, Limit: 10})
	if err != nil {
		b.t.Fatal(err)
	}
	return idsOf(page.Jobs)
}

// A failed refresh is unowned: it isn't listed and can't be redriven. It is kept for a minute, and
// so is its answer.
func TestAFailedRefreshIsForgotten(t *testing.T) {
	t.Parallel()
	for _, keep := range []time.Duration{time.Hour, 40 * time.Second} {
		b := newLine(t, nil)
		o := b.joint("acme")
		o.Refresh, o.Keep = true, keep
		b.offer(o)
		ticket := b.release().Tickets[0]
		b.begin(ticket, "me")
		b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Failed,
			Result: jobs.Meta{Status: 500}, Body: []byte("no")})
		if listed := b.failedJobs(); len(listed) != 0 {
			t.Errorf("failed jobs %q", listed)
		}
		if got, err := b.Redrive(t.Context(), o.Job.ID); err != nil || got != leaky.Unowned {
			t.Errorf("redrive = %s, %v", got, err)
		}
		want := min(keep, time.Minute)
		if s := b.look(o.Job.ID).Standing; s.State != jobs.Failed ||
			s.ExpiresAt.Sub(b.now) != want {
			t.Errorf("it stands at %+v", s)
		}
		prefix := jobs.KeyPrefix(b.Settings().Backend)
		for _, key := range []string{"job:", "state:", "result:", "shares:"} {
			if ttl := b.rdb.PTTL(t.Context(), prefix+key+o.Job.ID).Val(); ttl <= 0 || ttl > want {
				t.Errorf("%s ends in %v", key, ttl)
			}
		}
		// As if Redis had lost its removal.
		b.rdb.ZAdd(t.Context(), prefix+"line", redis.Z{Score: 1, Member: o.Job.ID})
		if b.round(); len(b.failedJobs()) != 0 {
			t.Error("the reconciler lists it")
		}
	}
}

// After a failed refresh no process gets another one accepted for a while, twice as long after each
// further one, 10 minutes at most. A success ends that, and the next failure begins anew. Offers of
// callers aren't affected.
func TestRefreshesRestAfterOneThatFailed(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	fail := func(want time.Duration) {
		t.Helper()
		b.refresh(leaky.Accepted)
		b.run(jobs.Failed)
		b.pass(want - time.Microsecond)
		if o := b.refresh(leaky.Joined); b.rdb.Exists(t.Context(),
			jobs.RecordKey(b.Settings().Backend, o.Job.ID)).Val() != 0 {
			t.Error("a refresh that isn't placed leaves a record")
		}
		b.pass(time.Microsecond)
	}
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 320, 600, 600} {
		fail(want * time.Second)
	}
	key := jobs.KeyPrefix(b.Settings().Backend) + "rest:" + b.joint("acme").Join
	if ttl := b.rdb.PTTL(t.Context(), key).Val(); ttl < 19*time.Minute || ttl > 20*time.Minute {
		t.Errorf("the longest rest is remembered for %v", ttl)
	}
	b.refresh(leaky.Accepted)
	b.run(jobs.Failed)
	other := b.joint("acme")
	other.Join, other.Refresh = "another", true
	if place := b.offer(other); place.Outcome != leaky.Accepted {
		t.Errorf("a refresh with another Join = %+v", place)
	}
	b.run(jobs.Succeeded)
	b.refresh(leaky.Joined)
	b.subscribe("acme", leaky.Accepted)
	b.run(jobs.Succeeded)
	fail(10 * time.Second)
}

// A refresh that a caller has joined is like any shared job: if it fails, it is listed and can be
// redriven, and no rest follows. If all its callers have left, it is unowned again.
func TestARefreshThatACallerJoinedFailsAsAnyJob(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	o := b.refresh(leaky.Accepted)
	sub := b.subscribe("other", leaky.Joined)
	b.run(jobs.Failed)
	if listed := b.failedJobs(); len(listed) != 1 || listed[0] != o.Job.ID {
		t.Errorf("failed jobs %q", listed)
	}
	if s := b.look(sub).Standing; s.State != jobs.Failed ||
		s.ExpiresAt.Sub(b.now) != b.Settings().KeepFailed {
		t.Errorf("the subscription stands at %+v", s)
	}
	b.refresh(leaky.Accepted)
	b.run(jobs.Succeeded)
	if got, err := b.Redrive(t.Context(), sub); err != nil || got != leaky.Redriven {
		t.Errorf("redrive = %s, %v", got, err)
	}
	left := b.subscribe("third", leaky.Joined)
	b.cancel(sub)
	if got := b.cancel(left); got != leaky.Canceled || b.status().Waiting != 0 {
		t.Errorf("with its last caller it is %s", got)
	}

	b.refresh(leaky.Accepted)
	b.cancel(b.subscribe("other", leaky.Joined))
	b.run(jobs.Failed)
	if listed := b.failedJobs(); len(listed) != 0 {
		t.Errorf("failed jobs %q", listed)
	}
	b.refresh(leaky.Joined)
}

package leaky_test

import (
	"errors"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

func (b *bench) purge(id string) leaky.PurgeOutcome {
	b.t.Helper()
	outcome, err := b.Purge(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return outcome
}

// gone checks that a job is no longer on record, and that its owner is still known.
func (b *bench) gone(id, client string) {
	b.t.Helper()
	_, err := b.Look(b.t.Context(), id)
	var gone *leaky.GoneError
	if !errors.As(err, &gone) || !errors.Is(err, leaky.ErrUnknownJob) || !gone.OwnedBy(client) ||
		gone.OwnedBy("another") {
		b.t.Errorf("look at %s = %v", id, err)
	}
}

// unknown checks that there is no trace of a job and its owner any more.
func (b *bench) unknown(id string) {
	b.t.Helper()
	_, err := b.Look(b.t.Context(), id)
	var gone *leaky.GoneError
	if !errors.Is(err, leaky.ErrUnknownJob) || errors.As(err, &gone) {
		b.t.Errorf("look at %s = %v", id, err)
	}
}

// A purge removes record, payload and result of a job that has ended, and its entry in the list of
// failed jobs. Its client still gets a GoneError, and the books still count it.
func TestAPurgedJobIsGone(t *testing.T) {
	t.Parallel()
	for _, end := range []jobs.State{jobs.Succeeded, jobs.Failed, jobs.Canceled, jobs.Expired} {
		b := newLine(t, nil)
		id := b.accept("acme")
		if got := b.purge(id); got != leaky.NotEnded || b.state(id) != jobs.Waiting {
			t.Fatalf("purge of a job that waits = %s", got)
		}
		ticket := b.release().Tickets[0]
		b.begin(ticket, "me")
		if got := b.purge(id); got != leaky.NotEnded || b.state(id) != jobs.Running {
			t.Fatalf("purge of a job that runs = %s", got)
		}
		b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: end,
			Result: jobs.Meta{Status: 200}, Body: []byte("x")})
		for range 2 {
			if got := b.purge(id); got != leaky.Purged {
				t.Fatalf("purge of a job that is %s = %s", end, got)
			}
			b.gone(id, "acme")
		}
		if _, err := b.Result(t.Context(), id); !errors.Is(err, leaky.ErrNoResult) {
			t.Errorf("its result: %v", err)
		}
		if page, err := b.List(t.Context(), leaky.ListFilter{State: jobs.Failed,
			Limit: 10}); err != nil || len(page.Jobs) != 0 || page.Next != "" {
			t.Errorf("failed jobs: %+v, %v", page, err)
		}
		if all := b.mine(leaky.MineFilter{Client: "acme", Limit: 10}); len(all) != 0 {
			t.Errorf("its client's list: %+v", all)
		}
		if v := b.settle(leaky.Settlement{Ticket: ticket, Owner: "me",
			To: end}); v != leaky.Forfeited {
			t.Errorf("a settlement of it = %s", v)
		}
		var gone *leaky.GoneError
		if _, err := b.Cancel(t.Context(), id); !errors.As(err, &gone) || !gone.OwnedBy("acme") {
			t.Errorf("cancel of it: %v", err)
		}
		if _, err := b.Cancel(t.Context(), jobs.NewID(b.Settings().Backend)); !errors.Is(err,
			leaky.ErrUnknownJob) || errors.As(err, &gone) {
			t.Errorf("cancel of a job that never was: %v", err)
		}
		if got, err := b.Purge(t.Context(), jobs.NewID(b.Settings().Backend)); !errors.Is(err,
			leaky.ErrUnknownJob) {
			t.Errorf("purge of a job that never was = %s, %v", got, err)
		}
	}
}

// The id of a purged job, of an Idempotency-Key, say, may be used again once the record would have
// expired. The client's list has it once, in its new place.
func TestAnIDMayComeAgainAfterAPurge(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	o := b.job("acme")
	o.Job.Fingerprint = "f"
	b.offer(o)
	b.run(jobs.Succeeded)
	b.purge(o.Job.ID)
	b.pass(time.Second)
	other := b.accept("acme")
	if place := b.offer(o); place.Outcome != leaky.Spent {
		t.Fatalf("before that, offer = %+v", place)
	}
	b.pass(o.Keep)
	if place := b.offer(o); place.Outcome != leaky.Accepted {
		t.Fatalf("offer = %+v", place)
	}
	if got := idsOf(b.mine(leaky.MineFilter{Client: "acme", Limit: 10})); len(got) != 2 ||
		got[0] != o.Job.ID || got[1] != other {
		t.Errorf("the list has %q", got)
	}
}

// The trace of a job stays for as long again as the job was kept, a day at most.
func TestTheTraceOfAJobStaysAsLongAgain(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	for keep, want := range map[time.Duration]time.Duration{time.Hour: 2 * time.Hour,
		72 * time.Hour: 96 * time.Hour} {
		o := b.job("acme")
		o.Keep = keep
		b.offer(o)
		b.run(jobs.Succeeded)
		prefix := jobs.KeyPrefix(b.Settings().Backend)
		if ttl := b.rdb.PTTL(t.Context(), prefix+"gone:"+o.Job.ID).Val(); ttl > want ||
			ttl < want-time.Minute {
			t.Errorf("kept for %v, it is known for %v, want %v", keep, ttl, want)
		}
		b.rdb.Del(t.Context(), prefix+"job:"+o.Job.ID, prefix+"state:"+o.Job.ID) // as at their end
		b.gone(o.Job.ID, "acme")
	}
}

// A subscription is purged by itself. The job is purged with the last one, but not while it runs.
func TestTheJobIsPurgedWithItsLastSubscription(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	first, second, left := b.subscribe("acme", leaky.Accepted), b.subscribe("other", leaky.Joined),
		b.subscribe("third", leaky.Joined)
	job := b.look(first).Job.Of
	if got := b.purge(first); got != leaky.NotEnded {
		t.Fatalf("purge of a subscription to a waiting job = %s", got)
	}
	b.cancel(left)
	if got := b.purge(left); got != leaky.Purged { // it has ended, though the job hasn't
		t.Fatalf("purge of a canceled subscription = %s", got)
	}
	b.gone(left, "third")
	b.run(jobs.Succeeded)
	if got := b.purge(first); got != leaky.Purged {
		t.Fatalf("purge = %s", got)
	}
	b.gone(first, "acme")
	if body, err := b.Result(t.Context(), b.look(second).Job.Source()); err != nil ||
		string(body) != "done" {
		t.Errorf("the other's result: %q, %v", body, err)
	}
	b.purge(second)
	b.gone(second, "other")
	b.unknown(job)
	if _, err := b.Result(t.Context(), job); !errors.Is(err, leaky.ErrNoResult) {
		t.Errorf("the job's result: %v", err)
	}
}

// A purge of the job itself also removes its subscriptions.
func TestAPurgedJobTakesItsSubscriptionsAlong(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	first, second := b.subscribe("acme", leaky.Accepted), b.subscribe("other", leaky.Joined)
	job := b.look(first).Job.Of
	if got := b.cancel(job); got != leaky.Canceled {
		t.Fatalf("cancel of the job = %s", got)
	}
	if b.state(first) != jobs.Canceled || b.state(second) != jobs.Canceled {
		t.Error("its subscriptions aren't canceled")
	}
	b.purge(job)
	b.gone(first, "acme")
	b.gone(second, "other")
	b.unknown(job)
}

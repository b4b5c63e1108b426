package leaky_test

import (
	"errors"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// The subscriptions to a redriven job are restored, and each is notified of its end again. The id
// of a subscription stands for the job in a redrive.
func TestARedrivenJobHasItsSubscriptionsBack(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	first, second, left := b.subscribe("acme", leaky.Accepted), b.subscribe("other", leaky.Joined),
		b.subscribe("third", leaky.Joined)
	b.cancel(left)
	b.run(jobs.Failed)
	b.pass(time.Minute)
	accepted := b.look(second).Job.CreatedAt
	if got, err := b.Redrive(t.Context(), second); err != nil || got != leaky.Redriven {
		t.Fatalf("redrive = %s, %v", got, err)
	}
	if b.state(first) != jobs.Waiting || b.state(second) != jobs.Waiting ||
		b.state(left) != jobs.Canceled {
		t.Errorf("they are %s, %s and %s", b.state(first), b.state(second), b.state(left))
	}
	if look := b.look(second); !look.Job.CreatedAt.Equal(accepted) {
		t.Errorf("it was accepted at %v, and is at %v now", accepted, look.Job.CreatedAt)
	}
	if got := b.cancel(first); got != leaky.Canceled {
		t.Errorf("cancel = %s", got)
	}
	joins := b.subscribe("fourth", leaky.Joined) // it is under way again, and can be joined
	b.run(jobs.Succeeded)
	if b.state(joins) != jobs.Succeeded {
		t.Errorf("who joined it is %s", b.state(joins))
	}
	b.subscribe("fourth", leaky.Accepted)
	if b.state(second) != jobs.Succeeded || b.state(first) != jobs.Canceled {
		t.Errorf("they are %s and %s", b.state(second), b.state(first))
	}
	for _, id := range []string{first, second} {
		if ttl := b.rdb.PTTL(t.Context(),
			jobs.RecordKey(b.Settings().Backend, id)).Val(); ttl <= 0 {
			t.Errorf("the record of %s ends in %v", id, ttl)
		}
	}
}

// If another job with the same Join has begun meanwhile, callers join that one, and the redriven
// one ends by itself.
func TestARedrivenJobLeavesAnotherToBeJoined(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Concurrency = 2 })
	failed := b.subscribe("acme", leaky.Accepted)
	b.run(jobs.Failed)
	other := b.subscribe("other", leaky.Accepted)
	if got, err := b.Redrive(t.Context(), failed); err != nil || got != leaky.Redriven {
		t.Fatalf("redrive = %s, %v", got, err)
	}
	if joins := b.subscribe("third", leaky.Joined); b.look(joins).Job.Of != b.look(other).Job.Of {
		t.Error("what is joined is the redriven job")
	}
	b.cancel(failed)
	b.subscribe("fourth", leaky.Joined)
}

// If Redis has lost a shared job, its subscriptions are removed, and the next caller begins a new
// job.
func TestALostJobTakesItsSubscriptionsAlong(t *testing.T) {
	t.Parallel()
	for name, notice := range map[string]func(*bench){
		"by release": func(b *bench) { b.release() },
		"by the reconciler": func(b *bench) {
			if repairs := b.round(); len(repairs) == 0 {
				b.t.Error("it found nothing")
			}
		},
		"by no call": func(*bench) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLine(t, nil)
			sub := b.subscribe("acme", leaky.Accepted)
			b.rdb.Del(t.Context(), jobs.RecordKey(b.Settings().Backend, b.look(sub).Job.Of))
			if _, err := b.Look(t.Context(), sub); !errors.Is(err, leaky.ErrUnknownJob) {
				t.Errorf("look = %v", err)
			}
			notice(b)
			b.subscribe("acme", leaky.Accepted)
			b.pass(time.Second)
			for b.release().Reason != leaky.OnIdle { // the lost one is noticed at the latest now
				b.pass(time.Second)
			}
			b.subscribe("other", leaky.Joined)
			b.round() // the lost bytes are found only by a recount
		})
	}
}

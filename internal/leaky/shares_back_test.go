package leaky_test

import (
	"errors"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// A redriven job has its shares back, and its end tells each again. A share stands for the job that an operator means.
func TestARedrivenJobHasItsSharesBack(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	first, second, left := b.share("acme", leaky.Accepted), b.share("other", leaky.Joined), b.share("third", leaky.Joined)
	b.cancel(left)
	b.run(jobs.Failed)
	b.pass(time.Minute)
	accepted := b.look(second).Job.CreatedAt
	if got, err := b.Redrive(t.Context(), second); err != nil || got != leaky.Redriven {
		t.Fatalf("redrive = %s, %v", got, err)
	}
	if b.state(first) != jobs.Waiting || b.state(second) != jobs.Waiting || b.state(left) != jobs.Canceled {
		t.Errorf("they are %s, %s and %s", b.state(first), b.state(second), b.state(left))
	}
	if look := b.look(second); !look.Job.CreatedAt.Equal(accepted) {
		t.Errorf("it was accepted at %v, and is at %v now", accepted, look.Job.CreatedAt)
	}
	if got := b.cancel(first); got != leaky.Canceled {
		t.Errorf("cancel = %s", got)
	}
	joins := b.share("fourth", leaky.Joined) // it is under way again for all who ask for the same
	b.run(jobs.Succeeded)
	if b.state(joins) != jobs.Succeeded {
		t.Errorf("who joined it is %s", b.state(joins))
	}
	b.share("fourth", leaky.Accepted)
	if b.state(second) != jobs.Succeeded || b.state(first) != jobs.Canceled {
		t.Errorf("they are %s and %s", b.state(second), b.state(first))
	}
	for _, id := range []string{first, second} {
		if ttl := b.rdb.PTTL(t.Context(), jobs.RecordKey(b.Settings().Backend, id)).Val(); ttl <= 0 {
			t.Errorf("the record of %s ends in %v", id, ttl)
		}
	}
}

// Where others have asked for the same meanwhile, it is theirs that is joined; the redriven one ends without it.
func TestARedrivenJobLeavesAnotherToBeJoined(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Concurrency = 2 })
	failed := b.share("acme", leaky.Accepted)
	b.run(jobs.Failed)
	other := b.share("other", leaky.Accepted)
	if got, err := b.Redrive(t.Context(), failed); err != nil || got != leaky.Redriven {
		t.Fatalf("redrive = %s, %v", got, err)
	}
	if joins := b.share("third", leaky.Joined); b.look(joins).Job.Of != b.look(other).Job.Of {
		t.Error("what is joined is the redriven job")
	}
	b.cancel(failed)
	b.share("fourth", leaky.Joined)
}

// Where Redis has lost a job that is shared, nothing of it is left, and whoever asks for the same isn't joined to nothing.
func TestALostJobTakesItsSharesAlong(t *testing.T) {
	t.Parallel()
	for name, notice := range map[string]func(*bench){
		"by release": func(b *bench) { b.release() },
		"by the reconciler": func(b *bench) {
			if repairs := b.round(); len(repairs) == 0 {
				b.t.Error("it found nothing")
			}
		},
		"by nobody": func(*bench) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLine(t, nil)
			share := b.share("acme", leaky.Accepted)
			b.rdb.Del(t.Context(), jobs.RecordKey(b.Settings().Backend, b.look(share).Job.Of))
			if _, err := b.Look(t.Context(), share); !errors.Is(err, leaky.ErrUnknownJob) {
				t.Errorf("look = %v", err)
			}
			notice(b)
			b.share("acme", leaky.Accepted)
			b.pass(time.Second)
			for b.release().Reason != leaky.OnIdle { // the lost one is noticed at the latest now
				b.pass(time.Second)
			}
			b.share("other", leaky.Joined)
			b.round() // how many bytes went with the record only a count of the others tells
		})
	}
}

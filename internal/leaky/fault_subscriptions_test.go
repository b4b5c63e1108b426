package leaky_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

// Like TestOneFailedCallChangesNothing, for subscriptions: a call that failed, carried out or not,
// is repeated, and the outcome is the same.
func TestOneFailedCallChangesNothingOfSubscriptions(t *testing.T) {
	t.Parallel()
	for script, calls := range map[string]int{"offer": 4, "cancel": 1, "settle": 2, "redrive": 1,
		"purge": 3, "look": 2, "mine": 1} {
		for nth := 1; nth <= calls; nth++ {
			for _, applied := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/applied=%v", script, nth, applied), func(t *testing.T) {
					t.Parallel()
					rdb := redistest.Client(t)
					b := newLineOn(t, rdb, nil)
					left := nth
					redistest.NewFaulty(t, rdb).FailNext(func(cmd redis.Cmder) bool {
						if !leaky.IsCall(script, cmd) {
							return false
						}
						left--
						return left <= 0
					}, applied)
					b.sharedStory("acme")
				})
			}
		}
	}
}

// sharedStory runs a shared job through its life: a client and three others ask for the same; one
// leaves, the job fails and is redriven, succeeds, and is purged by all except the one that left.
func (b *bench) sharedStory(client string) {
	b.t.Helper()
	ctx := context.Background()
	offers := []leaky.Offer{b.joint(client), b.joint("other"), b.joint("third"), b.joint("leaves")}
	for i := range offers {
		offers[i].Job.Callback = "https://example.org/"
		place := try(b.t, func() (leaky.Place, error) { return b.Offer(ctx, offers[i]) })
		if want := map[bool]leaky.Outcome{true: leaky.Accepted,
			false: leaky.Joined}[i == 0]; place.Outcome != want && place.Outcome != leaky.Exists {
			b.t.Fatalf("offer = %+v, want %s", place, want)
		}
	}
	ids := make([]string, len(offers))
	for i, o := range offers {
		ids[i] = o.Job.ID
	}
	look := func(id string) leaky.Look {
		return try(b.t, func() (leaky.Look, error) { return b.Look(ctx, id) })
	}
	if got := try(b.t, func() (leaky.CancelOutcome, error) {
		return b.Cancel(ctx, ids[3])
	}); got != leaky.Canceled {
		b.t.Errorf("cancel = %s", got)
	}
	for _, to := range []jobs.State{jobs.Failed, jobs.Succeeded} {
		b.pass(leaky.Lease)
		ticket := b.release().Tickets[0]
		b.begin(ticket, "me")
		try(b.t, func() (any, error) {
			v, _, err := b.Settle(ctx, leaky.Settlement{Ticket: ticket, Owner: "me", To: to,
				Result: jobs.Meta{Status: 200}, Body: []byte(to)})
			return v, err
		})
		for _, id := range ids[:3] {
			if got := look(id).Standing.State; got != to {
				b.t.Errorf("a subscription to a job that %s is %s", to, got)
			}
		}
		if to == jobs.Failed {
			if got := try(b.t, func() (leaky.Outcome, error) {
				return b.Redrive(ctx, ids[0])
			}); got != leaky.Redriven && got != leaky.NotFailed {
				b.t.Errorf("redrive = %s", got)
			}
		}
	}
	job := look(ids[0]).Job.Of
	page := try(b.t, func() (leaky.MinePage, error) {
		return b.Mine(ctx, leaky.MineFilter{Client: "other", Limit: 10})
	})
	if !slices.Contains(idsOf(page.Jobs), ids[1]) {
		b.t.Errorf("the other's list has %q", idsOf(page.Jobs))
	}
	if got := b.due(); len(got) != 4 {
		b.t.Errorf("the outbox has %v", got)
	}
	b.rdb.Del(ctx, jobs.KeyPrefix(b.Settings().Backend)+"callbacks")
	for _, id := range ids[:3] {
		if got := try(b.t, func() (leaky.PurgeOutcome, error) {
			return b.Purge(ctx, id)
		}); got != leaky.Purged {
			b.t.Errorf("purge = %s", got)
		}
	}
	if _, err := b.Look(ctx, job); !errors.Is(err, leaky.ErrUnknownJob) {
		b.t.Errorf("the job, after the last purge: %v", err)
	}
	if got := look(ids[3]).Standing.State; got != jobs.Canceled {
		b.t.Errorf("the subscription that left is %s", got)
	}
}

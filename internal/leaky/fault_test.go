package leaky_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

// Every call fails once as "not applied" and once as "applied, reply lost". Callers repeat the
// calls that may be repeated. Each job still ends exactly once, with the right outcome.
func TestOneFailedCallChangesNothing(t *testing.T) {
	t.Parallel()
	for script, calls := range map[string]int{"offer": 2, "release": 3, "start": 3, "renew": 2,
		"settle": 5, "cancel": 2, "tune": 2, "look": 1, "status": 1} {
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
					b.story("acme")
				})
			}
		}
	}
}

// try repeats a call as a front or a worker does after a lost reply.
func try[T any](t *testing.T, call func() (T, error)) T {
	t.Helper()
	var v T
	for range 3 {
		var err error
		if v, err = call(); err == nil {
			return v
		}
		if !errors.Is(err, redistest.ErrNotApplied) && !errors.Is(err, redistest.ErrReplyLost) {
			t.Fatal(err)
		}
	}
	t.Fatal("it fails each time")
	return v
}

// story runs five jobs through the line and checks their outcomes: the first needs a second
// attempt, the second meets a throttling backend, the third is canceled while it runs, the fourth
// just succeeds, and the fifth is canceled while it waits.
func (b *bench) story(client string) {
	b.t.Helper()
	ctx := context.Background()
	var ids []string
	for range 5 {
		o := b.job(client)
		place := try(b.t, func() (leaky.Place, error) { return b.Offer(ctx, o) })
		if place.Outcome != leaky.Accepted && place.Outcome != leaky.Exists {
			b.t.Fatalf("offer = %+v", place)
		}
		ids = append(ids, o.Job.ID)
	}
	cancel := func(id string) leaky.CancelOutcome {
		return try(b.t, func() (leaky.CancelOutcome, error) { return b.Cancel(ctx, id) })
	}
	if got := cancel(ids[4]); got != leaky.Canceled {
		b.t.Errorf("cancel = %s", got)
	}
	two := 2
	try(b.t, func() (any, error) {
		return nil, b.Tune(ctx, leaky.Override{Concurrency: &two}, "operator")
	})
	try(b.t, func() (any, error) { return nil, b.Retune(ctx, leaky.Tuning{Reset: true}) })

	outcome := func(s leaky.Started) leaky.Settlement {
		switch {
		case s.Job.ID == ids[0] && s.Attempt == 1:
			return leaky.Settlement{To: jobs.Delayed, Delay: time.Second}
		case s.Job.ID == ids[1] && b.status().Books.Throttled == 0:
			return leaky.Settlement{To: jobs.Waiting, Sign: leaky.Throttled}
		case s.Job.ID == ids[2]:
			if got := cancel(ids[2]); got != leaky.Aborting {
				b.t.Errorf("cancel = %s", got)
			}
			return leaky.Settlement{To: jobs.Canceled}
		}
		return leaky.Settlement{To: jobs.Succeeded, Result: jobs.Meta{Status: 200},
			Body: []byte(s.Job.ID)}
	}
	for end := b.now.Add(time.Minute); ; b.pass(100 * time.Millisecond) {
		if s := try(b.t, func() (leaky.Status, error) {
			return b.Status(ctx)
		}); s.Waiting+s.Delayed+s.InFlight == 0 {
			break
		} else if b.now.After(end) {
			b.t.Fatalf("it doesn't end: %+v", s)
		}
		r, err := b.Release(ctx)
		if err != nil {
			continue // its tickets are lost, and the jobs return when their leases expire
		}
		for _, ticket := range r.Tickets {
			s := try(b.t, func() (leaky.Started, error) { return b.Start(ctx, ticket, "me") })
			if s.Outcome != leaky.Go {
				continue
			}
			settlement := outcome(s)
			settlement.Ticket, settlement.Owner = ticket, "me"
			held := try(b.t, func() ([]leaky.Renewal, error) {
				return b.Renew(ctx, "me", []leaky.Ticket{ticket})
			})
			if want := map[bool]leaky.Renewal{true: leaky.Stop,
				false: leaky.Held}[settlement.To == jobs.Canceled]; held[0] != want {
				b.t.Errorf("renew = %v, want %s", held, want)
			}
			if v := try(b.t, func() (leaky.SettleOutcome, error) {
				v, _, err := b.Settle(ctx, settlement)
				return v, err
			}); v != leaky.Settled {
				b.t.Errorf("settle = %s", v)
			}
		}
	}
	b.ended(ids)
}

// ended checks the final states of the story's jobs.
func (b *bench) ended(ids []string) {
	b.t.Helper()
	ctx := context.Background()
	for i, want := range []struct {
		state    jobs.State
		attempts int
	}{{jobs.Succeeded, 2}, {jobs.Succeeded, 1}, {jobs.Canceled, 1}, {jobs.Succeeded, 1},
		{jobs.Canceled, 0}} {
		look := try(b.t, func() (leaky.Look, error) { return b.Look(ctx, ids[i]) })
		if look.Standing.State != want.state || look.Standing.Attempts != want.attempts {
			b.t.Errorf("job %d: %s after %d attempts, want %s after %d", i, look.Standing.State,
				look.Standing.Attempts, want.state, want.attempts)
		}
		if body, err := b.Result(ctx, ids[i]); (want.state == jobs.Succeeded) != (err == nil &&
			string(body) == ids[i]) {
			b.t.Errorf("job %d: result %q, %v", i, body, err)
		}
	}
	if got, want := b.status().Books,
		(leaky.Books{Accepted: 5, Succeeded: 3, Canceled: 2, Started: 6,
			Throttled: 1}); got != want {
		b.t.Errorf("books = %+v, want %+v", got, want)
	}
}

func TestTheStoryOnMiniredis(t *testing.T) {
	t.Parallel()
	b := newLineOn(t, redistest.Miniredis(t), nil)
	b.story("acme")
	b.sharedStory("acme")
	l := listen(t, b)
	b.accept("acme")
	receive(t, l.Wake(b.Settings().Backend))
}

// Case C29: The keys of each script are in one slot of a cluster, whatever the names of clients.
func TestTheLineWorksOnACluster(t *testing.T) {
	t.Parallel()
	rdb, _ := redistest.StartCluster(t)
	for i, client := range []string{"acme", "{", "}", "{a}b{c}", "ip:2001:db8::/64", "a b\n"} {
		b := newLineOn(t, rdb, func(s *leaky.Settings) { s.ClientShare = 0.9 })
		b.story(client)
		b.sharedStory(client)
		if i == 0 {
			l := listen(t, b)
			b.accept("acme")
			receive(t, l.Wake(b.Settings().Backend))
		}
	}
}

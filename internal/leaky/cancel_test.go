package leaky_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

func TestCancelInEachState(t *testing.T) {
	t.Parallel()
	settled := func(to jobs.State) func(*bench) {
		return func(b *bench) {
			ticket := b.release().Tickets[0]
			b.begin(ticket, "me")
			b.end(ticket, "me", to)
		}
	}
	for name, c := range map[string]struct {
		bring   func(*bench)
		outcome leaky.CancelOutcome
		state   jobs.State
	}{
		"waiting":  {func(*bench) {}, leaky.Canceled, jobs.Canceled},
		"delayed":  {settled(jobs.Delayed), leaky.Canceled, jobs.Canceled},
		"released": {func(b *bench) { b.release() }, leaky.Canceled, jobs.Canceled},
		"running": {func(b *bench) {
			b.begin(b.release().Tickets[0], "me")
		}, leaky.Aborting, jobs.Running},
		"succeeded": {settled(jobs.Succeeded), leaky.AlreadyFinal, jobs.Succeeded},
		"failed":    {settled(jobs.Failed), leaky.AlreadyFinal, jobs.Failed},
		"canceled":  {func(b *bench) { b.cancel(b.only) }, leaky.Canceled, jobs.Canceled},
		"expired": {func(b *bench) {
			b.pass(25 * time.Hour)
			b.release()
		}, leaky.AlreadyFinal, jobs.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLine(t, func(s *leaky.Settings) { s.Capacity = 1 })
			o := b.job("acme")
			o.StartWithin = time.Hour
			b.offer(o)
			b.only = o.Job.ID
			c.bring(b)
			for range 2 { // a second time is no different
				if got := b.cancel(b.only); got != c.outcome {
					t.Errorf("cancel = %s, want %s", got, c.outcome)
				}
			}
			st := b.look(b.only).Standing
			if st.State != c.state || st.Canceling != (c.state == jobs.Running) {
				t.Errorf("it is %+v", st)
			}
			if c.state == jobs.Running {
				return
			}
			b.accept("acme") // its place is free
		})
	}
}

func TestCancelOfAnUnknownJob(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	if got, err := b.Cancel(context.Background(), jobs.NewID(b.Settings().Backend)); !errors.Is(err,
		leaky.ErrUnknownJob) {
		t.Errorf("cancel = %q, %v", got, err)
	}
}

func TestACanceledJobNeverStarts(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	id := b.accept("acme")
	ticket := b.release().Tickets[0]
	b.cancel(id)
	if s := b.start(ticket, "me"); s.Outcome != leaky.Gone {
		t.Errorf("start = %+v, want gone", s)
	}
	if s := b.status(); s.InFlight != 0 || s.Waiting != 0 {
		t.Errorf("status = %+v", s)
	}
}

// Case C108.
//
// The worker is notified, by message and at its next renewal, and the job gets no further attempt.
func TestCancelOfARunningJobAbortsItsCall(t *testing.T) {
	t.Parallel()
	for _, to := range []jobs.State{jobs.Canceled, jobs.Waiting, jobs.Delayed} {
		t.Run(string(to), func(t *testing.T) {
			t.Parallel()
			b := newLine(t, nil)
			received := make(chan string, 10)
			l := listen(t, b)
			l.OnAbort(func(id string) { received <- id })
			id := b.accept("acme")
			ticket := b.release().Tickets[0]
			b.begin(ticket, "me")
			version := b.look(id).Standing.Version
			b.cancel(id)
			if look := b.look(id); !look.Standing.Canceling || look.Standing.Version == version {
				t.Errorf("a job to be canceled: %+v, want it said, and another version",
					look.Standing)
			}
			if got := receive(t, received); got != id {
				t.Errorf("abort of %s, want %s", got, id)
			}
			if got, err := b.Renew(context.Background(), "me",
				[]leaky.Ticket{ticket}); err != nil || got[0] != leaky.Stop {
				t.Errorf("renew = %v, %v, want stop", got, err)
			}
			b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: to, Delay: time.Second})
			b.pass(time.Minute)
			if r := b.release(); len(r.Tickets) != 0 || b.look(id).Standing.State != jobs.Canceled {
				t.Errorf("release = %+v, the job is %s", r, b.look(id).Standing.State)
			}
		})
	}
}

// If the call ended before the abort came, its result is kept.
func TestAResultThatCameBeforeTheAbortStands(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	id := b.accept("acme")
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	b.cancel(id)
	b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Succeeded,
		Result: jobs.Meta{Status: 200}, Body: []byte("ok")})
	st := b.look(id).Standing
	if body, err := b.Result(context.Background(), id); st.State != jobs.Succeeded ||
		st.Canceling || string(body) != "ok" || err != nil {
		t.Errorf("it is %+v with %q, %v", st, body, err)
	}
}

func TestACanceledJobOfADeadWorkerIsCanceled(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	id := b.accept("acme")
	b.begin(b.release().Tickets[0], "dead")
	b.cancel(id)
	b.pass(leaky.Lease)
	r := b.release()
	if len(r.Ended) != 1 || r.Ended[0] != (leaky.Ended{ID: id, State: jobs.Canceled}) ||
		len(r.Tickets) != 0 {
		t.Errorf("release = %+v, want the job canceled", r)
	}
}

// Case C106.
//
// Cancel at any moment of a job's life, while workers release, start and settle as fast as they
// can.
func TestCancelRacesLeaveOneTruth(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) {
		s.Rate, s.Capacity, s.Concurrency = leaky.Unlimited, 1000, 30
	})
	// On Redis's clock: the test's isn't for several goroutines.
	b.Line = leaky.New(redistest.Client(t), b.Settings())
	const n = 300
	ids := b.fill("acme", n)
	type end struct {
		called, aborted bool
		outcome         leaky.SettleOutcome
	}
	var mu sync.Mutex
	ends := map[string]end{}
	canceled := map[string]leaky.CancelOutcome{}
	stop := make(chan struct{})
	var workers, cancels sync.WaitGroup
	for _, owner := range []string{"one", "two", "three"} {
		workers.Go(func() {
			for {
				r, err := b.Release(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				for _, ticket := range r.Tickets {
					s, err := b.Start(context.Background(), ticket, owner)
					if err != nil {
						t.Error(err)
					} else if s.Outcome == leaky.Go {
						held, err := b.Renew(context.Background(), owner, []leaky.Ticket{ticket})
						aborted := err == nil && held[0] == leaky.Stop
						settlement := leaky.Settlement{Ticket: ticket, Owner: owner,
							To: jobs.Succeeded, Result: jobs.Meta{Status: 200},
							Body: []byte(ticket.ID)}
						if aborted {
							settlement.To, settlement.Result, settlement.Body = jobs.Canceled,
								jobs.Meta{}, nil
						}
						v, _, err := b.Settle(context.Background(), settlement)
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						ends[ticket.ID] = end{true, aborted, v}
						mu.Unlock()
					}
				}
				if r.Reason == leaky.OnIdle {
					select {
					case <-stop:
						return
					default:
					}
				}
			}
		})
	}
	order := rand.Perm(n)
	for part := range 4 {
		cancels.Go(func() {
			for i := part; i < n/2; i += 4 {
				got, err := b.Cancel(context.Background(), ids[order[i]])
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				canceled[ids[order[i]]] = got
				mu.Unlock()
			}
		})
	}
	cancels.Wait()
	close(stop)
	workers.Wait()
	for _, id := range ids {
		st := b.look(id).Standing
		body, err := b.Result(context.Background(), id)
		e := ends[id]
		switch {
		case e.called && !e.aborted:
			if st.State != jobs.Succeeded || string(body) != id || err != nil {
				t.Errorf("%s: its call ended, and it is %s with result %q, %v", id, st.State, body,
					err)
			}
		default:
			if st.State != jobs.Canceled || !errors.Is(err, leaky.ErrNoResult) ||
				canceled[id] == leaky.AlreadyFinal {
				t.Errorf("%s: never called or aborted, and it is %s with result %q; cancel said %s",
					id, st.State, body, canceled[id])
			}
		}
		if canceled[id] == leaky.Canceled && (e.called || st.State != jobs.Canceled) {
			t.Errorf("%s: canceled, and then %+v, %s", id, e, st.State)
		}
	}
}

package leaky_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

func (b *bench) explain(id string) leaky.Explanation {
	b.t.Helper()
	e, err := b.Explain(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

// An explanation has the same place and wait as the job's status, the same drain as its backend's,
// and accounts for each job ahead.
func TestAnExplanationAgreesWithEverythingElse(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Capacity = 1000 })
	ahead := map[string]int64{}
	for i := range 60 {
		client := fmt.Sprint("client-", i%11)
		ahead[client]++
		b.accept(client)
	}
	id := b.accept("last")
	e, look := b.explain(id), b.look(id)
	if e.Position != look.Position || e.Wait != look.Wait || e.Job.Client != "last" ||
		e.Standing.State != jobs.Waiting || e.Status.Waiting != 61 ||
		e.Status.Rate != rate(t, "10/s") || e.WaitingOn != look.WaitingOn || e.Sampled || len(e.Ahead) != 8 {
		t.Errorf("explanation = %+v\nlook = %+v", e, look)
	}
	total := e.OtherJobs
	for _, a := range e.Ahead {
		if a.Jobs > ahead[a.Client] {
			t.Errorf("%d of %s ahead, of %d", a.Jobs, a.Client, ahead[a.Client])
		}
		total += a.Jobs
	}
	if total != e.Position-1 || e.OtherClients < 1 {
		t.Errorf("%d jobs of %d ahead; %d other clients", total, e.Position-1, e.OtherClients)
	}
}

// Of a long line 100 jobs are looked at, and the numbers by client are estimates that add up.
func TestAnExplanationOfALongLineIsBounded(t *testing.T) {
	t.Parallel()
	b := newLineOn(t, ownServer(t), func(s *leaky.Settings) { s.Capacity = 5000 })
	for i := range 1500 {
		b.accept([]string{"big", "big", "small"}[i%3])
	}
	id := b.accept("big")
	e := b.explain(id)
	if !e.Sampled || e.Position != b.look(id).Position {
		t.Errorf("explanation = %+v", e)
	}
	total := e.OtherJobs
	for _, a := range e.Ahead {
		total += a.Jobs
	}
	if total != e.Position-1 || e.OtherClients != 0 || e.OtherJobs < 0 {
		t.Errorf("%+v, %d others ahead of position %d", e.Ahead, e.OtherJobs, e.Position)
	}
}

// The place that a higher priority would have is the one that such a job then gets.
func TestTheRemedyOfPriorityIsTrue(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	for i := range 40 {
		b.accept(fmt.Sprint("client-", i%4))
	}
	id := b.accept("client-1")
	e := b.explain(id)
	high := b.prioritized("client-1", jobs.High)
	if p := b.offer(high); p.Position != e.HighPosition {
		t.Errorf("a high job has position %d; %d was promised", p.Position, e.HighPosition)
	}
	if got := b.explain(high.Job.ID).HighPosition; got != 0 {
		t.Errorf("a high job could be higher: %d", got)
	}
}

// Each remedy, applied, has the wait that it promises.
func TestRemediesComeTrue(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.fill("acme", 50)
	id := b.accept("acme")
	change := map[string]func(leaky.Remedy) leaky.Override{
		leaky.ToRate: func(r leaky.Remedy) leaky.Override {
			return leaky.Override{Rate: new(rate(t, r.Value))}
		},
		leaky.ToResume: func(leaky.Remedy) leaky.Override {
			return leaky.Override{Paused: new(false)}
		},
	}
	check := func(want string) {
		t.Helper()
		found := false
		for _, r := range b.explain(id).Remedies() {
			if r.Change != want {
				continue
			}
			found = true
			if err := b.Tune(context.Background(), change[want](r), "kim"); err != nil {
				t.Fatal(err)
			}
			near(t, want, b.look(id).Wait.Seconds(), r.Wait.Seconds(), 0.2)
		}
		if !found {
			t.Errorf("no remedy %s in %+v", want, b.explain(id).Remedies())
		}
	}
	check(leaky.ToRate)
	if err := b.Tune(context.Background(), leaky.Override{Paused: new(true)}, "kim"); err != nil {
		t.Fatal(err)
	}
	check(leaky.ToResume)
}

// A sick backend's factor is explained by when it was lowered, and health is the remedy.
func TestAnExplanationKnowsSinceWhenTheBackendIsSick(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.fill("acme", 30)
	id := b.accept("acme")
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	b.pass(100 * time.Millisecond)
	b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Waiting, Sign: leaky.Throttled,
		Gate: time.Second})
	e := b.explain(id)
	if e.Status.Factor != 0.5 || !e.LoweredAt.Equal(b.now) || e.Status.Cause != leaky.Throttled {
		t.Errorf("factor %v since %v for %s, want since %v", e.Status.Factor, e.LoweredAt,
			e.Status.Cause, b.now)
	}
	if all := e.Remedies(); len(all) == 0 || all[0].Change != leaky.ToHealth {
		t.Errorf("remedies = %+v", all)
	}
	running := b.explain(ticket.ID)
	if running.Position != 1 || running.Status.Waiting != 31 {
		t.Errorf("the throttled job: %+v", running)
	}
}

func TestAJobThatIsGoneIsNotExplained(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	if _, err := b.Explain(context.Background(), jobs.NewID(b.Settings().Backend)); !errors.Is(err,
		leaky.ErrUnknownJob) {
		t.Error(err)
	}
}

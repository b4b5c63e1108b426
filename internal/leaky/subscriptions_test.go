package leaky_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// joint returns an offer of a fresh job by client with a fixed Join.
func (b *bench) joint(client string) leaky.Offer {
	o := b.job(client)
	o.Join = "0123456789abcdef0123456789abcdef"
	return o
}

// subscribe makes an offer of joint by client, and returns the id of the subscription.
func (b *bench) subscribe(client string, want leaky.Outcome) string {
	b.t.Helper()
	o := b.joint(client)
	if place := b.offer(o); place.Outcome != want {
		b.t.Fatalf("offer of %s = %+v, want %s", client, place, want)
	}
	return o.Job.ID
}

// run runs the next job until it ends, or goes into a backoff of an hour.
func (b *bench) run(to jobs.State) {
	b.t.Helper()
	b.pass(time.Second)
	r := b.release()
	if len(r.Tickets) != 1 {
		b.t.Fatalf("release = %+v, want one job", r)
	}
	b.begin(r.Tickets[0], "me")
	s := leaky.Settlement{Ticket: r.Tickets[0], Owner: "me", To: to, Delay: time.Hour}
	if to == jobs.Succeeded {
		s.Result, s.Body = jobs.Meta{Status: 200, ContentType: "text/plain"}, []byte("done")
	}
	if v := b.settle(s); v != leaky.Settled {
		b.t.Fatalf("settle = %s", v)
	}
}

func (b *bench) state(id string) jobs.State { b.t.Helper(); return b.look(id).Standing.State }

// Callers with the same Join get subscriptions to one job: one call of the backend, one place in
// the line.
func TestCallersWithTheSameJoinShareOneJob(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	first := b.subscribe("acme", leaky.Accepted)
	b.pass(time.Minute)
	o := b.joint("other")
	o.Job.Tier, o.Job.Fingerprint, o.Job.Callback = "pro", "f", "https://example.org/?a=1&b=2"
	if place := b.offer(o); place.Outcome != leaky.Joined {
		t.Fatalf("offer = %+v", place)
	}
	if again := b.offer(o); again.Outcome != leaky.Exists {
		t.Fatalf("the same offer again = %+v", again)
	}
	if s := b.status(); s.Waiting != 1 || s.Books.Accepted != 1 {
		t.Fatalf("status = %+v", s)
	}
	mine, others := b.look(first), b.look(o.Job.ID)
	job := o.Job
	job.Payload, job.CreatedAt, job.Weight, job.Of = nil, b.now, 1, mine.Job.Of
	if fmt.Sprint(others.Job) != fmt.Sprint(job) || mine.Job.Client != "acme" ||
		mine.Job.Of == "" || mine.Job.Source() == first {
		t.Fatalf("the first has %+v, the other %+v, want %+v", mine.Job, others.Job, job)
	}
	if others.Position != 1 || others.Standing != mine.Standing {
		t.Errorf("one stands at %+v, the other at %+v", mine, others)
	}

	started := b.begin(b.release().Tickets[0], "me")
	if started.Job.ID != mine.Job.Of || started.Job.Client != "acme" ||
		string(started.Job.Payload) != `{"n":1}` || started.Job.Callback != "" {
		t.Errorf("what runs is %+v", started.Job)
	}
	if got := b.subscribe("third", leaky.Joined); b.state(got) != jobs.Running {
		t.Errorf("a subscription to a running job is %s", b.state(got))
	}
	b.end(leaky.Ticket{ID: started.Job.ID, Run: 1}, "me", jobs.Succeeded)
	for _, id := range []string{first, o.Job.ID} {
		if s := b.look(id).Standing; s.State != jobs.Succeeded || s.Attempts != 1 ||
			!s.FinishedAt.Equal(b.now) {
			t.Errorf("it ends as %+v", s)
		}
	}
	b.subscribe("acme", leaky.Accepted) // a job that has ended isn't joined
}

// A job with start_within isn't shared, because a deadline of one caller isn't for others.
func TestAJobWithStartWithinIsNotShared(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	o := b.joint("acme")
	o.StartWithin = time.Minute
	if place := b.offer(o); place.Outcome != leaky.Accepted || b.look(o.Job.ID).Job.Of != "" {
		t.Fatalf("offer = %+v", place)
	}
	other := b.subscribe("other", leaky.Accepted)
	o.Job.ID = jobs.NewID(b.Settings().Backend)
	if place := b.offer(o); place.Outcome != leaky.Accepted {
		t.Errorf("offer = %+v", place)
	}
	b.pass(2 * time.Minute)
	b.release()
	if b.state(other).Final() || b.state(o.Job.ID) != jobs.Expired {
		t.Errorf("they are %s and %s", b.state(other), b.state(o.Job.ID))
	}
}

// Each caller cancels its own subscription, in the line and while the job runs. The last one
// cancels the job. Then the next caller begins a new one at once.
func TestTheLastSubscriptionCancelsTheJob(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{false, true} {
		b := newLine(t, nil)
		first, second := b.subscribe("acme", leaky.Accepted), b.subscribe("other", leaky.Joined)
		var ticket leaky.Ticket
		if running {
			ticket = b.release().Tickets[0]
			b.begin(ticket, "me")
		}
		before := b.look(first)
		b.pass(time.Second)
		for range 2 {
			if got := b.cancel(first); got != leaky.Canceled {
				t.Fatalf("cancel of the first subscription = %s", got)
			}
		}
		if got, other := b.look(first).Standing,
			b.look(second).Standing; got.State != jobs.Canceled ||
			got.Version <= before.Standing.Version ||
			!got.FinishedAt.Equal(b.now) || got.ExpiresAt.Sub(b.now) != time.Hour ||
			other.State.Final() || other.Canceling {
			t.Errorf("running %v: the first is %+v, the second %+v", running, got, other)
		}
		want := leaky.Canceled
		if running {
			want = leaky.Aborting
		}
		if got := b.cancel(second); got != want {
			t.Fatalf("cancel of the last subscription = %s, want %s", got, want)
		}
		third := b.subscribe("acme", leaky.Accepted) // a job that is being canceled isn't joined
		if running {
			if !b.look(second).Standing.Canceling {
				t.Error("it isn't to be canceled")
			}
			b.end(ticket, "me", jobs.Canceled)
		}
		if b.state(first) != jobs.Canceled || b.state(second) != jobs.Canceled ||
			b.cancel(second) != leaky.Canceled {
			t.Errorf("they are %s and %s", b.state(first), b.state(second))
		}
		if got := b.status().Books; got.Canceled != 1 || got.Accepted != 2 {
			t.Errorf("books = %+v", got)
		}
		b.run(jobs.Succeeded)
		if got := b.cancel(third); got != leaky.AlreadyFinal {
			t.Errorf("cancel of what has ended = %s", got)
		}
	}
}

// However many callers come at one moment, and leave at one, it is one job, and it is canceled
// once.
func TestOfManyCallersAtOneMomentOneIsFirst(t *testing.T) {
	t.Parallel()
	const callers = 200
	b := newLine(t, nil)
	each := func(do func(n int)) {
		var all sync.WaitGroup
		for n := range callers {
			all.Go(func() { do(n) })
		}
		all.Wait()
	}
	var ids [callers]string
	var outcomes [callers]leaky.Outcome
	var errs [2 * callers]error
	each(func(n int) {
		o := b.joint(fmt.Sprint("client-", n%7))
		o.Job.Fingerprint = fmt.Sprint(n)
		place, err := b.Offer(context.Background(), o)
		ids[n], outcomes[n], errs[n] = o.Job.ID, place.Outcome, err
	})
	firsts := slices.DeleteFunc(slices.Clone(outcomes[:]), func(o leaky.Outcome) bool {
		return o == leaky.Joined
	})
	if err := errors.Join(errs[:]...); err != nil ||
		!slices.Equal(firsts, []leaky.Outcome{leaky.Accepted}) {
		t.Fatalf("besides those that joined: %v, %v", firsts, err)
	}
	if s := b.status(); s.Waiting != 1 {
		t.Errorf("%d jobs wait", s.Waiting)
	}
	each(func(n int) {
		var got leaky.CancelOutcome
		got, errs[callers+n] = b.Cancel(context.Background(), ids[n])
		if got != leaky.Canceled {
			errs[callers+n] = errors.Join(errs[callers+n], fmt.Errorf("cancel = %s", got))
		}
	})
	if err := errors.Join(errs[:]...); err != nil {
		t.Error(err)
	}
	if s := b.status(); s.Waiting != 0 || s.Books.Canceled != 1 {
		t.Errorf("all have left: %+v", s)
	}
	for n := range 7 {
		if all := b.mine(leaky.MineFilter{Client: fmt.Sprint("client-", n), Status: "canceled",
			Limit: 10}); len(all) < callers/7 {
			t.Errorf("the list of client %d has %d jobs", n, len(all))
		}
	}
}

// A thousand callers share a job. The next one begins another job, with payload and permits, which
// later callers share.
func TestAThousandShareAJob(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	var last leaky.Offer
	for n := 0; n < 1000; n += batch {
		offers := make([]leaky.Offer, min(batch, 1000-n))
		for i := range offers {
			offers[i] = b.joint(fmt.Sprint("client-", n+i))
		}
		if _, err := b.OfferAll(t.Context(), offers); err != nil {
			t.Fatal(err)
		}
		last = offers[len(offers)-1]
	}
	refresh := b.joint("acme")
	refresh.Refresh = true
	if place := b.offer(refresh); place.Outcome != leaky.Joined {
		t.Errorf("a refresh = %+v", place)
	}
	o := b.joint("acme")
	o.Job.Holds = jobs.Holds{Member: o.Job.ID,
		Keys: []string{"fb:{" + b.Settings().Backend + "}:limit:x"}}
	o.Job.Payload, o.Job.Fingerprint, o.Job.Callback = []byte("\x00\n\n\xff"), "print",
		"https://example.org/"
	if place := b.offer(o); place.Outcome != leaky.Accepted || place.Position != 2 {
		t.Fatalf("offer = %+v", place)
	}
	look, full := b.look(o.Job.ID), b.look(last.Job.ID).Job.Of
	next := look.Job.Of
	if next == "" || next == full || look.Job.Fingerprint != "print" ||
		look.Job.Callback != o.Job.Callback {
		t.Errorf("it is %+v", look.Job)
	}
	if job := b.look(next).Job; !slices.Equal(look.Job.Holds.Keys, o.Job.Holds.Keys) ||
		len(job.Holds.Keys) != 0 || !job.Shared {
		t.Errorf("it is %+v, its job %+v", look.Job, job)
	}
	if payload, err := b.Payload(t.Context(), next); err != nil ||
		string(payload) != string(o.Job.Payload) {
		t.Errorf("payload %q, %v", payload, err)
	}
	for n := range 40 {
		b.subscribe(fmt.Sprint("other-", n), leaky.Joined)
	}
	if s := b.status(); s.Waiting != 2 {
		t.Errorf("%d jobs wait", s.Waiting)
	}
	b.run(jobs.Succeeded)
	if b.state(last.Job.ID) != jobs.Succeeded || b.state(o.Job.ID) != jobs.Waiting {
		t.Errorf("the last subscription is %s, the one that came then %s", b.state(last.Job.ID),
			b.state(o.Job.ID))
	}
	if id := b.subscribe("third", leaky.Joined); b.look(id).Job.Of != next {
		t.Error("the end of the full job took the next one's subscriptions along")
	}
}

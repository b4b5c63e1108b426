package leaky_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

// A client has one subscription to a job, unless it uses another Idempotency-Key or webhook.
// Anonymous callers, who only have an address in common, each have one, but not so many that one
// address takes up a whole job.
func TestAClientHasOneSubscriptionToAJob(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.MaxSubscriptions(1000, 3)
	ask := func(client, fingerprint, callback string) (string, leaky.Place) {
		o := b.joint(client)
		o.Job.Fingerprint, o.Job.Callback = fingerprint, callback
		return o.Job.ID, b.offer(o)
	}
	first, _ := ask("acme", "", "")
	hooked, place := ask("acme", "", "https://example.org/")
	if place.Outcome != leaky.Joined {
		t.Fatalf("with a webhook: %+v", place)
	}
	for callback, want := range map[string]string{"": first, "https://example.org/": hooked} {
		for range 2 {
			if id, place := ask("acme", "", callback); place.Outcome != leaky.Again ||
				place.ID != want {
				t.Errorf("asked again with the webhook %q = %+v, want subscription %s", callback,
					place, want)
			} else if _, err := b.Look(t.Context(), id); err == nil {
				t.Errorf("it made %s", id)
			}
		}
	}
	if page := b.mine(leaky.MineFilter{Client: "acme", Limit: 10}); len(page) != 2 {
		t.Errorf("its list has %d jobs, want 2", len(page))
	}
	for range 3 {
		if _, place := ask("ip:192.0.2.1", "", ""); place.Outcome != leaky.Joined {
			t.Errorf("a caller without a key = %+v", place)
		}
	}
	// And others join that one.
	if _, place := ask("ip:192.0.2.1", "", ""); place.Outcome != leaky.Accepted {
		t.Errorf("the fourth at one address = %+v", place)
	}
	if _, place := ask("acme", "key", ""); place.Outcome != leaky.Joined {
		t.Errorf("with a key = %+v", place)
	}
	b.cancel(first)
	if id, place := ask("bolt", "", ""); place.Outcome != leaky.Joined ||
		b.look(id).Standing.State != jobs.Waiting {
		t.Errorf("another client = %+v", place)
	}
}

// A waiting shared job stands where the first of its callers' own jobs would.
func TestASharedJobStandsWhereItsFirstCallerWould(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.pause(true)
	b.fill("acme", 10)
	sub := b.subscribe("acme", leaky.Accepted)
	if got := b.look(sub).Position; got != 11 {
		t.Fatalf("it stands at %d, want 11", got)
	}
	b.fill("other", 5)
	low := b.joint("other")
	low.Job.Priority, low.Weight = jobs.Low, 1.0/32
	if place := b.offer(low); place.Outcome != leaky.Joined || b.look(sub).Position != 16 {
		t.Errorf("a caller that would stand later moves it: %+v, to %d", place,
			b.look(sub).Position)
	}
	// Tags are 1 to 10 of acme, 1 to 5 of other; with its sixth it stands before acme's sixth, or
	// behind.
	b.subscribe("third", leaky.Joined)
	if got := b.look(sub).Position; got > 3 {
		t.Errorf("a client with nothing in the line shares it: it stands at %d, want 1 to 3", got)
	}
	// The turn was the third's.
	if o := b.job("third"); b.offer(o).Outcome != leaky.Accepted || b.look(o.Job.ID).Position < 4 {
		t.Errorf("its next job stands at %d, as if it had had no turn", b.look(o.Job.ID).Position)
	}
}

// Each subscription has its own permits of concurrency limits, for as long as it lasts.
func TestASubscriptionHoldsItsOwnPermits(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	key := "fb:{" + redistest.Name(t, "s") + "}:limit:jobs:x"
	subscribe := func(client string, want leaky.Outcome) string {
		o := b.joint(client)
		o.Job.Holds = jobs.Holds{Member: o.Job.ID, Keys: []string{key}}
		o.Job.Callback = "https://example.org/"
		b.rdb.ZAdd(t.Context(), key, redis.Z{Score: 1, Member: o.Job.ID})
		if place := b.offer(o); place.Outcome != want {
			t.Fatalf("offer = %+v, want %s", place, want)
		}
		return o.Job.ID
	}
	holds := func(when string, want ...string) {
		t.Helper()
		got := b.rdb.ZRange(t.Context(), key, 0, -1).Val()
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: permits of %q, want %q", when, got, want)
		}
	}
	first, leaves, stays := subscribe("acme", leaky.Accepted), subscribe("other", leaky.Joined),
		subscribe("third", leaky.Joined)
	holds("all wait", first, leaves, stays)
	subscribe("acme", leaky.Again)
	holds("asked again", first, leaves, stays)
	b.cancel(leaves)
	holds("one left", first, stays)
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	b.part(ticket, "me", false)
	b.end(ticket, "me", jobs.Succeeded)
	holds("the first has its answer", stays)
	b.run(jobs.Succeeded)
	holds("all have ended")
}

// part parts the job until it is done, and returns the number of calls.
func (b *bench) part(ticket leaky.Ticket, owner string, private bool) (calls int) {
	b.t.Helper()
	for calls = 1; ; calls++ {
		v, err := b.Part(context.Background(), ticket, owner, private)
		if err != nil || v == leaky.PartForfeited {
			b.t.Fatalf("part = %s, %v", v, err)
		}
		if v == leaky.Parted {
			return calls
		}
	}
}

// An answer for one caller is for the first one. The other subscriptions become jobs of their own,
// with their ids, their webhooks and the payload. None of them can be joined.
func TestSubscriptionsToAPrivateAnswerBecomeJobs(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	first := b.subscribe("acme", leaky.Accepted)
	o := b.joint("other")
	o.Job.Fingerprint, o.Job.Callback, o.Job.Priority, o.Weight = "f", "https://example.org/",
		jobs.High, 4
	b.offer(o)
	third := b.subscribe("third", leaky.Joined)
	b.cancel(first) // so the other is the first
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	if v, err := b.Part(t.Context(), ticket, "other", false); err != nil ||
		v != leaky.PartForfeited || b.look(third).Job.Of == "" {
		t.Errorf("part by another worker = %s, %v", v, err)
	}
	b.accept("acme")
	before := b.look(third)
	for range 2 { // it may be called again
		b.part(ticket, "me", false)
	}
	look := b.look(third)
	if look.Job.Of != "" || look.Job.Shared || look.Standing.State != jobs.Waiting ||
		look.Standing.Version <= before.Standing.Version ||
		!look.Job.CreatedAt.Equal(before.Job.CreatedAt) || look.Position == 0 {
		t.Errorf("the third's is %+v", look)
	}
	if next := b.subscribe("fourth", leaky.Accepted); b.look(next).Job.Of == ticket.ID {
		t.Error("the job can still be joined")
	}
	if v := b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Succeeded,
		Result: jobs.Meta{Status: 200}, Body: []byte("secret")}); v != leaky.Settled {
		t.Fatalf("settle = %s", v)
	}
	if got := b.look(o.Job.ID); got.Standing.State != jobs.Succeeded {
		t.Errorf("the first's is %+v", got)
	}
	if _, err := b.Result(t.Context(), b.look(third).Job.Source()); err == nil {
		t.Error("the third can see the answer")
	}
	if s := b.status(); s.Books.Accepted != 4 || s.Books.Succeeded != 1 || s.Waiting != 3 {
		t.Errorf("%+v", s)
	}
	var own leaky.Ticket
	for seconds := 0; own.ID == ""; seconds++ {
		if seconds == 10 {
			t.Fatal("the third doesn't get its turn")
		}
		b.pass(time.Second)
		for _, ticket := range b.release().Tickets {
			if ticket.ID == third {
				own = ticket
			}
		}
	}
	started := b.begin(own, "me")
	if started.Job.ID != third || string(started.Job.Payload) != `{"n":1}` {
		t.Errorf("what runs is %+v", started.Job)
	}
	b.end(leaky.Ticket{ID: third, Run: 1}, "me", jobs.Succeeded)
	if list := b.mine(leaky.MineFilter{Client: "third", Limit: 10}); len(list) != 1 ||
		list[0].Job.ID != third || list[0].Standing.State != jobs.Succeeded {
		t.Errorf("the third's list has %+v", list)
	}
}

// If the answer is for the client, all of its subscriptions have it. But anonymous callers at one
// address are different ones.
func TestAPrivateAnswerIsOneClients(t *testing.T) {
	t.Parallel()
	for client, stays := range map[string]bool{"acme": true, "ip:192.0.2.1": false} {
		b := newLine(t, nil)
		var ids []string
		for i := range 2 {
			o := b.joint(client)
			o.Job.Fingerprint = fmt.Sprint(i)
			b.offer(o)
			ids = append(ids, o.Job.ID)
		}
		other := b.subscribe("other", leaky.Joined)
		ticket := b.release().Tickets[0]
		b.begin(ticket, "me")
		b.part(ticket, "me", true)
		b.end(ticket, "me", jobs.Succeeded)
		if b.state(ids[0]) != jobs.Succeeded || (b.state(ids[1]) == jobs.Succeeded) != stays ||
			b.state(other) != jobs.Waiting {
			t.Errorf("%s has %s and %s, the other %s", client, b.state(ids[0]), b.state(ids[1]),
				b.state(other))
		}
	}
}

// One script call writes at most 1 MiB of payloads, or a single larger one.
func TestManyLargeSubscriptionsArePartedBitByBit(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	payload := bytes.Repeat([]byte("x"), 400<<10)
	var ids []string
	for i := range 6 {
		o := b.joint(fmt.Sprint("client-", i))
		o.Job.Payload = payload
		b.offer(o)
		ids = append(ids, o.Job.ID)
	}
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	if calls := b.part(ticket, "me", false); calls != 3 { // two, two, and one
		t.Errorf("%d calls", calls)
	}
	for _, id := range ids[1:] {
		if got, err := b.Payload(t.Context(), id); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("%s has %d bytes, %v", id, len(got), err)
		}
	}
}

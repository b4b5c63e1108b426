package leaky_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

// large returns an offer of a job by client that counts with 1000 bytes, with MaxStored most.
func (b *bench) large(client string, most int64) leaky.Offer {
	b.t.Helper()
	o := b.job(client)
	o.MaxStored, o.Job.Payload = most, nil
	n, err := b.Bytes(o)
	if err != nil {
		b.t.Fatal(err)
	}
	o.Job.Payload = bytes.Repeat([]byte("x"), int(1000-n))
	return o
}

// refused offers a job of client with 1000 bytes, which must be refused, and returns its
// Retry-After.
func (b *bench) refused(client string, most int64) time.Duration {
	b.t.Helper()
	place := b.offer(b.large(client, most))
	if place.Outcome != leaky.StoredFull {
		b.t.Fatalf("offer = %+v", place)
	}
	return place.RetryAfter
}

// fits offers a job of client with 1000 bytes, which must be accepted, and returns its id.
func (b *bench) fits(client string, most int64) string {
	b.t.Helper()
	o := b.large(client, most)
	if place := b.offer(o); place.Outcome != leaky.Accepted {
		b.t.Fatalf("offer = %+v", place)
	}
	return o.Job.ID
}

// The bytes of a client's jobs are bounded exactly: of those that wait and run, and of those that
// are kept, with their results. Retry-After is when the kept records will have expired, to the
// microsecond.
func TestTheBytesOfAClientsJobsAreBounded(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	first, second, third := b.fits("acme", 3000), b.fits("acme", 3000), b.fits("acme", 3000)
	if retry := b.refused("acme", 3999); retry != 30*time.Second {
		t.Errorf("while they wait, Retry-After is %v", retry)
	}
	b.fits("other", 1000)
	b.cancel(second) // it is kept for an hour
	b.pass(time.Minute)
	b.run(jobs.Succeeded) // the first: another hour, and 4 bytes
	if look := b.look(first); look.Standing.State != jobs.Succeeded ||
		look.Standing.Result.Size != 4 {
		t.Fatalf("the first is %+v", look.Standing)
	}
	if retry, want := b.refused("acme", 3004), 59*time.Minute-time.Second; retry != want {
		t.Errorf("Retry-After is %v, until the canceled one has gone %v", retry, want)
	}
	if retry, want := b.refused("acme", 2000), time.Hour; retry < want-time.Second || retry > want {
		t.Errorf("Retry-After is %v, until both have gone %v", retry, want)
	}
	if retry := b.refused("acme", 1999); retry != 30*time.Second {
		t.Errorf("where one that waits must go first, Retry-After is %v", retry)
	}
	b.pass(59*time.Minute - time.Second - time.Microsecond)
	if retry := b.refused("acme", 3004); retry != time.Microsecond {
		t.Errorf("Retry-After is %v, a microsecond before", retry)
	}
	b.pass(time.Microsecond)
	b.refused("acme", 3003) // 1004 and 1000, and this one
	b.fits("acme", 3004)
	b.purge(first)
	fourth := b.fits("acme", 3000)
	b.refused("acme", 3999)
	b.cancel(third)
	b.cancel(fourth)
	b.refused("acme", 3999)
	b.purge(third)
	b.purge(fourth)
	b.fits("acme", 2000)
	if place := b.offer(b.large("acme", 0)); place.Outcome != leaky.Accepted {
		t.Errorf("without a bound: %+v", place)
	}
	b.fits("acme", 3000) // the one without isn't counted
}

// The line's own refusals take precedence. Retry-After is the longest of all.
func TestARefusalHasTheLongestRetryAfter(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Capacity = 2 })
	b.cancel(b.fits("acme", 1<<20))
	b.fill("other", 2)
	place := b.offer(b.large("acme", 1999))
	if place.Outcome != leaky.LineFull || place.RetryAfter != time.Hour {
		t.Errorf("offer = %+v", place)
	}
	b.pause(true)
	if place = b.offer(b.large("acme", 1999)); place.Outcome != leaky.LineFull ||
		place.RetryAfter != time.Hour {
		t.Errorf("while paused, offer = %+v", place)
	}
}

// A result is always stored, and counts. Jobs in one script call count for each other.
func TestAResultIsCountedAndNotRefused(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	id := b.fits("acme", 1000)
	b.pass(time.Second)
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	result := []byte(strings.Repeat("y", 5000))
	s := leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Succeeded,
		Result: jobs.Meta{Status: 200}, Body: result}
	for range 2 { // it is idempotent
		if v := b.settle(s); v != leaky.Settled {
			t.Fatalf("settle = %s", v)
		}
	}
	if got, err := b.Result(t.Context(), id); err != nil || !bytes.Equal(got, result) {
		t.Fatalf("a result of %d bytes, %v", len(got), err)
	}
	offers := []leaky.Offer{b.large("acme", 8000), b.large("acme", 8000), b.large("acme", 8000)}
	places, err := b.OfferAll(t.Context(), offers)
	if err != nil || places[0].Outcome != leaky.Accepted || places[1].Outcome != leaky.Accepted ||
		places[2].Outcome != leaky.StoredFull {
		t.Errorf("offers = %+v, %v", places, err)
	}
	b.refused("acme", 8999)
}

// A failed job counts as long as it is listed. A redriven one counts like a waiting job, without
// its old answer, even if there is no room.
func TestARedrivenJobIsCountedAsOneThatWaits(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	id := b.fits("acme", 1000)
	b.failed(b.begun(), "x") // with an answer
	if retry := b.refused("acme", 1999); retry != 24*time.Hour {
		t.Errorf("Retry-After is %v", retry)
	}
	size := b.look(id).Standing.Result.Size
	if size == 0 {
		t.Fatal("it failed without an answer")
	}
	b.refused("acme", 1999+size)
	if got := b.redrive(id); got != leaky.Redriven {
		t.Fatalf("redrive = %s", got)
	}
	if retry := b.refused("acme", 1999); retry != 30*time.Second {
		t.Errorf("Retry-After is %v", retry)
	}
	b.fits("acme", 2000)
}

// A shared job counts for its first caller, with its result, until the last caller has purged it. A
// subscription that becomes a job of its own then counts for its own client.
func TestASharedJobCountsForTheFirstOfItsCallers(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	shared := func(client string, want leaky.Outcome) string {
		t.Helper()
		o := b.large(client, 1000)
		o.Join = "0123456789abcdef0123456789abcdef"
		if place := b.offer(o); place.Outcome != want {
			t.Fatalf("offer = %+v, want %s", place, want)
		}
		return o.Job.ID
	}
	mine, others := shared("acme", leaky.Accepted), shared("other", leaky.Joined)
	b.refused("acme", 1999)
	b.fits("other", 1000)
	b.run(jobs.Succeeded)
	b.purge(mine)
	b.refused("acme", 2003)
	b.fits("acme", 2004)
	b.purge(others)
	b.fits("acme", 2000)

	b = newLine(t, nil)
	shared("acme", leaky.Accepted)
	others = shared("other", leaky.Joined)
	b.pass(time.Second)
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	b.part(ticket, "me", true)
	b.refused("other", 1999)
	b.cancel(others)
	b.purge(others)
	b.fits("other", 1000)
}

// A record that expires, by Redis's own clock, doesn't count any more, and the key of the count
// expires with the last one.
func TestExpiredJobsDoNotCount(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	s := leaky.Settings{
		Backend:  redistest.Name(t, "b"),
		Drain:    leaky.Drain{Rate: leaky.Unlimited, Burst: 1, Concurrency: 10},
		Room:     leaky.Room{Capacity: 100, MaxWait: time.Hour, ClientShare: 1},
		Attempts: 3,
	}
	b := &bench{Line: leaky.New(rdb, s), t: t, rdb: rdb, now: time.Now()}
	t.Cleanup(func() { redistest.CheckBooks(t, rdb, s.Backend) })
	o := b.large("acme", 1000)
	o.Keep = 300 * time.Millisecond
	b.offer(o)
	b.cancel(o.Job.ID)
	if retry := b.refused("acme", 1000); retry > o.Keep {
		t.Errorf("Retry-After is %v", retry)
	}
	record := jobs.RecordKey(s.Backend, o.Job.ID)
	kept := jobs.KeyPrefix(s.Backend) + "kept:" + leaky.ClientTag("acme")
	for end := time.Now().Add(10 * time.Second); rdb.Exists(t.Context(), record, kept).Val() > 0; {
		if time.Now().After(end) {
			t.Fatal("what is kept is kept for ever")
		}
		time.Sleep(time.Millisecond)
	}
	b.fits("acme", 1000)
}

// However many of a client's jobs have expired since its last offer, each call subtracts a bounded
// part of them and returns the next moment to come.
func TestManyExpiredJobsAreSubtractedInParts(t *testing.T) {
	t.Parallel()
	b := newUnchecked(t, ownServer(t), func(s *leaky.Settings) {
		s.Capacity, s.Rate = 5000, leaky.Unlimited
	})
	ids := b.fill("acme", 2500)
	for _, id := range ids {
		b.cancel(id)
	}
	n, err := b.Bytes(b.job("acme"))
	if err != nil {
		t.Fatal(err)
	}
	if retry := b.refused("acme", 1000); retry != time.Hour {
		t.Errorf("Retry-After is %v", retry)
	}
	b.pass(time.Hour)
	for left := int64(1500); left > 0; left -= 1000 {
		if retry := b.refused("acme", left*n); retry != time.Microsecond {
			t.Errorf("with %d left, Retry-After is %v", left, retry)
		}
	}
	b.fits("acme", 1000)
}

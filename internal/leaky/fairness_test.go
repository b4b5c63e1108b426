package leaky_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// One client has 10,000 jobs waiting, twenty others of two tiers have enough jobs, and one has a
// single low job. Each of the twenty gets its share by weight, within 5 %. The flood gets no more
// than another client of its tier, and the low job gets its turn.
func TestACrowdSharesTheDrainByWeightBesideAFlood(t *testing.T) {
	t.Parallel()
	b := newLineOn(t, ownServer(t), func(s *leaky.Settings) {
		s.Rate, s.Capacity = rate(t, "100/s"), 20_000
	})
	b.fill("flood", 10_000)
	for range 65 {
		var round []leaky.Offer
		for i := range 10 {
			light, heavy := b.job(fmt.Sprint("light-", i)), b.job(fmt.Sprint("heavy-", i))
			heavy.Weight = 3
			round = append(round, light, heavy)
		}
		if _, err := b.OfferAll(context.Background(), round); err != nil {
			t.Fatal(err)
		}
	}
	low := b.prioritized("patient", jobs.Low)
	b.offer(low)

	const each = 11 + 3*10 // slots per job of a client of weight 1
	const turns = 20
	d := b.drainer(0)
	for len(d.starts) < turns*each+1 {
		d.run(time.Second)
	}
	served := d.clients()[:turns*each+1]
	within := func(client string, want int) {
		t.Helper()
		if got := count(served, client); 100*max(got-want, want-got) > 5*want {
			t.Errorf("%s was served %d times in %d slots, want %d within 5 %%", client, got,
				len(served), want)
		}
	}
	within("flood", turns)
	for i := range 10 {
		within(fmt.Sprint("light-", i), turns)
		within(fmt.Sprint("heavy-", i), 3*turns)
	}
	// Its weight is a quarter, so it is as far back as the fourth job of a light client.
	if place := slices.Index(d.ids(), low.Job.ID); place < 0 || place > 4*each+1 {
		t.Errorf("the low job was start %d, want one among the first %d", place, 4*each+1)
	}
}

// With 10,000 jobs of one client waiting, and long calls that keep the line at its concurrency, ten
// jobs of a new client that come while it drains all start within the next 25 slots; so do those of
// a second one.
func TestANewClientsTenJobsStartWithinTwentyFiveSlots(t *testing.T) {
	t.Parallel()
	b := newLineOn(t, ownServer(t), func(s *leaky.Settings) {
		s.Concurrency, s.Capacity = 8, 20_000
	})
	b.fill("flood", 10_000)
	d := b.drainer(900 * time.Millisecond)
	for _, newcomer := range []string{"first", "second"} {
		d.run(2 * time.Second)
		before := len(d.starts)
		b.fill(newcomer, 10)
		for len(d.starts) < before+25 {
			d.run(100 * time.Millisecond)
		}
		if n := count(d.clients()[before:before+25], newcomer); n != 10 {
			t.Errorf("of the next 25 slots %d went to the %s new client's 10 jobs", n, newcomer)
		}
	}
}

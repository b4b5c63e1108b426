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

func TestOneClientIsServedFirstInFirstOut(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	ids := b.fill("acme", 30)
	d := b.drainer(0)
	d.empty()
	if !slices.Equal(d.ids(), ids) {
		t.Errorf("started in order %v, offered in order %v", d.ids(), ids)
	}
}

// With 10,000 jobs of one client waiting, ten of a new one are served in turn.
func TestAFloodOfOneClientDelaysAnothersJobByAboutOneJob(t *testing.T) {
	t.Parallel()
	b := newLineOn(t, ownServer(t), func(s *leaky.Settings) { s.Capacity = 20_000 })
	b.fill("flood", 10_000)
	d := b.drainer(0)
	d.run(500 * time.Millisecond)
	before := len(d.starts)
	for i := range 10 {
		p := b.offer(b.job("late"))
		if want := int64(2*i + 2); p.Position != want {
			t.Errorf("job %d of the new client is at position %d, want %d", i, p.Position, want)
		}
	}
	d.run(2500 * time.Millisecond)
	served := d.clients()[before:]
	if n := count(served[:21], "late"); n != 10 {
		t.Errorf("of the next 21 slots %d went to the new client's 10 jobs: %v", n, served[:21])
	}
}

func count(all []string, one string) int {
	n := 0
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

func TestClientsShareTheDrainByTheirWeights(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Capacity = 1000 })
	for range 200 {
		light, heavy := b.job("light"), b.job("heavy")
		heavy.Weight = 3
		b.offer(light)
		b.offer(heavy)
	}
	d := b.drainer(0)
	for len(d.starts) < 200 {
		d.run(time.Second)
	}
	for n := 20; n <= 200; n += 20 {
		if light := count(d.clients()[:n], "light"); light < n/4-1 || light > n/4+1 {
			t.Errorf("of the first %d slots the client of weight 1 got %d, the one of weight 3 "+
				"the rest", n, light)
		}
	}
}

// Case C73: Within one backend a high job starts next, and a low one still moves.
func TestPrioritiesOrderButDoNotStarve(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Capacity = 1000 })
	b.fill("acme", 50)
	high := b.prioritized("acme", jobs.High)
	if p := b.offer(high); p.Position != 1 {
		t.Errorf("a high job behind 50 normal ones of its client is at position %d, want 1",
			p.Position)
	}
	low := b.prioritized("acme", jobs.Low)
	b.offer(low)
	d := b.drainer(0)
	for range 200 { // high jobs come faster than the drain
		b.offer(b.prioritized("acme", jobs.High))
		b.offer(b.prioritized("acme", jobs.High))
		d.run(100 * time.Millisecond)
		if slices.Contains(d.ids(), low.Job.ID) {
			break
		}
	}
	if d.ids()[0] != high.Job.ID {
		t.Errorf("the high job was start %d", slices.Index(d.ids(), high.Job.ID))
	}
	if place := slices.Index(d.ids(), low.Job.ID); place < 10 || place > 60 {
		t.Errorf("under a constant load of high jobs the low one was start %d, want one among "+
			"the first 60", place)
	}
}

func (b *bench) prioritized(client string, p jobs.Priority) leaky.Offer {
	o := b.job(client)
	o.Job.Priority, o.Weight = p, p.Weight()
	return o
}

func TestAnIdleClientSavesUpNoTurns(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.fill("idle", 1)
	b.fill("busy", 60)
	d := b.drainer(0)
	d.run(4 * time.Second)
	b.fill("idle", 10)
	before := len(d.starts)
	d.run(1500 * time.Millisecond)
	if n := count(d.clients()[before:before+10], "idle"); n < 4 || n > 6 {
		t.Errorf("after 4 s without jobs the client got %d of the next 10 slots, want half", n)
	}
}

func TestARetryIsAtTheHeadAgain(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	ids := b.fill("acme", 20)
	b.offer(b.prioritized("acme", jobs.High))
	d := b.drainer(0)
	d.outcome = func(s leaky.Started) leaky.Settlement {
		if s.Job.ID == ids[0] && s.Attempt == 1 {
			return leaky.Settlement{To: jobs.Delayed, Delay: time.Second}
		}
		return leaky.Settlement{To: jobs.Succeeded}
	}
	d.empty()
	var at []time.Duration
	for _, s := range d.starts {
		if s.Job.ID == ids[0] {
			at = append(at, time.Duration(s.at-d.starts[0].at)*time.Microsecond)
		}
	}
	// Started at 0.1 s behind the high one, back at 1.1 s, and then next: within a slot and a
	// horizon.
	if len(at) != 2 || at[1] < 1100*time.Millisecond || at[1] > 1250*time.Millisecond {
		t.Errorf("the job started at %v, want 100ms and about 1.1s", at)
	}
}

func TestStateOfIdleClientsIsDropped(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate, s.Capacity = leaky.Unlimited, 1000 })
	for i := range 500 {
		b.accept(fmt.Sprintf("client-%d", i))
	}
	d := b.drainer(0)
	d.empty()
	for range 3 { // at most 200 a call
		b.release()
	}
	keys := b.rdb.Exists(context.Background(), jobs.KeyPrefix(b.Settings().Backend)+"flows",
		jobs.KeyPrefix(b.Settings().Backend)+"share")
	if n, err := keys.Result(); n != 0 || err != nil {
		t.Errorf("%d of flows and share are left of 500 clients that have nothing waiting, %v", n,
			err)
	}
}

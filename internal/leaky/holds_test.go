package leaky_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

// However a job ends, its permits of concurrency limits are returned with its end, in the same
// step, and not before.
func TestAJobsPermitsAreReturnedWithItsEnd(t *testing.T) {
	t.Parallel()
	end := func(to jobs.State) func(*bench) {
		return func(b *bench) {
			ticket := b.release().Tickets[0]
			b.begin(ticket, "me")
			b.end(ticket, "me", to)
		}
	}
	for name, c := range map[string]struct {
		bring func(*bench)
		held  bool
	}{
		"waiting":              {func(*bench) {}, true},
		"released":             {func(b *bench) { b.release() }, true},
		"running":              {func(b *bench) { b.begin(b.release().Tickets[0], "me") }, true},
		"delayed":              {end(jobs.Delayed), true},
		"back in line":         {end(jobs.Waiting), true},
		"succeeded":            {end(jobs.Succeeded), false},
		"failed":               {end(jobs.Failed), false},
		"canceled in line":     {func(b *bench) { b.cancel(b.only) }, false},
		"canceled in flight":   {func(b *bench) { b.release(); b.cancel(b.only) }, false},
		"past start_within":    {func(b *bench) { b.pass(2 * time.Hour); b.release() }, false},
		"its workers are lost": {func(b *bench) { b.lose(b.Settings().Attempts) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, rdb := newLine(t, nil), redistest.Client(t)
			o := b.job("acme")
			o.StartWithin = time.Hour
			b.only = o.Job.ID
			o.Job.Holds = jobs.Holds{Member: o.Job.ID + "~1f"}
			for _, limit := range []string{"jobs", "reports"} {
				key := "fb:{" + redistest.Name(t, "s") + "}:limit:" + limit + ":x"
				o.Job.Holds.Keys = append(o.Job.Holds.Keys, key)
				// The permit of a duplicate request is its own.
				for _, member := range []string{o.Job.Holds.Member, o.Job.ID, "another"} {
					rdb.ZAdd(t.Context(), key, redis.Z{Score: 1, Member: member})
				}
			}
			b.offer(o)
			c.bring(b)
			for _, key := range o.Job.Holds.Keys {
				members := rdb.ZRange(t.Context(), key, 0, -1).Val()
				if held := slices.Contains(members, o.Job.Holds.Member); held != c.held ||
					!slices.Contains(members, "another") || !slices.Contains(members, o.Job.ID) {
					t.Errorf("%s: permits of %q; its own is held: %v, want %v", name, members, held,
						c.held)
				}
			}
			if look := b.look(b.only); !slices.Equal(look.Job.Holds.Keys, o.Job.Holds.Keys) {
				t.Errorf("look = %+v", look.Job)
			}
		})
	}
}

// lose makes as many workers start the job and die.
func (b *bench) lose(workers int) {
	for range workers {
		b.begin(b.release().Tickets[0], "dies")
		b.pass(leaky.Lease + time.Second)
	}
	b.release()
}

package leaky_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// Case C99.
//
// Ids have no order, but the line has. Clients whose turns are equal go in the order in which their
// jobs came, and each gets its true position: in one script call or in many, and after a redrive.
func TestEqualTurnsGoInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate = leaky.Unlimited })
	b.pause(true)
	var want []string
	for n := range 60 {
		job := b.job(fmt.Sprint("client-", n))
		if n%3 == 1 {
			job = b.prioritized(fmt.Sprint("client-", n), jobs.High)
		}
		want = append(want, job.Job.ID)
		b.offer(job)
	}
	// High ones come before the others, each kind in order of arrival.
	var high, normal []string
	for n, id := range want {
		if n%3 == 1 {
			high = append(high, id)
		} else {
			normal = append(normal, id)
		}
	}
	want = append(high, normal...)
	for n, id := range want {
		if look := b.look(id); look.Position != int64(n+1) {
			t.Fatalf("job %d has position %d", n+1, look.Position)
		}
	}
	b.pause(false)
	d := b.drainer(0)
	d.empty()
	if !slices.Equal(d.ids(), want) {
		t.Errorf("they started as\n%v, want\n%v", d.ids(), want)
	}
}

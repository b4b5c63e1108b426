package leaky_test

import (
	"math"
	"slices"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// drain is a worker process on the test's clock: it calls Release when the line asks for it, starts
// the granted jobs and ends each call after took.
type drain struct {
	*bench
	took    time.Duration
	poll    time.Duration // the longest time without a release
	starts  []start
	calls   []call // under way, in order of their ends
	askAt   time.Time
	reason  string
	outcome func(leaky.Started) leaky.Settlement // nil: every call succeeds
}

type start struct {
	leaky.Started
	at int64 // µs
}

type call struct {
	leaky.Ticket
	leaky.Started
	ends time.Time
}

// drainer returns a drain whose calls take that long.
func (b *bench) drainer(took time.Duration) *drain {
	return &drain{bench: b, took: took, poll: 250 * time.Millisecond, askAt: b.now}
}

// until works until the clock is at end.
func (d *drain) until(end time.Time) {
	d.t.Helper()
	for {
		next := d.askAt
		if len(d.calls) > 0 && d.calls[0].ends.Before(next) {
			next = d.calls[0].ends
		}
		if next.After(end) {
			d.now = end
			return
		}
		if next.After(d.now) {
			d.now = next
		}
		if len(d.calls) > 0 && !d.calls[0].ends.After(d.now) {
			d.finish()
		} else {
			d.ask()
		}
	}
}

func (d *drain) run(length time.Duration) { d.t.Helper(); d.until(d.now.Add(length)) }

// empty works until the line is empty and all calls have ended.
func (d *drain) empty() {
	d.t.Helper()
	for range 100_000 {
		if d.reason == leaky.OnIdle && len(d.calls) == 0 && d.status().Delayed == 0 {
			return
		}
		next := d.askAt
		if len(d.calls) > 0 && d.calls[0].ends.Before(next) {
			next = d.calls[0].ends
		}
		d.until(next)
	}
	d.t.Fatal("the line does not get empty")
}

// ask takes the tickets that the line grants. Every start comes 5 ms before its due time, or at
// once.
func (d *drain) ask() {
	d.t.Helper()
	r := d.release()
	d.reason = r.Reason
	d.askAt = d.now.Add(min(r.Wait, d.poll))
	for _, ticket := range r.Tickets {
		s := d.start(ticket, "drain")
		if s.Outcome != leaky.Go {
			continue
		}
		at := max(s.Due, d.now.UnixMicro())
		d.starts = append(d.starts, start{s, at})
		d.calls = append(d.calls, call{ticket, s, time.UnixMicro(at).Add(d.took)})
	}
	slices.SortStableFunc(d.calls, func(a, b call) int { return a.ends.Compare(b.ends) })
}

func (d *drain) finish() {
	d.t.Helper()
	c := d.calls[0]
	d.calls = d.calls[1:]
	s := leaky.Settlement{To: jobs.Succeeded}
	if d.outcome != nil {
		s = d.outcome(c.Started)
	}
	s.Ticket, s.Owner, s.Took = c.Ticket, "drain", d.took
	if v := d.settle(s); v != leaky.Settled {
		d.t.Fatalf("settle of %s = %s", c.ID, v)
	}
	if d.reason == leaky.OnConcurrency {
		d.askAt = d.now // the wake-up
	}
}

// ids returns the jobs in the order of their starts.
func (d *drain) ids() []string {
	var ids []string
	for _, s := range d.starts {
		ids = append(ids, s.Job.ID)
	}
	return ids
}

// clients returns the clients of the jobs in the order of their starts.
func (d *drain) clients() []string {
	var clients []string
	for _, s := range d.starts {
		clients = append(clients, s.Job.Client)
	}
	return clients
}

// checkWindows fails if any window of the starts exceeds the bound: rate × w + burst, where a start
// may come up to slack after its slot.
func (b *bench) checkWindows(starts []int64, r leaky.Rate, burst int, slack time.Duration) {
	b.t.Helper()
	slices.Sort(starts)
	for i := range starts {
		for j := i + burst; j < len(starts); j++ {
			// Due times are rounded to µs.
			w := float64(starts[j]-starts[i]+slack.Microseconds()) + 1
			if allowed := math.Floor(w/r.Interval()) + float64(burst); float64(j-i+1) > allowed {
				b.t.Fatalf("%d starts within %.0f µs at %s, burst %d; at most %.0f are allowed",
					j-i+1, w, r, burst, allowed)
			}
		}
	}
}

// times returns the times of the starts, µs.
func (d *drain) times() []int64 {
	var out []int64
	for _, s := range d.starts {
		out = append(out, s.at)
	}
	return out
}

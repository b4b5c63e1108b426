package limits

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/redistest"
)

// world knows what became of jobs.
type world struct {
	mu    sync.Mutex
	jobs  map[string]Fate // guarded by mu
	asked int             // guarded by mu
}

func (w *world) fate(_ context.Context, job string) (Fate, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	return w.jobs[job], nil
}

func (w *world) set(job string, f Fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jobs == nil {
		w.jobs = map[string]Fate{}
	}
	w.jobs[job] = f
}

// tending returns a Limiter that asks w, and a limit of so many jobs at one time.
func tending(t *testing.T, c *clock, amount int64) (*Limiter, *world, *Rule) {
	t.Helper()
	rdb, w := redistest.Client(t), &world{}
	l := c.onRedis(rdb)
	l.Tend(rdb, w.fate)
	return l, w, compile(t, Limit{Algorithm: Concurrency, Amount: amount})
}

// rested lets every key be tended again, as if the rest since the last time were over.
func (p *permits) rested() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.next)
}

func takePermit(t *testing.T, l *Limiter, r *Rule, job string) Verdict {
	t.Helper()
	q := request(1, r)
	q.Job = job
	return decide(t, l, q)
}

// A job that has ended unheard of frees its place for the next one, at once.
func TestAPlaceWhoseJobHasEndedIsFree(t *testing.T) {
	t.Parallel()
	c := newClock()
	l, w, r := tending(t, c, 2)
	for _, job := range []string{"a", "b~twin"} {
		if v := takePermit(t, l, r, job); !v.Allowed || v.Holds().Member != job || len(v.Holds().Keys) != 1 {
			t.Fatalf("%s: %+v holds %+v", job, v, v.Holds())
		}
	}
	w.set("a", Fate{Known: true, Wait: 7 * time.Second})
	w.set("b", Fate{Known: true, Wait: 3 * time.Second})
	if v := takePermit(t, l, r, "c"); v.Allowed || v.Reason != r.limit.Name || v.RetryAfter != 3*time.Second {
		t.Fatalf("a third job of two: %+v, want a refusal until the first of them is predicted to end", v)
	}
	w.set("b", Fate{Known: true, Ended: true})
	l.permits.rested()
	if !takePermit(t, l, r, "c").Allowed {
		t.Error("the place of a job that has ended isn't free")
	}
	w.set("c", Fate{Known: true})
	if v := takePermit(t, l, r, "d"); v.Allowed {
		t.Error("a place was given twice")
	}
}

// A process may die between the charge and the job's record: the place outlives that by a lease, not longer, and not less,
// for the record may be on its way.
func TestAPlaceWithoutAJobLastsALease(t *testing.T) {
	t.Parallel()
	c := newClock()
	l, _, r := tending(t, c, 1)
	takePermit(t, l, r, "lost")
	c.pass(permitLease - time.Microsecond)
	if takePermit(t, l, r, "next").Allowed {
		t.Fatal("a place was taken from a job that may be on its way")
	}
	c.pass(time.Microsecond)
	l.permits.rested()
	if !takePermit(t, l, r, "next").Allowed {
		t.Error("a place outlives its lease")
	}
}

// A flood of refused requests asks about the jobs ten times a second at most, and once where that frees nothing.
func TestARefusedFloodDoesNotAskForEver(t *testing.T) {
	t.Parallel()
	c := newClock()
	l, w, r := tending(t, c, 1)
	takePermit(t, l, r, "one")
	w.set("one", Fate{Known: true})
	began := time.Now()
	for range 300 {
		if takePermit(t, l, r, "more").Allowed {
			t.Fatal("two jobs of one")
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if most := 1 + int(time.Since(began)/tendAgain); w.asked > most {
		t.Errorf("asked %d times in %v, want at most %d", w.asked, time.Since(began), most)
	}
}

// Keys of places have a TTL that is longer than any job lives, and names that tell nothing of a client.
func TestPlacesAreBounded(t *testing.T) {
	t.Parallel()
	c := newClock()
	l, _, r := tending(t, c, 1)
	v := takePermit(t, l, r, "one")
	if ttl := redistest.Client(t).PTTL(t.Context(), v.Holds().Keys[0]).Val(); ttl < 31*24*time.Hour || ttl > 33*24*time.Hour {
		t.Errorf("TTL %v", ttl)
	}
	if strings.Contains(v.charge.questions[0].keys[0], "alice") {
		t.Error("a key tells who it is for")
	}
}

// within waits for a condition that comes about by itself.
func within(t *testing.T, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never came about")
		}
	}
}

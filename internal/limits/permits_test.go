package limits

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/redistest"
)

// world has the fates of jobs, which a test sets.
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

// tending returns a Limiter that looks jobs up in a world, that world, and a limit of so many jobs
// at one time.
func tending(t *testing.T, c *clock, amount int64) (*Limiter, *world, *Rule) {
	t.Helper()
	rdb, w := redistest.Client(t), &world{}
	l := c.onRedis(rdb)
	l.Tend(rdb, w.fate)
	return l, w, compile(t, Limit{Algorithm: Concurrency, Amount: amount})
}

// rested makes every key due again, as if enough time had passed.
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

// A permit of a job that has ended without giving it back is free for the next job at once.
func TestAPermitWhoseJobHasEndedIsFree(t *testing.T) {
	t.Parallel()
	c := newClock()
	l, w, r := tending(t, c, 2)
	for _, job := range []string{"a", "b~1f"} {
		if v := takePermit(t, l, r, job); !v.Allowed || v.Holds().Member != job ||
			len(v.Holds().Keys) != 1 {
			t.Fatalf("%s: %+v holds %+v", job, v, v.Holds())
		}
	}
	w.set("a", Fate{Known: true, Wait: 7 * time.Second})
	w.set("b", Fate{Known: true, Wait: 3 * time.Second})
	if v := takePermit(t, l, r, "c"); v.Allowed || v.Reason != r.limit.Name ||
		v.RetryAfter != 3*time.Second {
		t.Fatalf("a third job of two: %+v, want a refusal until the first predicted end", v)
	}
	w.set("b", Fate{Known: true, Ended: true})
	l.permits.rested()
	if !takePermit(t, l, r, "c").Allowed {
		t.Error("the permit of a job that has ended isn't free")
	}
	w.set("c", Fate{Known: true})
	if v := takePermit(t, l, r, "d"); v.Allowed {
		t.Error("a permit was given twice")
	}
}

// A permit without a job on record stays taken for exactly a lease: the record may be about to be
// written, or its process may have died after the charge.
func TestAPermitWithoutAJobLastsALease(t *testing.T) {
	t.Parallel()
	c := newClock()
	l, _, r := tending(t, c, 1)
	takePermit(t, l, r, "missing")
	c.pass(permitLease - time.Microsecond)
	if takePermit(t, l, r, "next").Allowed {
		t.Fatal("a permit was taken from a job whose record may be about to be written")
	}
	c.pass(time.Microsecond)
	l.permits.rested()
	if !takePermit(t, l, r, "next").Allowed {
		t.Error("a permit outlives its lease")
	}
}

// A flood of refused requests looks the jobs up ten times a second at most, and once a second if no
// permit is freed.
func TestAFloodOfRefusalsSeldomLooksJobsUp(t *testing.T) {
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
		t.Errorf("looked up %d times in %v, want at most %d", w.asked, time.Since(began), most)
	}
}

// Keys of permits have a TTL that is longer than any job lives, and names that reveal nothing of a
// client.
func TestPermitsAreBounded(t *testing.T) {
	t.Parallel()
	c := newClock()
	l, _, r := tending(t, c, 1)
	v := takePermit(t, l, r, "one")
	ttl := redistest.Client(t).PTTL(t.Context(), v.Holds().Keys[0]).Val()
	if ttl < 31*24*time.Hour || ttl > 33*24*time.Hour {
		t.Errorf("TTL %v", ttl)
	}
	if strings.Contains(v.charge.questions[0].keys[0], "alice") {
		t.Error("a key reveals its client")
	}
}

// within waits for a condition.
func within(t *testing.T, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the condition was never met")
		}
	}
}

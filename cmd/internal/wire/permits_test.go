package wire_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
)

// permits is a limit of 10 jobs at one time, and the line of a backend whose jobs are under it.
type permits struct {
	*limits.Limiter
	t    *testing.T
	rdb  redis.UniversalClient
	line *leaky.Line
	rule *limits.Rule
}

func newPermits(t *testing.T, rdb redis.UniversalClient, cluster bool) *permits {
	t.Helper()
	backend := redistest.Name(t, "b")
	rate, err := leaky.ParseRate("100/s")
	if err != nil {
		t.Fatal(err)
	}
	rule, err := limits.Compile(limits.Limit{Name: "jobs", Owner: backend,
		Algorithm: limits.Concurrency, Per: limits.PerClient, Amount: 10})
	if err != nil {
		t.Fatal(err)
	}
	p := &permits{Limiter: limits.New(rdb, cluster), t: t, rdb: rdb, rule: rule}
	p.line = leaky.New(rdb, leaky.Settings{
		Backend:    backend,
		Drain:      leaky.Drain{Rate: rate, Burst: 1, Concurrency: 10},
		Room:       leaky.Room{Capacity: 100, MaxWait: time.Hour, ClientShare: 1},
		Attempts:   3,
		KeepFailed: time.Hour,
	})
	if !cluster {
		p.line.Limited(limits.Script{})
	}
	t.Cleanup(func() { redistest.CheckBooks(t, rdb, backend) })
	return p
}

// charge takes a permit for a new job, as for one with an Idempotency-Key, and returns the job with
// its permits.
func (p *permits) charge() (jobs.Job, limits.Verdict) {
	p.t.Helper()
	id := jobs.NewID(p.line.Settings().Backend)
	v, err := p.Decide(p.t.Context(), p.request(id+"~x1"))
	if err != nil || !v.Allowed || len(v.Holds().Keys) != 1 {
		p.t.Fatalf("%+v, %v", v, err)
	}
	return jobs.Job{ID: id, Operation: "o", Client: "acme", Priority: jobs.Normal,
		Holds: v.Holds()}, v
}

func (p *permits) request(holder string) limits.Request {
	return limits.Request{Rules: []*limits.Rule{p.rule},
		Subject: limits.Subject{Client: p.line.Settings().Backend}, Cost: 1, Job: holder}
}

func (p *permits) offer(j jobs.Job) {
	p.t.Helper()
	place, err := p.line.Offer(p.t.Context(),
		leaky.Offer{Job: j, Weight: 1, MaxAge: time.Hour, Keep: time.Hour})
	if err != nil || place.Outcome != leaky.Accepted {
		p.t.Fatalf("%+v, %v", place, err)
	}
}

// pass makes what is noted as open older.
func (p *permits) pass(d time.Duration) {
	p.t.Helper()
	key := jobs.PermitsKey(p.line.Settings().Backend)
	for _, entry := range p.rdb.ZRangeWithScores(p.t.Context(), key, 0, -1).Val() {
		if entry.Score > 0 {
			p.rdb.ZIncrBy(p.t.Context(), key, -float64(d.Microseconds()), entry.Member.(string))
		}
	}
}

func (p *permits) returned(orphans int64) {
	p.t.Helper()
	if n, more, err := p.line.ReturnPermits(p.t.Context()); n != orphans || more || err != nil {
		p.t.Errorf("%d permits of no job were found (more: %v), want %d: %v", n, more, orphans, err)
	}
}

func (p *permits) taken(want int64) {
	p.t.Helper()
	v, err := p.Peek(p.t.Context(), p.request(""))
	if err != nil {
		p.t.Fatal(err)
	}
	if n := 10 - v.Standings[0].Remaining; n != want {
		p.t.Errorf("%d permits are taken, want %d", n, want)
	}
}

func (p *permits) open(want int64) {
	p.t.Helper()
	if n := p.rdb.ZCard(p.t.Context(),
		jobs.PermitsKey(p.line.Settings().Backend)).Val(); n != want {
		p.t.Errorf("%d permits are noted as open, want %d", n, want)
	}
}

// On one server, one script takes a permit and writes the job's record, so no permit is ever open.
func TestPermits(t *testing.T) {
	t.Parallel()
	along(t, newPermits(t, redistest.Client(t), false))
}

// A cluster takes seconds to start, so all tests that need one share it.
func TestPermitsOnACluster(t *testing.T) {
	t.Parallel()
	rdb, _ := redistest.StartCluster(t)
	for name, promise := range map[string]func(t *testing.T, p *permits){
		"without a job come back":                withoutAJob,
		"come back where the clock steps":        clockSteps,
		"refused or refunded leave nothing open": refused,
		"of the wrong type stop nothing":         wrongType,
		"are taken with the job or not at all":   along,
	} {
		t.Run(name, func(t *testing.T) { promise(t, newPermits(t, rdb, true)) })
	}
}

// An api that dies between a charge and its job, or whose refund is lost, leaves a permit that
// belongs to no job: it is returned by itself, even if no request finds the limit full. A job's own
// permit stays for as long as the job lives, however long that is, and is returned with its end.
func withoutAJob(t *testing.T, p *permits) {
	alive, _ := p.charge()
	p.offer(alive)
	p.charge() // dies before the offer
	p.charge() // is found to be a duplicate of alive, and its refund is lost
	young, _ := p.charge()
	p.taken(4)
	p.open(3)
	p.returned(0) // their offers may be on their way
	p.taken(4)
	p.pass(leaky.PermitLease)
	p.offer(young)
	p.returned(2)
	p.taken(2)
	p.open(0)

	p.pass(24 * time.Hour)
	p.returned(0)
	p.taken(2)
	if _, err := p.line.Cancel(t.Context(), alive.ID); err != nil {
		t.Fatal(err)
	}
	p.returned(0)
	p.taken(1)
	p.open(0)
}

// submit requests a job as a front does, and returns the line's outcome and how many of the limit's
// permits the verdict leaves.
func (p *permits) submit(id string) (leaky.Outcome, int64) {
	p.t.Helper()
	var place leaky.Place
	v, err := p.Along(p.t.Context(), p.request(id),
		func(part *limits.Part) (_ limits.Ending, err error) {
			job := jobs.Job{ID: id, Operation: "o", Client: "acme", Priority: jobs.Normal,
				Holds: part.Holds(), Fingerprint: "f"}
			place, err = p.line.Offer(p.t.Context(),
				leaky.Offer{Job: job, Weight: 1, MaxAge: time.Hour, Keep: time.Hour,
					Charge: part.Charge()})
			if place.Outcome == leaky.Accepted {
				return limits.Taken, err
			}
			return limits.Left, err
		})
	if err != nil || v.Unreturned != nil {
		p.t.Fatal(v, err)
	}
	return place.Outcome, v.Standings[0].Remaining
}

// A job has its permit from the moment at which it has a record. A duplicate request, and a job
// that the line refuses, take none, also if that takes two steps; the duplicate doesn't give back
// the job's.
func along(t *testing.T, p *permits) {
	id := jobs.NewID(p.line.Settings().Backend)
	if got, left := p.submit(id); got != leaky.Accepted || left != 9 {
		t.Errorf("%s, %d left", got, left)
	}
	p.open(0)
	if got, _ := p.submit(id); got != leaky.Exists {
		t.Errorf("a duplicate: %s", got)
	}
	p.taken(1)
	capacity := 1
	if err := p.line.Tune(t.Context(), leaky.Override{Capacity: &capacity}, "test"); err != nil {
		t.Fatal(err)
	}
	if got, left := p.submit(jobs.NewID(p.line.Settings().Backend)); got != leaky.LineFull ||
		left != 9 {
		t.Errorf("%s, %d left", got, left)
	}
	p.taken(1)
	p.open(0)
	if _, err := p.line.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	p.returned(0)
	p.taken(0)
}

// A permit that is returned or refused without a fault leaves no note: a flood of refusals must not
// become work for the reconciler.
func refused(t *testing.T, p *permits) {
	var charged []limits.Verdict
	for range 10 {
		_, v := p.charge()
		charged = append(charged, v)
	}
	for range 5 {
		if v, err := p.Decide(t.Context(),
			p.request(jobs.NewID(p.line.Settings().Backend))); err != nil || v.Allowed {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	p.open(10)
	for _, v := range charged {
		if err := p.Refund(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	p.open(0)
	p.taken(0)
}

// If Redis's clock is set back or forward, permits are still returned, and none is taken from a
// job.
func clockSteps(t *testing.T, p *permits) {
	alive, _ := p.charge()
	p.offer(alive)
	for _, step := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		p.charge()
		p.pass(step)
		p.returned(1)
		p.taken(1)
	}
}

// A key of the wrong type in the place of the open permits stops nothing, and is replaced.
func wrongType(t *testing.T, p *permits) {
	key := jobs.PermitsKey(p.line.Settings().Backend)
	if err := p.rdb.Set(t.Context(), key, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	first, v := p.charge()
	p.open(1)
	p.rdb.Del(t.Context(), key)
	p.rdb.Set(t.Context(), key, "x", 0)
	p.offer(first)
	if _, err := p.line.Cancel(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.line.ReturnPermits(t.Context()); err != nil {
		t.Error(err)
	}
	if err := p.Refund(t.Context(), v); err != nil {
		t.Error(err)
	}
	p.rdb.Del(t.Context(), key)
}

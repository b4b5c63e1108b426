package leaky_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

func TestARedrivenJobIsAsGoodAsNew(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Attempts = 2 })
	o := b.job("acme")
	o.StartWithin, o.MaxAge = time.Minute, time.Hour
	o.Job.Payload = []byte("{\"a\" : 1.0}\n\x00\xff " + strings.Repeat("x", 5000))
	o.Job.Holds = jobs.Holds{Member: o.Job.ID,
		Keys: []string{"fb:{" + redistest.Name(t, "s") + "}:limit:jobs:x"}}
	o.Job.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	o.Job.Fingerprint = "f"
	id, born := o.Job.ID, b.now
	b.offer(o)
	b.end(b.begun(), "me", jobs.Delayed)
	old := b.begun()
	b.cancel(id) // too late: it fails
	b.failed(old, "x")
	before := b.look(id)

	b.pass(2 * time.Hour) // past its old max_age
	if got := b.redrive(id); got != leaky.Redriven {
		t.Fatalf("redrive = %s", got)
	}
	after := b.look(id)
	if want := (jobs.Standing{State: jobs.Waiting,
		Version: before.Standing.Version + 1}); after.Standing != want || after.Position != 1 {
		t.Errorf("it stands %+v at %d, want %+v", after.Standing, after.Position, want)
	}
	job := before.Job
	job.Holds = jobs.Holds{}
	if fmt.Sprint(after.Job) != fmt.Sprint(job) || !after.Job.CreatedAt.Equal(born) {
		t.Errorf("it is %+v, was %+v", after.Job, before.Job)
	}
	if payload, err := b.Payload(t.Context(), id); err != nil ||
		!bytes.Equal(payload, o.Job.Payload) {
		t.Errorf("its payload is %q, %v", payload, err)
	}
	if body, err := b.Result(t.Context(), id); !errors.Is(err, leaky.ErrNoResult) {
		t.Errorf("its old answer is still there: %q, %v", body, err)
	}
	for _, key := range []string{jobs.RecordKey(b.Settings().Backend, id),
		jobs.StateKey(b.Settings().Backend, id)} {
		if ttl := b.rdb.PTTL(t.Context(), key).Val(); ttl >= 0 {
			t.Errorf("%s ends in %v", key, ttl)
		}
	}
	if got := b.redrive(id); got != leaky.NotFailed {
		t.Errorf("a second redrive = %s", got)
	}
	if s := b.start(old, "me"); s.Outcome != leaky.Gone {
		t.Errorf("its old ticket = %+v", s)
	}
	if v := b.settle(leaky.Settlement{Ticket: old, Owner: "me",
		To: jobs.Failed}); v != leaky.Settled {
		t.Errorf("its last settlement, repeated = %s", v)
	}
	if r := b.report(); r.Accepted != 1 || r.Failed != 0 || r.Books.Redriven != 1 ||
		r.Waiting != 1 || r.Difference != 0 {
		t.Errorf("the books: %+v", r)
	}

	b.pass(50 * time.Minute) // over start_within, within max_age
	for attempt := 1; attempt <= 2; attempt++ {
		ticket := b.release().Tickets[0]
		if s := b.begin(ticket, "dies"); s.Attempt != attempt ||
			!bytes.Equal(s.Job.Payload, o.Job.Payload) {
			t.Fatalf("start = %+v", s)
		}
		b.pass(leaky.Lease + time.Second)
	}
	if ended := b.release().Ended; len(ended) != 1 || ended[0].Code != jobs.CodeWorkerLost {
		t.Errorf("after two attempts: %+v", ended)
	}
	if got := b.redrive(id); got != leaky.Redriven {
		t.Fatalf("when it has failed again, redrive = %s", got)
	}
	b.pass(time.Hour)
	if ended := b.release().Ended; len(ended) != 1 || ended[0].State != jobs.Expired {
		t.Errorf("after its max_age: %+v", ended)
	}
	if look := b.look(id); !look.Job.CreatedAt.Equal(born) {
		t.Errorf("it says that it was created at %v", look.Job.CreatedAt)
	}
}

// begun releases one job and starts it.
func (b *bench) begun() leaky.Ticket {
	b.t.Helper()
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	b.pass(time.Second)
	return ticket
}

// Redriven jobs drain like any others: at the end of their client's jobs, with the weight of their
// offers.
func TestARedrivenJobHasNoPrivilegedPlace(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	heavy, light := b.job("heavy"), b.job("light")
	heavy.Weight, light.Weight, light.Job.Priority = 12, 0.25, jobs.Low
	b.offer(heavy)
	b.offer(light)
	b.fail("x")
	b.fail("x")
	b.pause(true)
	other := b.fill("other", 3)
	mine := b.job("heavy")
	mine.Weight = 12
	b.offer(mine)
	for _, o := range []leaky.Offer{light, heavy} {
		if got := b.redrive(o.Job.ID); got != leaky.Redriven {
			t.Fatalf("redrive = %s", got)
		}
	}
	want := []string{mine.Job.ID, heavy.Job.ID, other[0], other[1], other[2], light.Job.ID}
	for i, id := range want {
		if got := b.look(id).Position; got != int64(i+1) {
			t.Errorf("%s is at %d, want %d", id, got, i+1)
		}
	}
}

func TestAFullLineTakesNoRedrivenJob(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Capacity, s.ClientShare = 2, 0.5 })
	var failed []string
	for range 3 {
		b.accept("acme")
		failed = append(failed, b.fail("x"))
	}
	b.pause(true)
	b.accept("acme")
	if got := b.redriveAll(leaky.FailedFilter{},
		10); got != (leaky.RedriveResult{Redriven: 1, Stopped: leaky.LineFull}) {
		t.Errorf("with room for one: %+v", got)
	}
	if got := b.redrive(failed[1]); got != leaky.LineFull {
		t.Errorf("with no room: %s", got)
	}
	if got := b.listed(leaky.FailedFilter{}); !slices.Equal(got, []string{failed[2], failed[1]}) {
		t.Errorf("failed jobs: %v", got)
	}
	if _, err := b.Redrive(t.Context(), jobs.NewID(b.Settings().Backend)); !errors.Is(err,
		leaky.ErrUnknownJob) {
		t.Errorf("redrive of no job: %v", err)
	}
}

func TestManyAreRedrivenOldestFirst(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	var ids []string
	for i := range 6 {
		b.accept([]string{"acme", "zeta"}[i%2])
		ids = append(ids, b.fail([]string{"x", "x", "y"}[i%3]))
	}
	newest := slices.Clone(ids)
	slices.Reverse(newest)
	if got := b.listed(leaky.FailedFilter{}); !slices.Equal(got, newest) {
		t.Errorf("listed %v, want %v", got, newest)
	}
	if got := b.redriveAll(leaky.FailedFilter{Client: "acme", Code: "x"},
		1); got != (leaky.RedriveResult{Redriven: 1, Stopped: leaky.MaxReached}) {
		t.Errorf("at most one: %+v", got)
	}
	if got := b.redriveAll(leaky.FailedFilter{Code: "x"},
		100); got != (leaky.RedriveResult{Redriven: 3}) {
		t.Errorf("the other three: %+v", got)
	}
	d := b.drainer(0)
	d.empty()
	if want := []string{ids[0], ids[1], ids[3], ids[4]}; !slices.Equal(d.ids(), want) {
		t.Errorf("they started as %v, want %v", d.ids(), want)
	}
	if got := b.listed(leaky.FailedFilter{}); !slices.Equal(got, []string{ids[5], ids[2]}) {
		t.Errorf("the others: %v", got)
	}
	if _, err := b.RedriveAll(t.Context(), leaky.FailedFilter{}, 0); err == nil {
		t.Error("at most none was taken")
	}
}

// Otherwise a backend that fails every call would keep one redrive going forever.
func TestAJobThatFailsAgainIsNotRedrivenAgainInOneGo(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate, s.Capacity = leaky.Unlimited, 1000 })
	b.fill("acme", leaky.MaxPage+1)
	failAll := func() {
		for b.status().Waiting > 0 {
			for _, ticket := range b.release().Tickets {
				b.begin(ticket, "me")
				b.failed(ticket, "x")
			}
		}
		b.pass(time.Second)
	}
	failAll()
	other := leaky.New(b.rdb, b.Settings()).At(func() int64 {
		failAll() // between two of its steps
		return b.now.UnixMicro()
	})
	got, err := other.RedriveAll(t.Context(), leaky.FailedFilter{}, 10_000)
	if err != nil || got != (leaky.RedriveResult{Redriven: leaky.MaxPage + 1}) {
		t.Errorf("%+v, %v; %d had failed", got, err, leaky.MaxPage+1)
	}
	b.drainer(0).empty()
}

func TestLargeJobsAreRedrivenInParts(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	for range 5 {
		o := b.job("acme")
		o.Job.Payload = bytes.Repeat([]byte("x"), 600_000)
		b.offer(o)
		b.fail("x")
	}
	calls := 0
	b.rdb.AddHook(counter{match: func(cmd redis.Cmder) bool {
		return leaky.IsCall("redrive", cmd)
	}, n: &calls})
	if got := b.redriveAll(leaky.FailedFilter{}, 100); got != (leaky.RedriveResult{Redriven: 5}) ||
		calls < 3 {
		t.Errorf("%+v in %d calls", got, calls)
	}
}

// counter counts the commands that succeed.
type counter struct {
	redis.Hook
	match func(redis.Cmder) bool
	n     *int
}

func (c counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && c.match(cmd) {
			*c.n++
		}
		return err
	}
}

// Like TestOneFailedCallChangesNothing: a redrive whose reply is lost is repeated.
func TestALostReplyRedrivesNothingTwice(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{false, true} {
		rdb := redistest.Client(t)
		b := newLineOn(t, rdb, nil)
		b.accept("acme")
		id := b.fail("x")
		redistest.NewFaulty(t, rdb).FailNext(func(cmd redis.Cmder) bool {
			return leaky.IsCall("redrive", cmd)
		}, applied)
		got := try(t, func() (leaky.Outcome, error) { return b.Redrive(t.Context(), id) })
		if want := map[bool]leaky.Outcome{false: leaky.Redriven,
			true: leaky.NotFailed}[applied]; got != want {
			t.Errorf("applied %v: %s, want %s", applied, got, want)
		}
		if s := b.status(); s.Waiting != 1 || s.Books.Redriven != 1 {
			t.Errorf("applied %v: %+v", applied, s)
		}
	}
}

func TestFailedJobsOnEveryKindOfRedis(t *testing.T) {
	t.Parallel()
	cluster, _ := redistest.StartCluster(t)
	for name, rdb := range map[string]redis.UniversalClient{"cluster": cluster,
		"miniredis": redistest.Miniredis(t)} {
		b := newLineOn(t, rdb, nil)
		b.accept("acme")
		id := b.fail("x")
		if got := b.listed(leaky.FailedFilter{Operation: "report", Client: "acme",
			Code: "x"}); !slices.Equal(got, []string{id}) {
			t.Errorf("%s: listed %v", name, got)
		}
		if got := b.redriveAll(leaky.FailedFilter{Operation: "report"}, 10); got.Redriven != 1 {
			t.Errorf("%s: %+v", name, got)
		}
		b.accept("acme")
		b.rdb.Del(t.Context(), jobs.RecordKey(b.Settings().Backend, id))
		if got := b.round(); len(got) != 3 ||
			got[0] != (leaky.Repair{Kind: leaky.NoRecord, What: id}) ||
			got[1].Kind != leaky.WrongShare || got[2].Kind != leaky.WrongBytes {
			t.Errorf("%s: repairs %v", name, got)
		}
		if r := b.report(); r.Difference != 0 || r.Lost != 1 || r.Repairs[leaky.NoRecord] != 1 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

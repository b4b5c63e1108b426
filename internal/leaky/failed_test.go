package leaky_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

// fail runs the next job of the line so that it fails, and returns its id.
func (b *bench) fail(code string) string {
	b.t.Helper()
	tickets := b.release().Tickets
	if len(tickets) != 1 {
		b.t.Fatalf("%d jobs are released, want 1", len(tickets))
	}
	b.begin(tickets[0], "me")
	b.failed(tickets[0], code)
	b.pass(time.Second)
	return tickets[0].ID
}

func (b *bench) failed(ticket leaky.Ticket, code string) {
	b.t.Helper()
	s := leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Failed,
		Failure: jobs.Failure{Code: code, Detail: "It said no."},
		Result: jobs.Meta{Status: 404, ContentType: "text/plain",
			Fields: "Content-Language: de\n"},
		Body: []byte("no")}
	if v := b.settle(s); v != leaky.Settled {
		b.t.Fatalf("settle = %s", v)
	}
}

func (b *bench) redrive(id string) leaky.Outcome {
	b.t.Helper()
	outcome, err := b.Redrive(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return outcome
}

func (b *bench) redriveAll(f leaky.FailedFilter, max int) leaky.RedriveResult {
	b.t.Helper()
	r, err := b.RedriveAll(context.Background(), f, max)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// listed returns the ids of all failed jobs that f selects, in the list's order.
func (b *bench) listed(f leaky.FailedFilter) []string {
	b.t.Helper()
	var ids []string
	for cursor := ""; ; {
		page, err := b.List(context.Background(),
			leaky.ListFilter{State: jobs.Failed, Client: f.Client, Operation: f.Operation,
				Code: f.Code, Cursor: cursor, Limit: 2})
		if err != nil {
			b.t.Fatal(err)
		}
		ids = append(ids, idsOf(page.Jobs)...)
		if cursor = page.Next; cursor == "" {
			return ids
		}
	}
}

func TestAFailedJobStaysListedWithItsCauseAndLastAnswer(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	report, other := b.job("acme"), b.job("zeta")
	other.Job.Operation = "other"
	b.offer(report)
	b.offer(other)
	first, second := b.fail(jobs.CodeBackendStatus), b.fail(jobs.CodeResultTooLarge)
	failed, err := b.List(context.Background(), leaky.ListFilter{State: jobs.Failed, Limit: 10})
	page := failed.Jobs
	if err != nil || failed.Next != "" || len(page) != 2 || page[0].Job.ID != second ||
		page[1].Job.ID != first {
		t.Fatalf("failed = %+v, %v", failed, err)
	}
	want := jobs.Standing{State: jobs.Failed, Attempts: 1,
		Failure: jobs.Failure{Code: jobs.CodeBackendStatus, Detail: "It said no."},
		Result: jobs.Meta{Status: 404, ContentType: "text/plain", Fields: "Content-Language: de\n",
			Size: 2}}
	got := page[1].Standing
	if got.State != want.State || got.Attempts != want.Attempts || got.Failure != want.Failure ||
		got.Result != want.Result || !got.FinishedAt.Equal(b.now.Add(-2*time.Second)) {
		t.Errorf("it stands %+v", got)
	}
	if body, err := b.Result(t.Context(), first); err != nil || string(body) != "no" {
		t.Errorf("its answer is %q, %v", body, err)
	}
	for _, c := range []struct {
		f    leaky.FailedFilter
		want []string
	}{
		{leaky.FailedFilter{}, []string{second, first}},
		{leaky.FailedFilter{Client: "acme"}, []string{first}},
		{leaky.FailedFilter{Operation: "other"}, []string{second}},
		{leaky.FailedFilter{Code: jobs.CodeResultTooLarge}, []string{second}},
		{leaky.FailedFilter{Code: jobs.CodeResultTooLarge, Client: "acme"}, nil},
		{leaky.FailedFilter{Operation: "oth"}, nil},
	} {
		if got := b.listed(c.f); !slices.Equal(got, c.want) {
			t.Errorf("%+v lists %v, want %v", c.f, got, c.want)
		}
	}
}

// A record has metadata that its client chose, and permits before it. Neither misleads a filter.
func TestAFilterReadsRecordsRight(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	o := b.job(`a"o":"other"{@ `)
	o.Job.Holds = jobs.Holds{Member: o.Job.ID,
		Keys: []string{"fb:{" + redistest.Name(t, "s") + `}:limit:{"o":"other"}:x`}}
	b.offer(o)
	b.fail("x")
	for operation, want := range map[string]int{"report": 1, "other": 0} {
		if got := b.listed(leaky.FailedFilter{Operation: operation,
			Client: o.Job.Client}); len(got) != want {
			t.Errorf("%d jobs of %s, want %d", len(got), operation, want)
		}
	}
}

// Case C91: A failed job is kept for KeepFailed, whatever its operation asks for, and no longer.
func TestAFailedJobIsKeptAsLongAsFailedJobsAre(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.KeepFailed = 24 * time.Hour })
	o := b.job("acme")
	o.Keep = time.Hour
	b.offer(o)
	id := b.fail("x")
	if at := b.look(id).Standing.ExpiresAt; !at.Equal(b.now.Add(24*time.Hour - time.Second)) {
		t.Errorf("it is said to be kept until %v", at)
	}
	backend := b.Settings().Backend
	for _, key := range []string{jobs.RecordKey(backend, id), jobs.StateKey(backend, id),
		jobs.ResultKey(backend, id)} {
		if ttl, err := b.rdb.PTTL(t.Context(), key).Result(); err != nil || ttl > 24*time.Hour ||
			ttl < 24*time.Hour-time.Minute {
			t.Errorf("%s has a TTL of %v, %v", key, ttl, err)
		}
	}
}

func TestAFailedJobLeavesTheListInItsTime(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.KeepFailed = 30 * time.Minute })
	b.accept("acme") // kept for an hour
	id := b.fail("x")
	b.pass(30*time.Minute - 2*time.Second)
	b.release()
	if got := b.listed(leaky.FailedFilter{}); len(got) != 1 {
		t.Fatalf("before its time the list is %v", got)
	}
	b.pass(time.Second)
	b.release()
	if got := b.listed(leaky.FailedFilter{}); len(got) != 0 {
		t.Errorf("after its time the list is %v", got)
	}
	if got := b.redrive(id); got != leaky.Redriven {
		t.Errorf("redrive of a job that is still on record: %s", got)
	}
}

// A record without a standing is a waiting job's. So no standing may expire before its record, not
// even by the millisecond that may pass between two commands of a script: a look in between would
// put the ended job back into the line, and it would run again.
func TestAStandingOutlivesItsRecord(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Capacity, s.Rate = 1000, leaky.Unlimited })
	outlives := func(id string) {
		t.Helper()
		p := jobs.KeyPrefix(b.Settings().Backend)
		by, err := b.rdb.Eval(context.Background(),
			"return redis.call('PTTL', KEYS[1]) - redis.call('PTTL', KEYS[2])",
			[]string{p + "state:" + id, p + "job:" + id}).Int64()
		if err != nil || by < 0 {
			t.Fatalf("the standing of %s goes %d ms before its record, %v", id, -by, err)
		}
	}
	for range 100 {
		b.accept("acme")
		outlives(b.fail("x"))
		id := b.accept("acme")
		if _, err := b.Cancel(context.Background(), id); err != nil {
			t.Fatal(err)
		}
		outlives(id)
	}
}

// A raised keep_failed doesn't bring expired jobs back.
func TestAListedJobWithoutARecordLeavesTheList(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.KeepFailed = 10 * time.Millisecond })
	o := b.job("acme")
	o.Keep = 10 * time.Millisecond
	b.offer(o)
	id := b.fail("x")
	s := b.Settings()
	s.KeepFailed = 24 * time.Hour
	b.Line = leaky.New(b.rdb, s).At(func() int64 { return b.now.UnixMicro() })
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := b.Look(context.Background(), id); errors.Is(err, leaky.ErrUnknownJob) {
			break
		} else if time.Now().After(end) {
			t.Fatal("its time is over and it is on record")
		}
	}
	if got := b.listed(leaky.FailedFilter{}); len(got) != 0 {
		t.Errorf("the list is %v", got)
	}
	if _, err := b.Redrive(context.Background(), id); !errors.Is(err, leaky.ErrUnknownJob) {
		t.Errorf("redrive: %v", err)
	}
	b.release()
	if r := b.report(); r.Listed != 0 || r.Difference != 0 {
		t.Errorf("the books: %+v", r)
	}
}

func (b *bench) report() leaky.Report {
	b.t.Helper()
	r, err := b.CheckBooks(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

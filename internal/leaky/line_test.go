package leaky_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

// bench is one line under test, with a clock that the test moves.
type bench struct {
	*leaky.Line
	t    *testing.T
	rdb  redis.UniversalClient
	now  time.Time
	only string // the job of a test that has one
}

// newLine returns a line at 10/s, concurrency 10, capacity 100, changed by adjust; its books are
// checked at the end.
func newLine(t *testing.T, adjust func(*leaky.Settings)) *bench {
	t.Helper()
	return newLineOn(t, redistest.Client(t), adjust)
}

func newLineOn(t *testing.T, rdb redis.UniversalClient, adjust func(*leaky.Settings)) *bench {
	t.Helper()
	b := newUnchecked(t, rdb, adjust)
	line := b.Line
	t.Cleanup(func() {
		b.Line = line // a test may have replaced it
		b.checkRight()
		redistest.CheckBooks(t, rdb, b.Settings().Backend)
	})
	return b
}

// newUnchecked is like newLine, without the check, which would take too long for long lines.
func newUnchecked(t *testing.T, rdb redis.UniversalClient, adjust func(*leaky.Settings)) *bench {
	t.Helper()
	s := leaky.Settings{
		Backend:    redistest.Name(t, "b"),
		Drain:      leaky.Drain{Rate: rate(t, "10/s"), Burst: 1, Concurrency: 10},
		Room:       leaky.Room{Capacity: 100, MaxWait: time.Hour, ClientShare: 1},
		Attempts:   3,
		KeepFailed: 24 * time.Hour,
		Feedback:   true,
	}
	if adjust != nil {
		adjust(&s)
	}
	// The test's clock begins in the past. So it may run ahead by hours, and CheckBooks, on Redis's
	// own clock, finds no lease that ends too late.
	b := &bench{t: t, rdb: rdb,
		now: time.Now().Add(-60 * 24 * time.Hour).Truncate(time.Microsecond)}
	b.Line = leaky.New(rdb, s).At(func() int64 { return b.now.UnixMicro() })
	return b
}

// ownServer is for tests with many lines, or long ones: on the common server their keys would make
// every other check of the books slow.
func ownServer(t *testing.T) redis.UniversalClient {
	t.Helper()
	return redistest.Start(t, "--appendonly", "no").Client(t)
}

func rate(t *testing.T, text string) leaky.Rate {
	t.Helper()
	r, err := leaky.ParseRate(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (b *bench) pass(d time.Duration) { b.now = b.now.Add(d) }

// job returns an offer of a fresh job by client, whose bytes are counted with a high bound.
func (b *bench) job(client string) leaky.Offer {
	return leaky.Offer{Job: jobs.Job{ID: jobs.NewID(b.Settings().Backend), Operation: "report",
		Client: client, Tier: "free",
		Priority: jobs.Normal, Payload: []byte(`{"n":1}`)}, Weight: 1, MaxAge: 24 * time.Hour,
		Keep: time.Hour, MaxStored: 1 << 40}
}

func (b *bench) offer(o leaky.Offer) leaky.Place {
	b.t.Helper()
	place, err := b.Offer(context.Background(), o)
	if err != nil {
		b.t.Fatal(err)
	}
	return place
}

// accept offers a fresh job of client, which must be accepted, and returns its id.
func (b *bench) accept(client string) string {
	b.t.Helper()
	o := b.job(client)
	if place := b.offer(o); place.Outcome != leaky.Accepted {
		b.t.Fatalf("offer = %+v, want accepted", place)
	}
	return o.Job.ID
}

func (b *bench) release() leaky.Release {
	b.t.Helper()
	r, err := b.Release(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bench) start(ticket leaky.Ticket, owner string) leaky.Started {
	b.t.Helper()
	s, err := b.Start(context.Background(), ticket, owner)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// begin starts the ticket's job, which must succeed.
func (b *bench) begin(ticket leaky.Ticket, owner string) leaky.Started {
	b.t.Helper()
	s := b.start(ticket, owner)
	if s.Outcome != leaky.Go {
		b.t.Fatalf("start of %s = %s, want go", ticket.ID, s.Outcome)
	}
	return s
}

func (b *bench) settle(s leaky.Settlement) leaky.SettleOutcome {
	b.t.Helper()
	v, _ := b.settleFeedback(s)
	return v
}

// settleFeedback is settle that also returns the feedback.
func (b *bench) settleFeedback(s leaky.Settlement) (leaky.SettleOutcome, leaky.Feedback) {
	b.t.Helper()
	v, f, err := b.Settle(context.Background(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	return v, f
}

// end settles the ticket's job, whose lease must not have expired.
func (b *bench) end(ticket leaky.Ticket, owner string, to jobs.State) {
	b.t.Helper()
	if v := b.settle(leaky.Settlement{Ticket: ticket, Owner: owner, To: to}); v != leaky.Settled {
		b.t.Fatalf("settle of %s = %s, want settled", ticket.ID, v)
	}
}

func (b *bench) cancel(id string) leaky.CancelOutcome {
	b.t.Helper()
	outcome, err := b.Cancel(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return outcome
}

func (b *bench) tune(o leaky.Override) {
	b.t.Helper()
	if err := b.Tune(context.Background(), o, "operator"); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) pause(paused bool) { b.t.Helper(); b.tune(leaky.Override{Paused: &paused}) }

func (b *bench) status() leaky.Status {
	b.t.Helper()
	s, err := b.Status(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// fill offers n fresh jobs of client, all of which must be accepted, and returns their ids.
func (b *bench) fill(client string, n int) []string {
	b.t.Helper()
	ids := make([]string, 0, n)
	for len(ids) < n {
		batch := make([]leaky.Offer, min(n-len(ids), 64))
		for i := range batch {
			batch[i] = b.job(client)
			ids = append(ids, batch[i].Job.ID)
		}
		places, err := b.OfferAll(context.Background(), batch)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, p := range places {
			if p.Outcome != leaky.Accepted {
				b.t.Fatalf("offer = %+v, want accepted", p)
			}
		}
	}
	return ids
}

func (b *bench) look(id string) leaky.Look {
	b.t.Helper()
	look, err := b.Look(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return look
}

func TestAnAcceptedJobRunsOnceAndKeepsItsResult(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	id := b.accept("acme")
	if look := b.look(id); look.Standing.State != jobs.Waiting || look.Position != 1 ||
		look.Job.Client != "acme" {
		t.Fatalf("look = %+v", look)
	}
	r := b.release()
	if len(r.Tickets) != 1 || r.Tickets[0].ID != id || r.Tickets[0].Due != b.now.UnixMicro() {
		t.Fatalf("release = %+v", r)
	}
	started := b.start(r.Tickets[0], "me")
	if started.Outcome != leaky.Go || started.Attempt != 1 ||
		string(started.Job.Payload) != `{"n":1}` {
		t.Fatalf("start = %+v", started)
	}
	if other := b.start(r.Tickets[0], "other"); other.Outcome != leaky.Gone {
		t.Fatalf("a second worker's start = %+v", other)
	}
	done := leaky.Settlement{Ticket: r.Tickets[0], Owner: "me", To: jobs.Succeeded,
		Result: jobs.Meta{Status: 200, ContentType: "text/plain"}, Body: []byte("\xff\x00ok")}
	if v := b.settle(done); v != leaky.Settled {
		t.Fatalf("settle = %s", v)
	}
	if v := b.settle(done); v != leaky.Settled {
		t.Fatalf("the same settlement again = %s", v)
	}
	look := b.look(id)
	if look.Standing.State != jobs.Succeeded || look.Standing.Attempts != 1 ||
		look.Standing.Result.Size != 4 {
		t.Fatalf("look = %+v", look)
	}
	if body, err := b.Result(t.Context(), id); err != nil || string(body) != "\xff\x00ok" {
		t.Fatalf("result = %q, %v", body, err)
	}
	for _, part := range []struct {
		from, n int64
		want    string // "": ErrNoResult
	}{{0, 4, "\xff\x00ok"}, {0, 1, "\xff"}, {1, 2, "\x00o"}, {3, 1, "k"}, {3, 2, ""}, {4, 1, ""}} {
		body, err := b.ResultPart(t.Context(), id, part.from, part.n)
		if string(body) != part.want || errors.Is(err, leaky.ErrNoResult) != (part.want == "") {
			t.Errorf("part %d of %d bytes = %q, %v", part.from, part.n, body, err)
		}
	}
	none := jobs.NewID(b.Settings().Backend)
	if _, err := b.ResultPart(t.Context(), none, 0, 1); !errors.Is(err, leaky.ErrNoResult) {
		t.Errorf("part of no result: %v", err)
	}
}

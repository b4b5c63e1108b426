package leaky_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// due is what the outbox of callbacks has, by job.
func (b *bench) due() map[string]int64 {
	b.t.Helper()
	rows, err := b.rdb.ZRangeWithScores(b.t.Context(), jobs.KeyPrefix(b.Settings().Backend)+"callbacks", 0, -1).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	due := map[string]int64{}
	for _, row := range rows {
		due[row.Member.(string)] = int64(row.Score)
	}
	return due
}

// The end of a job with a callback is in the outbox with the same step, whatever way it ends; that of another never.
func TestTheEndOfAJobWithACallbackIsInTheOutbox(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*bench){
		"succeeded": func(b *bench) { b.run(jobs.Succeeded) },
		"failed":    func(b *bench) { b.run(jobs.Failed) },
		"canceled":  func(b *bench) { b.cancel(b.only) },
		"expired":   func(b *bench) { b.pass(25 * time.Hour); b.release() },
		"lost":      func(b *bench) { b.pass(time.Second); b.lose(b.Settings().Attempts) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLine(t, nil)
			b.accept("acme")
			b.run(jobs.Succeeded)
			o := b.job("acme")
			o.Job.Callback = `https://example.org/done?a=1&b=<"2">`
			o.Job.Holds = jobs.Holds{Member: o.Job.ID, Keys: []string{"fb:{" + b.Settings().Backend + "}:limit:x"}}
			b.only = o.Job.ID
			b.offer(o)
			if got := b.look(o.Job.ID).Job.Callback; got != o.Job.Callback || len(b.due()) != 0 {
				t.Fatalf("before its end: callback %q, outbox %v", got, b.due())
			}
			heard := b.watch("callback")
			end(b)
			if got := b.due(); len(got) != 1 || got[o.Job.ID] != b.look(o.Job.ID).Standing.FinishedAt.UnixMicro() {
				t.Errorf("the outbox has %v", got)
			}
			heard("callback ")
		})
	}
}

// Each share has the callback that its caller asked for: at the job's end, or at its own.
func TestEachShareIsCalledBackByItself(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	shares := map[string]string{}
	for i, name := range []string{"first", "silent", "leaves", "stays"} {
		o := b.joint(name)
		if name != "silent" {
			o.Job.Callback = "https://example.org/" + name
		}
		want := leaky.Joined
		if i == 0 {
			want = leaky.Accepted
		}
		if place := b.offer(o); place.Outcome != want {
			t.Fatalf("offer of %s = %+v", name, place)
		}
		shares[name] = o.Job.ID
	}
	b.pass(time.Second)
	heard := b.watch("final", "callback")
	b.cancel(shares["leaves"])
	heard("callback ", "final "+shares["leaves"])
	left := b.now.UnixMicro()
	if got := b.due(); len(got) != 1 || got[shares["leaves"]] != left {
		t.Fatalf("the outbox has %v", got)
	}
	job := b.look(shares["first"]).Job.Of
	b.run(jobs.Failed)
	heard("callback ", "callback ", "final "+job)
	if got, at := b.due(), b.now.UnixMicro(); len(got) != 3 || got[shares["first"]] != at || got[shares["stays"]] != at || got[shares["leaves"]] != left {
		t.Errorf("the outbox has %v, shares are %v", got, shares)
	}
}

// Every move that a client can see is published: into the line again, into backoff, to a worker, that it is to be canceled, and its end.
func TestMovesArePublished(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	id := b.accept("acme")
	heard := b.watch("moved", "final")
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	heard("moved " + id)
	b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Delayed, Delay: time.Second})
	heard("moved " + id)
	b.pass(2 * time.Second)
	ticket = b.release().Tickets[0] // from its backoff into the line, and out of it
	heard("moved " + id)
	b.begin(ticket, "me")
	heard("moved " + id)
	b.cancel(id)
	heard("moved " + id)
	b.end(ticket, "me", jobs.Canceled)
	heard("final " + id)
	other := b.accept("acme")
	b.cancel(other)
	heard("final " + other) // and nothing in between
}

// An offer that nobody shares costs Redis two calls more than its place does, a client and script call; a look none.
func TestAListCostsAnOfferTwoCalls(t *testing.T) {
	t.Parallel()
	b := newUnchecked(t, ownServer(t), nil)
	b.accept("acme")
	count := func(do func()) map[string]int64 {
		t.Helper()
		if err := b.rdb.(*redis.Client).ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		do()
		stats, err := b.rdb.InfoMap(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		calls := map[string]int64{}
		for name, text := range stats["Commandstats"] {
			var n int64
			if _, err := fmt.Sscanf(text, "calls=%d,", &n); err != nil {
				t.Fatal(err)
			}
			calls[name] = n
		}
		return calls
	}
	calls := count(func() { b.fill("acme", 64) })
	if calls["cmdstat_rpush"] != 1 || calls["cmdstat_pexpire"] != 1 || calls["cmdstat_exists"]+calls["cmdstat_get"]+calls["cmdstat_hlen"] != 0 {
		t.Errorf("an offer of 64 jobs = %v", calls)
	}
	id := b.accept("acme")
	if calls = count(func() { b.look(id) }); calls["cmdstat_get"]+calls["cmdstat_exists"] != 0 || calls["cmdstat_getrange"] != 1 {
		t.Errorf("a look = %v", calls)
	}
}

// watch hears what is published on the line's channels until the test ends.
func (b *bench) watch(names ...string) func(want ...string) {
	b.t.Helper()
	prefix := jobs.KeyPrefix(b.Settings().Backend)
	var channels []string
	for _, name := range names {
		channels = append(channels, prefix+name)
	}
	sub := b.rdb.(*redis.Client).Subscribe(b.t.Context(), channels...)
	b.t.Cleanup(func() { sub.Close() })
	for range channels {
		if _, err := sub.Receive(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
	messages := sub.Channel()
	return func(want ...string) {
		b.t.Helper()
		for _, w := range want {
			select {
			case m := <-messages:
				if got := m.Channel[len(prefix):] + " " + m.Payload; got != w {
					b.t.Errorf("heard %q, want %q", got, w)
				}
			case <-time.After(20 * time.Second):
				b.t.Fatalf("heard nothing, want %q", w)
			}
		}
	}
}

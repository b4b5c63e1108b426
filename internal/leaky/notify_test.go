package leaky_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// due returns the outbox of callbacks, by job.
func (b *bench) due() map[string]int64 {
	b.t.Helper()
	rows, err := b.rdb.ZRangeWithScores(b.t.Context(),
		jobs.KeyPrefix(b.Settings().Backend)+"callbacks", 0, -1).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	due := map[string]int64{}
	for _, row := range rows {
		due[row.Member.(string)] = int64(row.Score)
	}
	return due
}

// When a job with a callback ends, in whatever way, it is in the outbox with the same step. A job
// without a callback never is.
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
			o.Job.Holds = jobs.Holds{Member: o.Job.ID,
				Keys: []string{"fb:{" + b.Settings().Backend + "}:limit:x"}}
			b.only = o.Job.ID
			b.offer(o)
			if got := b.look(o.Job.ID).Job.Callback; got != o.Job.Callback || len(b.due()) != 0 {
				t.Fatalf("before its end: callback %q, outbox %v", got, b.due())
			}
			received := b.watch("callback")
			end(b)
			if got := b.due(); len(got) != 1 ||
				got[o.Job.ID] != b.look(o.Job.ID).Standing.FinishedAt.UnixMicro() {
				t.Errorf("the outbox has %v", got)
			}
			received("callback ")
		})
	}
}

// Each subscription has the callback of its caller: at the job's end, or at its own.
func TestEachSubscriptionIsCalledBackByItself(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	subs := map[string]string{}
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
		subs[name] = o.Job.ID
	}
	b.pass(time.Second)
	received := b.watch("final", "callback")
	b.cancel(subs["leaves"])
	received("callback ", "final "+subs["leaves"])
	left := b.now.UnixMicro()
	if got := b.due(); len(got) != 1 || got[subs["leaves"]] != left {
		t.Fatalf("the outbox has %v", got)
	}
	job := b.look(subs["first"]).Job.Of
	b.run(jobs.Failed)
	received("callback ", "callback ", "final "+job)
	if got, at := b.due(), b.now.UnixMicro(); len(got) != 3 || got[subs["first"]] != at ||
		got[subs["stays"]] != at || got[subs["leaves"]] != left {
		t.Errorf("the outbox has %v, subscriptions are %v", got, subs)
	}
}

// Every move that a client can see is published: into the line again, into backoff, to a worker,
// that it is to be canceled, and its end.
func TestMovesArePublished(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	id := b.accept("acme")
	received := b.watch("moved", "final")
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	received("moved " + id)
	b.settle(leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Delayed, Delay: time.Second})
	received("moved " + id)
	b.pass(2 * time.Second)
	ticket = b.release().Tickets[0] // from its backoff into the line, and out of it
	received("moved " + id)
	b.begin(ticket, "me")
	received("moved " + id)
	b.cancel(id)
	received("moved " + id)
	b.end(ticket, "me", jobs.Canceled)
	received("final " + id)
	other := b.accept("acme")
	b.cancel(other)
	received("final " + other) // and nothing in between
}

// The client's list costs Redis two commands for each client and script call with offers, and none
// for a look.
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
	if calls["cmdstat_rpush"] != 1 || calls["cmdstat_pexpire"] != 1 ||
		calls["cmdstat_exists"]+calls["cmdstat_get"]+calls["cmdstat_hlen"] != 0 {
		t.Errorf("an offer of 64 jobs = %v", calls)
	}
	id := b.accept("acme")
	if calls = count(func() {
		b.look(id)
	}); calls["cmdstat_get"]+calls["cmdstat_exists"] != 0 || calls["cmdstat_getrange"] != 1 {
		t.Errorf("a look = %v", calls)
	}
}

// watch receives the messages of the line's channels until the test ends.
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
					b.t.Errorf("received %q, want %q", got, w)
				}
			case <-time.After(20 * time.Second):
				b.t.Fatalf("received nothing, want %q", w)
			}
		}
	}
}

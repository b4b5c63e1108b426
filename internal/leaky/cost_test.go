package leaky_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// Case C89: With 100,000 jobs waiting every step makes as many Redis commands as with 100.
func TestABacklogCostsNoMoreCommands(t *testing.T) {
	t.Parallel()
	rdb := ownServer(t)
	b := newUnchecked(t, rdb, func(s *leaky.Settings) {
		s.Rate, s.Capacity, s.MaxWait, s.ClientShare = rate(t, "15/s"), 200_000, 24*time.Hour, 0.9
	})
	ctx := context.Background()
	work := func() map[string]int64 {
		t.Helper()
		if err := rdb.ConfigResetStat(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			b.pass(time.Second / 15)
			id := b.accept("late")
			ticket := b.release().Tickets[0]
			b.begin(ticket, "me")
			b.end(ticket, "me", jobs.Succeeded)
			b.look(id)
			b.cancel(id)
			b.status()
		}
		return calls(t, b)
	}
	b.fill("flood", 100)
	work() // not the first call of each script
	few := work()
	b.fill("flood", 100_000)
	many := work()
	if !maps.Equal(few, many) {
		t.Errorf("commands with 100 jobs waiting: %v\nwith 100,000: %v", few, many)
	}
	if total := many["total"]; total < 20*30 || total > 20*120 {
		t.Errorf("%d commands for 20 jobs: the count is wrong", total)
	}
}

// calls returns the commands that Redis has carried out since its statistics were reset, including
// those of scripts.
func calls(t *testing.T, b *bench) map[string]int64 {
	t.Helper()
	info, err := b.rdb.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	for line := range strings.Lines(info) {
		name, stats, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"),
			":calls=")
		if !found || strings.HasPrefix(name, "config") || name == "info" {
			continue
		}
		n, err := strconv.ParseInt(strings.Split(stats, ",")[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = n
		all["total"] += n
	}
	return all
}

// However much has piled up, one release returns, promotes, drops and grants no more than its
// bound.
func TestOneReleaseDoesABoundedAmountOfWork(t *testing.T) {
	t.Parallel()
	rdb := ownServer(t)
	b := newLineOn(t, rdb, func(s *leaky.Settings) {
		s.Rate, s.Capacity, s.Concurrency = leaky.Unlimited, 10_000, 1000
	})
	for i := range 500 {
		o := b.job(fmt.Sprint("client-", i))
		o.StartWithin = time.Minute
		b.offer(o)
	}
	b.fill("acme", 1000)
	var tickets []leaky.Ticket
	for len(tickets) < 500 {
		tickets = append(tickets, b.release().Tickets...)
	}
	for i, ticket := range tickets[:400] {
		b.begin(ticket, "dead")
		if i%2 == 0 {
			b.settle(leaky.Settlement{Ticket: ticket, Owner: "dead", To: jobs.Delayed,
				Delay: time.Minute})
		}
	}
	b.pass(time.Hour) // all leases, backoffs and deadlines are over
	if err := rdb.ConfigResetStat(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	r := b.release()
	if r.Returned > leaky.MaxGrant || len(r.Tickets) > leaky.MaxGrant ||
		len(r.Ended) > 2*leaky.MaxGrant {
		t.Errorf("%d returned, %d granted, %d ended", r.Returned, len(r.Tickets), len(r.Ended))
	}
	if total := calls(t, b)["total"]; total > 64*60 {
		t.Errorf("%d commands in one release", total)
	}
	for range 100 {
		if r = b.release(); r.Reason != "" {
			break
		}
	}
	if r.Reason == "" {
		t.Error("the line is never in order again")
	}
}

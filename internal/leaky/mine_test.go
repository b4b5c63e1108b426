package leaky_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// mine goes through a client's whole list, page by page.
func (b *bench) mine(f leaky.MineFilter) (all []leaky.Look) {
	b.t.Helper()
	for pages := 0; ; pages++ {
		page, err := b.Mine(b.t.Context(), f)
		if err != nil || len(page.Jobs) > f.Limit || pages > 1000 {
			b.t.Fatalf("page %d = %+v, %v", pages, page, err)
		}
		all = append(all, page.Jobs...)
		if f.After = page.Next; f.After == (leaky.Mark{}) {
			return all
		}
	}
}

func idsOf(looks []leaky.Look) (ids []string) {
	for _, look := range looks {
		ids = append(ids, look.Job.ID)
	}
	return ids
}

// A client's list has its own jobs, in any state, newest first, and no other client's.
func TestAClientsListHasItsJobsNewestFirst(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	ended := b.accept("acme")
	b.run(jobs.Succeeded)
	failed := b.accept("acme")
	b.run(jobs.Failed)
	canceled := b.accept("acme")
	b.cancel(canceled)
	delayed := b.accept("acme")
	b.run(jobs.Delayed)
	running := b.accept("acme")
	b.pass(time.Second)
	b.begin(b.release().Tickets[0], "me")
	b.accept("other")
	o := b.job("acme")
	o.Job.Operation = "summary"
	b.offer(o)
	sub := b.subscribe("acme", leaky.Accepted)

	want := []string{sub, o.Job.ID, running, delayed, canceled, failed, ended}
	for _, limit := range []int{1, 2, 3, leaky.MaxPage} {
		if got := idsOf(b.mine(leaky.MineFilter{Client: "acme", Limit: limit})); !slices.Equal(got,
			want) {
			t.Errorf("pages of %d: %q, want %q", limit, got, want)
		}
	}
	for _, look := range b.mine(leaky.MineFilter{Client: "acme", Limit: 5}) {
		if one := b.look(look.Job.ID); fmt.Sprintf("%+v", one) != fmt.Sprintf("%+v", look) {
			t.Errorf("the list says %+v, a look %+v", look, one)
		}
	}
	for _, c := range []struct {
		filter leaky.MineFilter
		want   []string
	}{
		{leaky.MineFilter{Client: "acme", Status: "queued"}, []string{sub, o.Job.ID, delayed}},
		{leaky.MineFilter{Client: "acme", Status: "running"}, []string{running}},
		{leaky.MineFilter{Client: "acme", Status: "failed"}, []string{failed}},
		{leaky.MineFilter{Client: "acme", Status: "canceled", Operation: "report"},
			[]string{canceled}},
		{leaky.MineFilter{Client: "acme", Operation: "summary"}, []string{o.Job.ID}},
		{leaky.MineFilter{Client: "acme", Operation: "summ"}, nil},
		{leaky.MineFilter{Client: "nobody"}, nil},
	} {
		c.filter.Limit = 2
		if got := idsOf(b.mine(c.filter)); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.filter, got, c.want)
		}
	}
}

// A mark stays valid while jobs come and go: no job is listed twice, and none that stays is left
// out, also among jobs that came in one moment.
func TestAMarkStandsWhileJobsComeAndGo(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	old := b.fill("acme", 5)
	b.pass(time.Millisecond)
	ids := b.fill("acme", 20)
	at := b.look(ids[17]).Job.CreatedAt.UnixMicro()
	f := leaky.MineFilter{Client: "acme", Limit: 3}
	page, err := b.Mine(t.Context(), f)
	slices.Reverse(ids)
	if err != nil || !slices.Equal(idsOf(page.Jobs), ids[:3]) ||
		page.Next != (leaky.Mark{At: at, ID: ids[2]}) {
		t.Fatalf("the first page = %+v, %v; want %q", page, err, ids[:3])
	}
	f.After = page.Next
	b.fill("acme", 2) // newer ones
	for _, gone := range []string{ids[2], ids[3], ids[7]} {
		b.cancel(gone)
		if got, err := b.Purge(t.Context(), gone); err != nil || got != leaky.Purged {
			t.Fatalf("purge = %s, %v", got, err)
		}
	}
	slices.Reverse(old)
	want := slices.Concat(ids[4:7], ids[8:], old)
	if got := idsOf(b.mine(f)); !slices.Equal(got, want) {
		t.Errorf("behind the mark: %q, want %q", got, want)
	}
	// A caller may use any of its jobs as a mark.
	f.After = leaky.Mark{At: b.look(ids[10]).Job.CreatedAt.UnixMicro(), ID: ids[10]}
	if got := idsOf(b.mine(f)); !slices.Equal(got, slices.Concat(ids[11:], old)) {
		t.Errorf("behind job 10: %q", got)
	}
	for _, wrong := range []leaky.MineFilter{{Client: "acme"},
		{Client: "acme", Limit: leaky.MaxPage + 1}} {
		if page, err := b.Mine(t.Context(), wrong); err == nil {
			t.Errorf("%+v: %+v", wrong, page)
		}
	}
	f.After = leaky.Mark{At: 1, ID: "no id"}
	if page, err := b.Mine(t.Context(), f); !errors.Is(err, leaky.ErrCursor) {
		t.Errorf("behind what is no job: %+v, %v", page, err)
	}
}

// After a clock was set back, a list stays in the order in which its jobs came, and a mark stays
// valid.
func TestAListStandsIfTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	var want []string
	for _, step := range []time.Duration{time.Second, time.Second, -time.Hour, time.Second,
		30 * time.Minute, 50 * time.Minute} {
		b.pass(step)
		want = append(want, b.accept("acme"), b.accept("acme"))
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 2, 3} {
		if got := idsOf(b.mine(leaky.MineFilter{Client: "acme", Limit: limit})); !slices.Equal(got,
			want) {
			t.Errorf("pages of %d: %q, want %q", limit, got, want)
		}
	}
}

// One call costs Redis a bounded number of commands, however many jobs the client has and however
// few match the filter. The list goes on until they are found.
func TestAPageCostsABoundedAmountOfWork(t *testing.T) {
	t.Parallel()
	b := newUnchecked(t, ownServer(t), func(s *leaky.Settings) {
		s.Capacity, s.MaxWait = 20_000, 24*time.Hour
	})
	o := b.job("acme")
	o.Job.Operation = "summary"
	b.offer(o)
	b.fill("acme", 10_000)
	page := func(f leaky.MineFilter) leaky.MinePage {
		t.Helper()
		if err := b.rdb.ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		got, err := b.Mine(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		// For each job its state, record, place and standing, and the fixed cost of a call,
		// including the search for a mark among 10,000.
		if total := calls(t, b)["total"]; total > int64(4*got.Work+60) ||
			got.Work > cmp.Or(f.Work, leaky.MaxWork) {
			t.Errorf("%+v: %d commands, %d jobs looked at", f, total, got.Work)
		}
		return got
	}
	middle := page(leaky.MineFilter{Client: "acme", Limit: leaky.MaxPage})
	if len(middle.Jobs) != leaky.MaxWork/2 {
		t.Errorf("%d jobs on a page", len(middle.Jobs))
	}
	for _, f := range []leaky.MineFilter{{Status: "failed", Limit: 1},
		{Status: "failed", Limit: leaky.MaxPage}, {Operation: "summary", Limit: 10},
		{Status: "queued", Limit: leaky.MaxPage},
		{Status: "queued", Operation: "summary", Limit: 1},
		{Status: "failed", Limit: 1, Work: 7}} {
		f.Client, f.After = "acme", middle.Next
		if got := page(f); (len(got.Jobs) > 0) != (f.Status == "queued" && f.Operation == "") ||
			got.Next.ID == "" {
			t.Errorf("%+v: %d jobs, then %+v", f, len(got.Jobs), got.Next)
		}
	}
	if got := idsOf(b.mine(leaky.MineFilter{Client: "acme", Operation: "summary",
		Limit: 10})); !slices.Equal(got, []string{o.Job.ID}) {
		t.Errorf("the list has %q", got)
	}
	for _, work := range []int{-1, leaky.MaxWork + 1} {
		if page, err := b.Mine(t.Context(),
			leaky.MineFilter{Client: "acme", Limit: 1, Work: work}); err == nil {
			t.Errorf("%+v", page)
		}
	}
}

// Expired jobs are removed from a list as others end. The list has a TTL of its own, longer than
// that of any job in it.
func TestAListForgetsExpiredJobs(t *testing.T) {
	t.Parallel()
	const life = 30 * time.Hour
	b := newLine(t, func(s *leaky.Settings) { s.KeepLongest, s.KeepFailed = life, time.Hour })
	key := jobs.KeyPrefix(b.Settings().Backend) + "mine:" + leaky.ClientTag("acme")
	var ids []string
	for range 6 {
		ids = append(ids, b.accept("acme"))
		b.run(jobs.Succeeded)
	}
	if ttl := b.rdb.PTTL(t.Context(), key).Val(); ttl <= life || ttl > life+time.Hour {
		t.Errorf("the list lives for %v", ttl)
	}
	for _, id := range ids[:4] { // as if they had expired
		b.rdb.Del(t.Context(), jobs.RecordKey(b.Settings().Backend, id),
			jobs.StateKey(b.Settings().Backend, id))
	}
	for want := range []int{6, 5, 4} { // two leave, one comes
		if got := b.rdb.LLen(t.Context(), key).Val(); got != int64(6-want) {
			t.Errorf("the list has %d jobs, want %d", got, 6-want)
		}
		b.accept("acme")
		b.run(jobs.Succeeded)
	}
}

package leaky_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

func (b *bench) list(f leaky.ListFilter) leaky.Page {
	b.t.Helper()
	page, err := b.List(context.Background(), f)
	if err != nil {
		b.t.Fatal(err)
	}
	return page
}

func ids(looks []leaky.Look) []string {
	var ids []string
	for _, look := range looks {
		ids = append(ids, look.Job.ID)
	}
	return ids
}

// Case C89: With thousands of jobs of one tag, a page costs as much as among few.
func TestAListStandsWhileJobsComeAndGo(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Capacity, s.MaxWait = 10_000, 24*time.Hour })
	b.pause(true)
	for i := range 45 { // of one tag, all of them
		b.accept(fmt.Sprint("client-", i))
	}
	want := ids(b.list(leaky.ListFilter{State: jobs.Waiting, Limit: leaky.MaxPage}).Jobs)
	if len(want) != 45 {
		t.Fatalf("%d jobs wait, want 45", len(want))
	}
	var got []string
	f := leaky.ListFilter{State: jobs.Waiting, Limit: 7}
	for {
		page := b.list(f)
		got = append(got, ids(page.Jobs)...)
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
		// The job in the cursor leaves, and so does one that is far ahead. Another one comes at the
		// very front.
		b.cancel(page.Jobs[len(page.Jobs)-1].Job.ID)
		if i := len(got) + 3; i < len(want) {
			b.cancel(want[i])
			want = slices.Delete(want, i, i+1)
		}
		o := b.job(fmt.Sprint("late-", len(got)))
		o.Weight = 1000
		b.offer(o)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the pages have %d jobs, want %d:\n%v\n%v", len(got), len(want), got, want)
	}
}

func TestFinishedJobsAreNotListed(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	for _, state := range []jobs.State{jobs.Succeeded, jobs.Canceled, jobs.Expired, "queued"} {
		if _, err := b.List(t.Context(), leaky.ListFilter{State: state, Limit: 1}); !errors.Is(err,
			leaky.ErrNotListed) {
			t.Errorf("%s: %v", state, err)
		}
	}
}

// Cursors come from outside, so they may be anything.
func TestAMadeUpCursorIsRefused(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	id := b.accept("acme")
	for _, cursor := range []string{"!", "0 1", "0 1 x", "0 nan " + id, "0 inf " + id,
		"0 1e999 " + id, "0 0x_1p4 " + id, "0 (1 " + id, "7 1 " + id, "-1 1 " + id, "x 1 " + id,
		"8 1 " + id} {
		if _, err := b.List(t.Context(), leaky.ListFilter{State: jobs.Waiting, Limit: 1,
			Cursor: cursor}); !errors.Is(err, leaky.ErrCursor) {
			t.Errorf("%q: %v", cursor, err)
		}
	}
	for _, limit := range []int{0, -1, leaky.MaxPage + 1} {
		if _, err := b.List(t.Context(), leaky.ListFilter{Limit: limit}); err == nil {
			t.Errorf("a page of %d jobs was given", limit)
		}
	}
}

// However many jobs the filter excludes, one call looks at a bounded number of jobs, and the next
// goes on from there.
func TestAFilterThatFindsLittleCostsABoundedAmount(t *testing.T) {
	t.Parallel()
	rdb := ownServer(t)
	b := newLineOn(t, rdb, func(s *leaky.Settings) { s.Capacity, s.MaxWait = 10_000, 24*time.Hour })
	b.pause(true)
	b.fill("acme", 2500)
	last := b.accept("zeta")
	b.fill("zeta", 2)
	f := leaky.ListFilter{State: jobs.Waiting, Client: "zeta", Limit: 10}
	b.list(f) // not the first call of each script
	var got []string
	pages := 0
	for {
		if err := rdb.ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		page := b.list(f)
		if total := calls(t, b)["total"]; total > 5*leaky.MaxWork {
			t.Errorf("%d commands for one page", total)
		}
		got = append(got, ids(page.Jobs)...)
		pages++
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	if len(got) != 3 || !slices.Contains(got, last) || pages != 2503/leaky.MaxWork+1 {
		t.Errorf("%v on %d pages", got, pages)
	}
	page := b.list(leaky.ListFilter{State: jobs.Waiting, Limit: 1})
	if err := rdb.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	b.list(leaky.ListFilter{State: jobs.Waiting, Limit: 1, Cursor: page.Next})
	if total := calls(t, b)["total"]; total > 60 {
		t.Errorf("%d commands for a page of one", total)
	}
}

// A job without a record is left out of lists, and they don't fail.
func TestAListLeavesOutJobsWithoutARecord(t *testing.T) {
	t.Parallel()
	b := newUnchecked(t, ownServer(t), nil)
	gone, there := b.accept("acme"), b.accept("acme")
	b.rdb.Del(t.Context(), jobs.RecordKey(b.Settings().Backend, gone))
	b.rdb.ZAdd(t.Context(), jobs.KeyPrefix(b.Settings().Backend)+"failed",
		redis.Z{Score: 1, Member: gone})
	page := b.list(leaky.ListFilter{Limit: 10})
	for len(page.Jobs) == 0 && page.Next != "" {
		page = b.list(leaky.ListFilter{Limit: 10, Cursor: page.Next})
	}
	if got := ids(page.Jobs); !slices.Equal(got, []string{there}) {
		t.Errorf("listed %v, want %s", got, there)
	}
}

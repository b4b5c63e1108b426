package leaky_test

import (
	"errors"
	"testing"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// A refresh is an ordinary shared job, but for one thing: it is placed only if no job with its Join
// is under way, and otherwise leaves nothing.
func TestARefreshIsPlacedOnlyIfNothingOfItsKindIsUnderWay(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	refresh := func(want leaky.Outcome) string {
		t.Helper()
		o := b.joint("acme")
		o.Refresh = true
		if place := b.offer(o); place.Outcome != want {
			t.Fatalf("offer of a refresh = %+v, want %s", place, want)
		}
		return o.Job.ID
	}
	first := refresh(leaky.Accepted)
	second := refresh(leaky.Joined)
	if _, err := b.Look(t.Context(), second); !errors.Is(err, leaky.ErrUnknownJob) {
		t.Errorf("the second one left something: %v", err)
	}
	if page := b.mine(leaky.MineFilter{Client: "acme", Limit: 10}); len(page) != 1 ||
		page[0].Job.ID != first {
		t.Errorf("its client's list has %+v", page)
	}
	other := b.subscribe("other", leaky.Joined)
	if got := b.cancel(first); got != leaky.Canceled || b.status().Waiting != 1 {
		t.Errorf("the job left with one of two: %s", got)
	}
	b.run(jobs.Failed)
	page, err := b.List(t.Context(), leaky.ListFilter{State: jobs.Failed, Limit: 10})
	if err != nil || len(page.Jobs) != 1 {
		t.Errorf("failed jobs %+v, %v", page.Jobs, err)
	}
	third := refresh(leaky.Accepted)
	b.run(jobs.Succeeded)
	if got, err := b.Redrive(t.Context(), other); err != nil || got != leaky.Redriven {
		t.Errorf("redrive = %s, %v", got, err)
	}
	if s := b.look(third).Standing; s.State != jobs.Succeeded {
		t.Errorf("the third one stands at %+v", s)
	}
}

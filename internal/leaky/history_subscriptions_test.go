package leaky_test

import (
	"context"
	"errors"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// withJoin gives some offers a Join.
func (h *history) withJoin(o leaky.Offer) leaky.Offer {
	o.Job.Callback = rapid.SampledFrom([]string{"", "", "https://example.org/?a&b"}).Draw(h.T,
		"callback")
	o.Job.Fingerprint = rapid.SampledFrom([]string{"", "", "f"}).Draw(h.T, "fingerprint")
	o.Join = rapid.SampledFrom([]string{"", "", "x", "y"}).Draw(h.T, "join")
	o.Refresh = rapid.IntRange(0, 7).Draw(h.T, "refresh") == 0
	if o.Refresh = o.Refresh && o.Join != ""; o.Refresh {
		o.StartWithin = 0
	}
	return o
}

// inner returns the id of the shared job that the line made for an offer.
func (h *history) inner(o leaky.Offer) string {
	record, err := h.rdb.Get(context.Background(),
		jobs.RecordKey(h.line.Settings().Backend, o.Job.ID)).Result()
	if err != nil {
		h.Fatal(err)
	}
	_, rest, _ := strings.Cut(record, " =")
	id, _, _ := strings.Cut(rest, " ")
	return id
}

// part does what a worker does with an answer for one caller.
func (h *history) part(t leaky.Ticket, owner string) {
	private := rapid.Bool().Draw(h.T, "private")
	got, err := h.line.Part(context.Background(), t, owner, private)
	h.agree("part", got, h.model.part(t, owner, private), err)
}

// know makes the history look at a job that is on record.
func (h *history) know(id string) {
	if h.model.onRecord(id) && !slices.Contains(h.ids, id) {
		h.ids = append(h.ids, id)
	}
}

func (h *history) purge() {
	id := h.id()
	got, err := h.line.Purge(context.Background(), id)
	if errors.Is(err, leaky.ErrUnknownJob) {
		got, err = "unknown", nil
	}
	h.agree("purge", got, h.model.purge(id), err)
}

// lookAtGone looks at a job that was purged.
func (h *history) lookAtGone(id string) {
	_, err := h.line.Look(context.Background(), id)
	var gone *leaky.GoneError
	if h.model.gone[id] == "" {
		if !errors.Is(err, leaky.ErrUnknownJob) || errors.As(err, &gone) {
			h.Fatalf("look at %s, which was a refresh: %v", id, err)
		}
		return
	}
	if !errors.As(err, &gone) || !gone.OwnedBy(h.model.gone[id]) ||
		gone.Spent != (h.model.spent[id] > h.model.now) {
		h.Fatalf("look at %s, which %s purged: %v", id, h.model.gone[id], err)
	}
}

func (h *history) mine() {
	f := leaky.MineFilter{Client: rapid.SampledFrom([]string{"a", "b", "c", "nobody"}).Draw(h.T,
		"client"), Limit: rapid.IntRange(1, 4).Draw(h.T, "limit"),
		Work: rapid.IntRange(0, 4).Draw(h.T, "work"),
		Status: rapid.SampledFrom([]string{"", "", "queued", "running", "succeeded",
			"canceled"}).Draw(h.T, "status"),
		Operation: rapid.SampledFrom([]string{"", "", "report", "other"}).Draw(h.T, "operation")}
	var got []leaky.Look
	for pages := 0; ; pages++ {
		page, err := h.line.Mine(context.Background(), f)
		if err != nil || len(page.Jobs) > f.Limit || pages > 10_000 {
			h.Fatalf("page %d has %d jobs, want %d: %v", pages, len(page.Jobs), f.Limit, err)
		}
		got = append(got, page.Jobs...)
		if f.After = page.Next; f.After == (leaky.Mark{}) {
			break
		}
	}
	h.agree("a client's list", got, h.model.listOf(f), nil)
}

// compareShared compares the keys of subscriptions and clients with the model.
func (h *history) compareShared() {
	ctx, prefix := context.Background(), jobs.KeyPrefix(h.line.Settings().Backend)
	due, err := h.rdb.ZRangeWithScores(ctx, prefix+"callbacks", 0, -1).Result()
	got := zset{}
	for _, m := range due {
		got[m.Member.(string)] = m.Score
	}
	h.agree("callbacks", got, h.model.callbacks, err)
	for _, join := range []string{"x", "y"} {
		got, err := h.rdb.MGet(ctx, prefix+"joint:"+join).Result()
		want := make([]any, 1)
		if id := h.model.joints[join]; id != "" {
			want[0] = id
		}
		h.agree("the job of Join "+join, got, want, err)
	}
	for client, list := range h.model.mine {
		n, err := h.rdb.LLen(ctx, prefix+"mine:"+leaky.ClientTag(client)).Result()
		h.agree("length of a client's list", n, int64(len(list)), err)
	}
}

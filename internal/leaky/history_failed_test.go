package leaky_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// redrive is the model's Redrive.
func (m *model) redrive(id string) leaky.Outcome {
	if s := m.subs[id]; s != nil {
		return m.redrive(s.job.Of)
	}
	j, v := m.jobs[id], m.view()
	if j == nil {
		return "unknown"
	}
	if j.st.State != jobs.Failed {
		return leaky.NotFailed
	}
	if float64(len(m.line)+len(m.delayed)) >= v.capacity {
		return leaky.LineFull
	}
	delete(m.failed, id)
	if j.job.Shared && m.joints[m.joined[id]] == "" {
		m.joints[m.joined[id]] = id
	}
	j.end, j.accepted = m.now+j.end-j.accepted, m.now
	j.start = j.end
	j.job.Holds = jobs.Holds{} // they were given back
	j.tag = m.line.inTurn(max(m.v, m.flows[flowOf(j.job)]) + 1/j.job.Weight)
	j.st = jobs.Standing{State: jobs.Waiting, Version: j.st.Version + 1}
	m.dropped(j)
	m.store(j.job.Client, j.bytes)
	m.line[id], m.flows[flowOf(j.job)] = j.tag, j.tag
	m.hold(j.job.Client, 1)
	m.books["failed"]--
	m.books["redriven"]++
	return leaky.Redriven
}

// trim does to the list of failed jobs what a release does.
func (m *model) trim() {
	for _, id := range m.failed.within(upTo(m.now-usec(m.s.KeepFailed)), leaky.MaxGrant) {
		delete(m.failed, id)
	}
}

// list is the model's List, of all pages at once.
func (m *model) list(state jobs.State, client, code string) []leaky.Look {
	newest := m.failed.sorted()
	slices.Reverse(newest)
	ids := map[jobs.State][]string{jobs.Waiting: m.line.sorted(), jobs.Delayed: m.delayed.sorted(),
		jobs.Running: m.inflight.sorted(), jobs.Released: m.inflight.sorted(), jobs.Failed: newest}
	ids[""] = slices.Concat(ids[jobs.Waiting], ids[jobs.Delayed], ids[jobs.Running],
		ids[jobs.Failed])
	var all []leaky.Look
	for _, id := range ids[state] {
		look := m.look(id)
		if (client == "" || look.Job.Client == client) &&
			(state == "" || look.Standing.State == state) &&
			(code == "" || look.Standing.Failure.Code == code) {
			all = append(all, look)
		}
	}
	return all
}

func (h *history) redrive() {
	id := h.id()
	if len(h.model.failed) > 0 {
		id = rapid.SampledFrom(h.model.failed.sorted()).Draw(h.T, "failed job")
	}
	got, err := h.line.Redrive(context.Background(), id)
	if errors.Is(err, leaky.ErrUnknownJob) {
		got, err = "unknown", nil
	}
	h.agree("redrive", got, h.model.redrive(id), err)
}

// preview previews a redrive, and redrives what was previewed some time ago.
func (h *history) preview() {
	f := leaky.FailedFilter{Client: h.client(), Code: rapid.SampledFrom([]string{"",
		jobs.CodeBackendStatus}).Draw(h.T, "code")}
	most := rapid.SampledFrom([]int{1, 2, 100}).Draw(h.T, "most")
	got, err := h.line.PreviewRedrive(context.Background(), f, most)
	token := got.Token
	want := h.model.preview(f, most)
	if got.Token = ""; got.Stopped == leaky.MaxReached {
		want.Stopped = got.Stopped // there may be more, or not
	}
	h.agree(fmt.Sprintf("preview of %+v", f), got, want, err)
	if (token == "") != (want.Jobs == 0) {
		h.Fatalf("%d jobs have the token %q", want.Jobs, token)
	}
	if token != "" {
		h.model.previews[token] = h.model.previewed
		h.tokens = append(h.tokens, token)
	}
}

func (h *history) redrivePreviewed() {
	if len(h.tokens) == 0 {
		h.Skip("no preview yet")
	}
	i := len(h.tokens) - 1 - rapid.IntRange(0, min(len(h.tokens), 22)-1).Draw(h.T, "token")
	got, err := h.line.RedrivePreviewed(context.Background(), h.tokens[i])
	if len(h.tokens)-i > 20 {
		if !errors.Is(err, leaky.ErrNoPreview) {
			h.Fatalf("a preview that 20 others came after: %+v, %v", got, err)
		}
		return
	}
	var want leaky.RedriveResult
	p := h.model.previews[h.tokens[i]]
	for _, id := range p.ids {
		if j := h.model.jobs[id]; j == nil || j.st.State != jobs.Failed ||
			j.st.FinishedAt.After(when(p.at)) {
			want.Skipped++
			continue
		}
		if h.model.redrive(id) == leaky.LineFull {
			want.Stopped = leaky.LineFull
			break
		}
		want.Redriven++
	}
	h.agree("redrive of a preview", got, want, err)
}

// previewed are the jobs of a preview, and when it was made.
type previewed struct {
	ids []string
	at  float64
}

// preview is the model's PreviewRedrive.
func (m *model) preview(f leaky.FailedFilter, most int) leaky.Preview {
	v := m.view()
	p := leaky.Preview{At: when(m.now), ByClient: map[string]int{}, ByOperation: map[string]int{},
		ByCode: map[string]int{}, Ahead: int64(len(m.line) + len(m.delayed)), Paused: v.paused}
	m.previewed = previewed{at: m.now}
	for _, id := range m.failed.within(upTo(m.now), len(m.failed)) {
		look := m.look(id)
		if f.Client != "" && look.Job.Client != f.Client ||
			f.Code != "" && look.Standing.Failure.Code != f.Code || p.Jobs == most {
			continue
		}
		if p.Jobs == 0 {
			p.Oldest = look.Standing.FinishedAt
		}
		p.Jobs++
		p.ByClient[look.Job.Client]++
		p.ByOperation[look.Job.Operation]++
		p.ByCode[look.Standing.Failure.Code]++
		m.previewed.ids = append(m.previewed.ids, id)
	}
	p.Room = max(int64(v.capacity)-p.Ahead, 0)
	if !v.paused {
		p.Wait = span(v.waitFor(max(int(p.Ahead)+p.Jobs-1, 0), v.full()))
	}
	return p
}

func (h *history) client() string {
	return rapid.SampledFrom([]string{"", "a", "b", "nobody"}).Draw(h.T, "client")
}

func (h *history) list() {
	f := leaky.ListFilter{Client: h.client(), Limit: rapid.IntRange(1, 4).Draw(h.T, "limit"),
		Work: rapid.IntRange(0, 4).Draw(h.T, "work"),
		State: rapid.SampledFrom([]jobs.State{"", jobs.Waiting, jobs.Delayed, jobs.Released,
			jobs.Running, jobs.Failed}).Draw(h.T, "state")}
	h.agree("list", h.pages(f), h.model.list(f.State, f.Client, ""), nil)
}

func (h *history) pages(f leaky.ListFilter) (got []leaky.Look) {
	for {
		page, err := h.line.List(context.Background(), f)
		if err != nil || len(page.Jobs) > f.Limit || page.Work > cmp.Or(f.Work, leaky.MaxWork) {
			h.Fatalf("a page of %d jobs of %d that were looked at, want %d of %d: %v",
				len(page.Jobs), page.Work, f.Limit, f.Work, err)
		}
		got = append(got, page.Jobs...)
		if f.Cursor = page.Next; f.Cursor == "" {
			return got
		}
	}
}

func (h *history) failed() {
	f := leaky.ListFilter{State: jobs.Failed, Client: h.client(),
		Limit: rapid.IntRange(1, 4).Draw(h.T, "limit"),
		Work:  rapid.IntRange(0, 4).Draw(h.T, "work"),
		Code: rapid.SampledFrom([]string{"", jobs.CodeWorkerLost, jobs.CodeBackendStatus,
			"other"}).Draw(h.T, "code")}
	h.agree("failed", h.pages(f), h.model.list(jobs.Failed, f.Client, f.Code), nil)
}

func (h *history) books() {
	got, err := h.line.CheckBooks(context.Background())
	s := h.model.status()
	want := leaky.Report{At: when(h.model.now), Waiting: s.Waiting, Delayed: s.Delayed,
		InFlight: s.InFlight, Listed: int64(len(h.model.failed)),
		Books: s.Books, Repairs: map[string]int64{}}
	for _, kind := range leaky.RepairKinds {
		want.Repairs[kind] = 0
	}
	h.agree("books", got, want, err)
}

// reconcile checks that the reconciler finds nothing to repair after the line's scripts.
func (h *history) reconcile() {
	got, err := h.line.Reconcile(context.Background())
	if err != nil || len(got.Repairs) > 0 {
		h.Fatalf("reconcile: %+v, %v", got, err)
	}
}

// checkRight fails the test if a whole round of the reconciler finds something to repair.
func (b *bench) checkRight() {
	b.t.Helper()
	if repairs := b.round(); len(repairs) > 0 {
		b.t.Errorf("the reconciler found something to repair: %v", repairs)
	}
}

// round reconciles through one whole round from its beginning, and returns the repairs.
func (b *bench) round() []leaky.Repair {
	b.t.Helper()
	var all []leaky.Repair
	for rounds := 0; rounds < 2; { // the first one may be the end of a round that a test began
		b.pass(5 * time.Second)
		r := b.reconcile()
		if r.Resting {
			b.t.Fatal("it rests")
		}
		all = append(all, r.Repairs...)
		if r.Round {
			rounds++
		}
	}
	return all
}

func (b *bench) reconcile() leaky.Reconciled {
	b.t.Helper()
	r, err := b.Reconcile(context.WithoutCancel(b.t.Context())) // also in a Cleanup
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

package leaky_test

import (
	"cmp"
	"context"
	"slices"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// dues is the model's Dues of a short line.
func (m *model) dues() leaky.Dues {
	d := leaky.Dues{Now: when(m.now), Waiting: int64(len(m.line))}
	for rank, id := range m.line.sorted() {
		j := m.jobs[id]
		by := min(j.start, j.end)
		if j.st.Attempts > 0 {
			by = j.end
		}
		d.Jobs = append(d.Jobs, leaky.Due{Rank: int64(rank), At: when(by)})
	}
	return d
}

// explain is the model's Explain of a job on record, in a short line.
func (m *model) explain(id string) leaky.Explanation {
	e := leaky.Explanation{Look: m.look(id), Status: m.status()}
	if m.view().factor < 1 {
		e.LoweredAt = when(m.cut)
	}
	if e.Position == 0 {
		return e
	}
	first := map[string]string{} // the first job of each client ahead
	for _, ahead := range m.line.sorted()[:e.Position-1] {
		client := m.jobs[ahead].job.Client
		if first[client] == "" {
			first[client] = ahead
			e.Ahead = append(e.Ahead, leaky.Ahead{Client: client})
		}
		i := slices.IndexFunc(e.Ahead, func(a leaky.Ahead) bool { return a.Client == client })
		e.Ahead[i].Jobs++
	}
	slices.SortFunc(e.Ahead, func(a, b leaky.Ahead) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(first[a.Client], first[b.Client]))
	})
	if j := e.Job; j.Priority != jobs.High {
		high := j
		high.Priority = jobs.High
		weight := j.Weight / j.Priority.Weight() * jobs.High.Weight()
		tag := max(m.v, m.flows[flowOf(high)]) + 1/weight
		e.HighPosition = min(int64(m.line.count(below(tag+closeTags))), e.Position-1) + 1
	}
	return e
}

func (h *history) dues() {
	got, err := h.line.Dues(context.Background())
	h.agree("dues", got, h.model.dues(), err)
}

func (h *history) explain() {
	id := h.id()
	if !h.model.onRecord(id) {
		return // as look
	}
	got, err := h.line.Explain(context.Background(), id)
	got.Status.Recent = leaky.Calls{} // as status
	h.agree("explain", got, h.model.explain(id), err)
	for _, r := range got.Remedies() {
		if r.Wait < 0 {
			h.Fatalf("remedy %+v", r)
		}
	}
}

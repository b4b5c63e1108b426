package admission

import "slices"

// concurrency counts jobs that wait or run. A place is held by a member, from the charge until it is refunded or the job has ended; places.go
// says how places outlive their jobs by a lease at most. State: since when each member is known to live.
type concurrency struct{ limit int64 }

// placesLast is the TTL of a key of places, in ms: more than a job can live (config: max_age and timeout are at most 30 and 1 days).
const placesLast = 32 * 24 * 3600 * 1000

// retryPlace is the wait that is told for a place, in µs, where nobody predicts one.
const retryPlace = 1_000_000

func (p concurrency) unit() int64 { return 1 }

func (p concurrency) load(s *state, _ int64) fill { return p.fill(s) }

func (p concurrency) fill(s *state) fill {
	return fill{room: p.limit - int64(len(s.held.since)), also: s.held.oldest()}
}

func (p concurrency) spend(s *state, _ fill, now int64, c charge) fill {
	if c.member != "" {
		s.held.take(c.member, now)
	}
	return p.fill(s)
}

func (p concurrency) refund(s *state, f fill, _ int64, c charge) fill {
	if c.cost < 0 {
		return f // jobs of elsewhere are held elsewhere
	}
	delete(s.held.since, c.member)
	return p.fill(s)
}

// held are the members that hold places, in the order in which they came; those that have left are skipped when they are the oldest.
type held struct {
	since map[string]int64
	order []arrival
}

type arrival struct {
	member string
	at     int64
}

// here reports whether the member that arrived so still holds its place.
func (h *held) here(a arrival) bool {
	since, has := h.since[a.member]
	return has && since == a.at
}

func (h *held) take(member string, now int64) {
	if _, has := h.since[member]; has {
		return
	}
	if h.since == nil {
		h.since = make(map[string]int64)
	}
	if len(h.order) > 2*len(h.since)+16 { // most have left
		h.order = slices.DeleteFunc(h.order, func(a arrival) bool { return !h.here(a) })
	}
	h.since[member] = now
	h.order = append(h.order, arrival{member, now})
}

func (h *held) oldest() int64 {
	for len(h.order) > 0 {
		if h.here(h.order[0]) {
			return h.order[0].at
		}
		h.order = h.order[1:]
	}
	return 0
}

func (p concurrency) wait(f fill, _, _ int64) int64 {
	if f.room >= 1 {
		return 0
	}
	return retryPlace
}

// reset: there is no window.
func (p concurrency) reset(fill, int64) int64 { return 0 }

func (p concurrency) parameters() [5]int64 { return [5]int64{kindConcurrency, 1, p.limit, placesLast} }

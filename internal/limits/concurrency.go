package limits

// concurrency counts jobs that wait or run. A permit is held by a member, from the charge until it is refunded or the job has ended; places.go
// says how it comes back where a process dies in between. State: the members.
type concurrency struct{ limit int64 }

// placesLast is the TTL of a key of places, in ms: more than a job can live (config: max_age and timeout are at most 30 and 1 days).
const placesLast = 32 * 24 * 3600 * 1000

// retryPlace is the wait that is told for a place, in µs, where nobody predicts one.
const retryPlace = 1_000_000

func (p concurrency) unit() int64 { return 1 }

func (p concurrency) load(s *state, _ int64) fill { return p.fill(s) }

func (p concurrency) fill(s *state) fill {
	return fill{room: p.limit - int64(len(s.held))}
}

func (p concurrency) spend(s *state, _ fill, _ int64, c charge) fill {
	if c.member != "" {
		if s.held == nil {
			s.held = map[string]bool{}
		}
		s.held[c.member] = true
	}
	return p.fill(s)
}

func (p concurrency) refund(s *state, f fill, _ int64, c charge) fill {
	if c.cost < 0 {
		return f // jobs of elsewhere are held elsewhere
	}
	delete(s.held, c.member)
	return p.fill(s)
}

func (p concurrency) wait(f fill, _, _ int64) int64 {
	if f.room >= 1 {
		return 0
	}
	return retryPlace
}

// reset: there is no window.
func (p concurrency) reset(fill, int64) int64 { return 0 }

func (p concurrency) later(f fill, _, _ int64) (fill, bool) { return f, true }

func (p concurrency) parameters() [5]int64 { return [5]int64{kindConcurrency, 1, p.limit, placesLast} }

package limits

// concurrency counts jobs that wait or run. A member holds a permit from the charge until a refund
// or the job's end. permits.go and cluster.go describe how a permit is given back after a crash.
// State: the members.
type concurrency struct{ limit int64 }

// permitsLast is the TTL of a key of permits, in ms. A job can't live longer: in the config,
// max_age is at most 30 days, and timeout at most one.
const permitsLast = 32 * 24 * 3600 * 1000

// retryPermit is the wait for a permit, in µs, if there is no prediction.
const retryPermit = 1_000_000

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
		return f // permits are a region's own
	}
	delete(s.held, c.member)
	return p.fill(s)
}

func (p concurrency) wait(f fill, _, _ int64) int64 {
	if f.room >= 1 {
		return 0
	}
	return retryPermit
}

// reset is 0, because there is no window.
func (p concurrency) reset(fill, int64) int64 { return 0 }

func (p concurrency) later(f fill, _, _ int64) (fill, bool) { return f, true }

func (p concurrency) parameters() [5]int64 {
	return [5]int64{kindConcurrency, 1, p.limit, permitsLast}
}

package limits

// MaxLog bounds the amount of a sliding-window-log. Each admitted request may be an entry of some
// 20 bytes, and 10,000 are 200 kB for one client.
const MaxLog = 10_000

// log is a sliding window log. It knows when each cost was spent, so any window of its length holds
// at most the limit. Costs of one microsecond share an entry, and each entry is for a cost of at
// least one, so there are never more entries than the limit. State: the entries.
type log struct {
	limit  int64
	window int64 // µs
}

// entries are in the order of time. Those before first no longer count. They are overwritten later,
// so that the others aren't moved each time.
type entries struct {
	list  []entry
	first int
	total int64 // of the costs from first on
}

type entry struct{ at, cost int64 }

func (e *entries) len() int { return len(e.list) - e.first }

func (e *entries) newest() *entry { return &e.list[len(e.list)-1] }

func (e *entries) add(now, cost int64) {
	e.total += cost
	if e.len() > 0 && e.newest().at == now {
		e.newest().cost += cost
		return
	}
	if len(e.list) == cap(e.list) && e.first > len(e.list)/2 {
		e.list = e.list[:copy(e.list, e.list[e.first:])]
		e.first = 0
	}
	e.list = append(e.list, entry{now, cost})
}

// fold moves entries that are ahead of now, after a clock that stepped back, to now. They leave
// within one window.
func (e *entries) fold(now int64) {
	ahead := int64(0)
	for e.len() > 0 && e.newest().at > now {
		ahead += e.newest().cost
		e.list = e.list[:len(e.list)-1]
	}
	if ahead > 0 {
		e.total -= ahead
		e.add(now, ahead)
	}
}

// leave drops the entries up to a given time.
func (e *entries) leave(until int64) {
	for e.len() > 0 && e.list[e.first].at <= until {
		e.total -= e.list[e.first].cost
		e.first++
	}
}

func (g log) unit() int64 { return 1 }

func (g log) load(s *state, now int64) fill {
	s.log.fold(now)
	s.log.leave(now - g.window)
	return g.fill(s)
}

func (g log) fill(s *state) fill {
	f := fill{room: g.limit - s.log.total}
	if s.log.len() > 0 {
		f.also = s.log.list[s.log.first].at
	}
	return f
}

// fitsAt returns how long after now a cost fits that doesn't fit now: until enough of the oldest
// entries have left.
func (g log) fitsAt(s *state, f fill, now, cost int64) int64 {
	if cost > g.limit {
		return 0
	}
	free := f.room
	for _, e := range s.log.list[s.log.first:] {
		if free += e.cost; free >= cost {
			return e.at + g.window - now
		}
	}
	return g.window
}

func (g log) spend(s *state, _ fill, now int64, c charge) fill {
	if c.cost > 0 {
		s.log.add(now, c.cost)
	}
	return g.fill(s)
}

// refund takes from the entry of the charge's moment, or, if the clock has stepped back since, from
// the newest. A debit is logged now, as far as there is room for it, so that there are never more
// entries than the limit.
func (g log) refund(s *state, f fill, now int64, c charge) fill {
	if c.cost < 0 {
		if cost := min(-c.cost, f.room); cost > 0 {
			s.log.add(now, cost)
		}
		return g.fill(s)
	}
	e := &s.log
	for i := len(e.list) - 1; i >= e.first && (e.list[i].at >= c.at || c.at > now); i-- {
		if e.list[i].at != c.at && c.at <= now {
			continue
		}
		back := min(c.cost, e.list[i].cost)
		e.list[i].cost -= back
		e.total -= back
		if e.list[i].cost == 0 {
			e.list = append(e.list[:i], e.list[i+1:]...)
		}
		break
	}
	return g.fill(s)
}

func (g log) wait(f fill, _, cost int64) int64 {
	if f.room >= cost {
		return 0
	}
	return f.wait
}

// reset is the time until the oldest entry leaves.
func (g log) reset(f fill, now int64) int64 {
	if f.also == 0 {
		return 0
	}
	return f.also + g.window - now
}

// later is ok until the oldest entry leaves: a fill doesn't have the next one.
func (g log) later(f fill, then, now int64) (fill, bool) {
	f.wait -= now - then
	return f, f.also == 0 || g.reset(f, now) > 0
}

func (g log) parameters() [5]int64 { return [5]int64{kindLog, 1, g.limit, g.window} }

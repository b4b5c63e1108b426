package limits

// counter is a sliding window counter. It counts in windows aligned to multiples of the window
// since 1970, and assumes that the requests of the window before were spread evenly. Its estimate
// is previous·(the part of the sliding window in the window before) + current. Only admitted
// requests count. All is multiplied by the steps of a window, so that it stays in integers. State:
// index of the window, count of the one before, count of this one.
type counter struct {
	limit  int64
	window int64 // µs
	step   int64 // µs: the resolution of time; 1 if amount × window fits
	steps  int64 // in a window, of which the last may be shorter; limit·steps is at most maxExact
}

// newCounter takes the window in µs.
func newCounter(limit, window int64) counter {
	most := maxExact / limit // steps; at least 9,000,000
	step := ceilDiv(window, most)
	return counter{limit: limit, window: window, step: step, steps: ceilDiv(window, step)}
}

func (c counter) unit() int64 { return c.steps }

// rest is how many steps of the window before still lie in the sliding window. It is rounded up, so
// that the estimate is never too low.
func (c counter) rest(now int64) int64 { return c.steps - now%c.window/c.step }

func (c counter) load(s *state, now int64) fill {
	if !s.used {
		return fill{room: c.limit * c.steps}
	}
	index := now / c.window
	var previous, current int64
	switch kept := s.numbers; {
	case kept[0] == index:
		previous, current = min(c.limit, kept[1]), min(c.limit, kept[2])
	case kept[0] == index-1:
		previous = min(c.limit, kept[2])
	case kept[0] > index:
		// The clock stepped back. The counts become those of the window before, so that they end
		// within a window from now.
		previous = min(c.limit, kept[1]+kept[2])
		s.numbers = [3]int64{index, previous, 0}
	}
	return c.fill(now, previous, current)
}

func (c counter) fill(now, previous, current int64) fill {
	return fill{room: (c.limit-current)*c.steps - previous*c.rest(now), also: previous}
}

// current is the count of this window: the inverse of fill.
func (c counter) current(f fill, now int64) int64 {
	return c.limit - (f.room+f.also*c.rest(now))/c.steps
}

func (c counter) store(s *state, f fill, now int64) fill {
	s.numbers, s.used = [3]int64{now / c.window, f.also, c.current(f, now)}, true
	return f
}

func (c counter) spend(s *state, f fill, now int64, ch charge) fill {
	f.room -= ch.cost * c.steps
	return c.store(s, f, now)
}

func (c counter) refund(s *state, f fill, now int64, ch charge) fill {
	current := c.current(f, now)
	switch index, charged := now/c.window, ch.at/c.window; {
	case charged == index:
		current = max(0, min(c.limit, current-ch.cost))
	case charged == index-1, charged > index: // as in load
		f.also = max(0, min(c.limit, f.also-ch.cost))
	}
	return c.store(s, c.fill(now, f.also, current), now)
}

func (c counter) wait(f fill, now, cost int64) int64 {
	if f.room >= cost*c.steps {
		return 0
	}
	next := c.window - now%c.window // the window's end
	free, current := c.limit-cost, c.current(f, now)
	if current < free {
		// During this window, enough of the one before leaves: previous·rest ≤
		// (free-current)·steps.
		return c.begin((free-current)*c.steps/f.also) - now%c.window
	}
	if current == free {
		return next // all of the window before must leave
	}
	// Enough of this window must leave during the next: current·rest ≤ free·steps.
	return next + c.begin(free*c.steps/current)
}

// begin returns from when on, in µs from a window's start, only rest steps of the window before
// count.
func (c counter) begin(rest int64) int64 { return min(c.window, (c.steps-rest)*c.step) }

// reset is the time until the window ends. With nothing left, it is the time until one more request
// is admitted. That may be in the next window: at the end of this one, the client could still be
// refused.
func (c counter) reset(f fill, now int64) int64 {
	if f.room < c.steps {
		return c.wait(f, now, 1)
	}
	return c.window - now%c.window
}

func (c counter) later(f fill, then, now int64) (fill, bool) {
	var s state
	c.store(&s, f, then)
	return c.load(&s, now), true
}

func (c counter) parameters() [5]int64 {
	return [5]int64{kindCounter, c.steps, c.limit, c.window, c.step}
}

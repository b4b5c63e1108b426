package limits

import "time"

// fixed is a fixed window: a count that begins anew at each multiple of the window since 1970 UTC,
// or with each month of the UTC calendar. State: number of the window, its count.
type fixed struct {
	limit  int64
	window int64 // µs; 0: a calendar month
}

func (w fixed) unit() int64 { return 1 }

// bounds returns the number, the begin and the end of the window that now is in.
func (w fixed) bounds(now int64) (number, begin, end int64) {
	if w.window != 0 {
		number = now / w.window
		return number, number * w.window, (number + 1) * w.window
	}
	year, month, _ := time.UnixMicro(now).UTC().Date()
	return int64(year)*12 + int64(month) - 1,
		time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).UnixMicro(),
		time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
}

func (w fixed) number(now int64) int64 {
	number, _, _ := w.bounds(now)
	return number
}

func (w fixed) load(s *state, now int64) fill {
	if !s.used {
		return fill{room: w.limit}
	}
	number, count := w.number(now), int64(0)
	switch {
	case s.numbers[0] == number:
		count = s.numbers[1]
	case s.numbers[0] > number:
		// The clock stepped back. The count becomes that of the present window, and ends with it.
		count = min(w.limit, s.numbers[1])
		s.numbers[0], s.numbers[1] = number, count
	}
	return fill{room: w.limit - min(w.limit, count)}
}

func (w fixed) store(s *state, f fill, now int64) fill {
	s.numbers, s.used = [3]int64{w.number(now), w.limit - f.room}, true
	return f
}

func (w fixed) spend(s *state, f fill, now int64, c charge) fill {
	f.room -= c.cost
	return w.store(s, f, now)
}

func (w fixed) refund(s *state, f fill, now int64, c charge) fill {
	if w.number(c.at) >= w.number(now) {
		f.room = max(0, min(w.limit, f.room+c.cost))
	}
	return w.store(s, f, now)
}

func (w fixed) wait(f fill, now, cost int64) int64 {
	if f.room >= cost {
		return 0
	}
	return w.reset(f, now)
}

// reset is the time until the window ends.
func (w fixed) reset(_ fill, now int64) int64 {
	_, _, end := w.bounds(now)
	return end - now
}

func (w fixed) later(f fill, then, now int64) (fill, bool) {
	var s state
	w.store(&s, f, then)
	return w.load(&s, now), true
}

func (w fixed) parameters() [5]int64 { return [5]int64{kindFixed, 1, w.limit, w.window} }

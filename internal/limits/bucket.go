package limits

import "fmt"

// bucket is a token bucket. It counts in shares of a token, chosen so that each microsecond adds a
// whole number of them. For 7 per second, these are 7 shares per µs and 1,000,000 per token. State:
// level in shares, time of that level. After a debit, the level can be below zero.
//
// A leaky bucket as a meter fills by the cost and leaks at the rate. Its empty part is the token
// bucket's full part, so it has the same arithmetic.
type bucket struct {
	refill int64 // shares per µs
	token  int64 // shares per token
	full   int64 // shares in a full bucket, at most maxExact
	period int64 // µs from empty to full; at least minPeriod
}

// minPeriod keeps a fast bucket from renewing its key's TTL with every request.
const minPeriod = 1_000_000

// coarse is the number of µs per token from which a token may be rounded up to whole µs. The rate
// is then too low by less than 1/coarse.
const coarse = 100_000

// maxPeriod bounds a bucket's time to fill. No limit needs as much, and twice as much, the longest
// TTL, still fits the nanoseconds in which miniredis counts.
const maxPeriod = 100 * 366 * 24 * 3600 * 1_000_000

// newBucket takes the window in µs. It fails if shares would outgrow exact numbers.
func newBucket(amount, window, burst int64) (bucket, error) {
	g := gcd(amount, window)
	b := bucket{refill: amount / g, token: window / g}
	if burst > b.most() && window/amount >= coarse {
		b = bucket{refill: 1, token: ceilDiv(window, amount)}
	}
	if burst > b.most() {
		return bucket{}, fmt.Errorf("burst %d: %d per %v can be counted exactly up to %d; "+
			"use a smaller burst, or a rounder amount and window",
			burst, amount, micros(window), b.most())
	}
	b.full = burst * b.token
	b.period = max(minPeriod, ceilDiv(b.full, b.refill))
	return b, nil
}

// most is the largest possible burst. With a refill of 3 or more, every level up to maxExact fills
// within maxPeriod.
func (b bucket) most() int64 { return min(maxExact, maxPeriod*min(b.refill, 3)) / b.token }

func (b bucket) unit() int64 { return b.token }

func (b bucket) load(s *state, now int64) fill {
	if !s.used {
		return fill{room: b.full}
	}
	level, passed := s.numbers[0], now-s.numbers[1]
	switch {
	case passed < 0: // the level stands, and is refilled from now on
		s.numbers[1] = now
	case passed >= ceilDiv(b.full-level, b.refill): // first, as passed·refill could overflow
		level = b.full
	default:
		level += passed * b.refill
	}
	return fill{room: level}
}

func (b bucket) store(s *state, f fill, now int64) fill {
	s.numbers, s.used = [3]int64{f.room, now}, true
	return f
}

func (b bucket) spend(s *state, f fill, now int64, c charge) fill {
	f.room -= c.cost * b.token
	return b.store(s, f, now)
}

// refund can give too much, by at most the cost, if the bucket has been full since. A debit can
// leave a debt, which is paid before anything is admitted; otherwise, each of the regions that
// spend together would begin anew after every exchange. The debt is bounded: from there to full is
// maxExact.
func (b bucket) refund(s *state, f fill, now int64, c charge) fill {
	most := maxExact / b.token
	f.room = max(b.full-maxExact, min(b.full, f.room+max(-most, min(most, c.cost))*b.token))
	return b.store(s, f, now)
}

func (b bucket) wait(f fill, _, cost int64) int64 {
	return ceilDiv(max(0, cost*b.token-f.room), b.refill)
}

// reset is the time until the bucket is full.
func (b bucket) reset(f fill, _ int64) int64 { return ceilDiv(b.full-f.room, b.refill) }

func (b bucket) later(f fill, then, now int64) (fill, bool) {
	var s state
	b.store(&s, f, then)
	return b.load(&s, now), true
}

func (b bucket) parameters() [5]int64 {
	return [5]int64{kindBucket, b.token, b.refill, b.full, b.period}
}

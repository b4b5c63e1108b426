package limits

// arithmetic is how one algorithm counts. Each decision is a function of the state, the cost and
// the time alone. Each algorithm is written twice, here and in limits.lua, and tests compare the
// two over random histories. All numbers are integers. Times are µs since 1970, and nothing reaches
// 2^53, above which Lua's numbers aren't exact.
//
// All algorithms come down to one question. At a given moment a limit has some room, a cost of k
// needs k·unit of it, and spending takes that away. The algorithms differ in how the room grows
// with time and how it is kept.
type arithmetic interface {
	// unit is the room that a cost of one needs.
	unit() int64
	// load brings a state to now and returns where it stands. A state can be ahead of now, after a
	// clock that stepped back. Its counts then count as of now, so no client is locked out.
	load(s *state, now int64) fill
	// spend takes a cost that fits.
	spend(s *state, f fill, now int64, c charge) fill
	// refund gives back what was charged at c.at, as far as it still counts. A negative cost is a
	// debit: it was spent elsewhere, and is taken whether it fits or not.
	refund(s *state, f fill, now int64, c charge) fill
	// wait is how long after now a cost, not over the capacity, fits. It is 0 if the cost fits now,
	// otherwise the time to the first microsecond at which it does.
	wait(f fill, now, cost int64) int64
	// reset is how long after now the client can't use more than the room; see Standing.
	reset(f fill, now int64) int64
	// later returns where a key stands at now, if it stood at f then and nothing was charged or
	// given back since. ok is false if f alone doesn't determine that.
	later(f fill, then, now int64) (at fill, ok bool)
	// parameters are the numbers by which limits.lua knows the limit.
	parameters() [5]int64
}

// state is what is kept of a limit's key between requests. Each algorithm uses its own part of it.
// The zero value is a key that was never charged.
type state struct {
	numbers [3]int64
	used    bool            // numbers have a meaning
	log     entries         // sliding-window-log
	held    map[string]bool // concurrency: the members
}

// fill is where a key stands at one moment.
type fill struct {
	// room is free, in the algorithm's units. It is negative if more was spent than fits:
	// elsewhere, or under a larger amount.
	room int64
	also int64 // counter: the count of the window before; log: the time of the oldest entry
	wait int64 // log: see arithmetic.wait, if the cost doesn't fit
}

// charge is what one request takes of a limit.
type charge struct {
	cost   int64
	at     int64  // refund: when it was charged
	member string // concurrency: the holder of the permit
}

// The algorithms' numbers in limits.lua.
const (
	kindBucket = iota + 1
	kindCounter
	kindFixed
	kindLog
	kindConcurrency
)

// remaining returns how many requests of cost 1 would be admitted.
func (r *Rule) remaining(f fill) int64 { return max(0, f.room/r.unit) }

// need returns the room that a request for so much needs.
func (r *Rule) need(takes int64) int64 { return takes * r.unit }

// fits reports whether a request for so much is admitted. A request that takes nothing is admitted
// even if the limit is overdrawn.
func (r *Rule) fits(f fill, takes int64) bool {
	return takes == 0 || !r.never(takes) && f.room >= r.need(takes)
}

// maxExact is the largest integer up to which a float64 can hold every integer.
const maxExact = 1<<53 - 1

// ceilDiv is a/b rounded up, for a ≥ 0 and b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

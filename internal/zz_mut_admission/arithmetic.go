package admission

// arithmetic is how one algorithm counts. It is pure: what a request may do is a function
// of the state, the cost and the time alone. Each is written twice, here and in limits.lua,
// and the tests hold the two against each other on random histories. All is in integers:
// times are µs since 1970, and nothing reaches 2^53, where Lua's numbers stop being exact.
//
// Both algorithms reduce to one question. At a given moment a limit has some room, a cost
// of k needs k·unit of it, and spending takes that away. What differs is how the room
// grows with time and how it is kept.
type arithmetic interface {
	// unit is the room that a cost of one needs.
	unit() int64
	// fresh is where a key stands at now that was never charged.
	fresh(now int64) fill
	// load brings a stored state to now. A state ahead of now, after a clock that stepped back,
	// locks nobody out: its time counts as now. Then it must be stored again, whatever is
	// decided, or the next load would begin anew.
	load(s state, now int64) (f fill, ahead bool)
	// store is what to keep of f, which is at now.
	store(f fill, now int64) state
	// refund gives back a cost charged at the time at, as far as it still counts.
	refund(f fill, now, cost, at int64) fill
	// wait is how long after now a cost, not over the capacity, fits: 0 when it fits now,
	// otherwise the first microsecond at which it does.
	wait(f fill, now, cost int64) int64
	// reset is how long after now the room can be taken as all there is; see Standing.
	reset(f fill, now int64) int64
	// parameters are what limits.lua knows the limit by.
	parameters() [5]int64
}

// state is what is kept of a limit's key between requests. Its meaning is the algorithm's.
type state [3]int64

// fill is where a key stands at one moment.
type fill struct {
	room     int64 // what is free, in the algorithm's units; negative where a counter's clock stepped back
	previous int64 // sliding-window-counter: the count of the window before
}

// remaining is how many requests of cost 1 would be admitted.
func (r *Rule) remaining(f fill) int64 { return max(0, f.room/r.unit) }

// fits reports whether a cost, not over the capacity, is admitted.
func (r *Rule) fits(f fill, cost int64) bool { return f.room >= cost*r.unit }

// maxExact is the largest integer up to which a float64 holds every one.
const maxExact = 1<<53 - 1

// ceilDiv is a/b rounded up, for a ≥ 0 and b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

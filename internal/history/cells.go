package history

import (
	"math"
	"slices"
	"time"
)

// Three bytes hold a cell: a count up to top, the lowest 24 bits of a total, or a number in the
// form of pack.
const top = 1<<24 - 1

// Counts of a sample.
const (
	waiting    = "waiting"
	capacity   = "capacity"
	oldest     = "oldest" // packed seconds
	configured = "configured"
	override   = "override"
	effective  = "effective" // packed, per second
	state      = "state"     // bits; 0: there is no sample
	started    = "started"
	throttled  = "throttled"
	succeeded  = "succeeded"
	failed     = "failed"
	canceled   = "canceled"
	expired    = "expired"
)

// Bits of state. The number of the cause is above them.
const (
	sampled = 1 << iota
	isPaused
	isProbing
	causeUnit
)

// causes are the signs of trouble of package leaky. Their numbers are in Redis: add only at the
// end.
var causes = []string{"", "throttled", "timeout", "unreachable"}

// totals are the cells of Totals, by name.
func (s *Totals) totals() map[string]*int64 {
	return map[string]*int64{started: &s.Started, throttled: &s.Throttled, succeeded: &s.Succeeded,
		failed: &s.Failed, canceled: &s.Canceled, expired: &s.Expired}
}

// cells are the cells of a sample.
func (s Sample) cells() map[string]uint32 {
	word := sampled + causeUnit*max(slices.Index(causes, s.Cause), 0)
	if s.Paused {
		word += isPaused
	}
	if s.Probing {
		word += isProbing
	}
	cells := map[string]uint32{
		waiting:  uint32(min(max(s.Waiting, 0), top)),
		capacity: uint32(min(max(s.Capacity, 0), top)),
		oldest:   pack(s.OldestWait.Seconds()), configured: pack(s.Configured),
		override: pack(s.Override), effective: pack(s.Effective), state: uint32(word),
	}
	for name, n := range s.totals() {
		cells[name] = uint32(*n) & top
	}
	return cells
}

// sampleOf reads a sample back. Its totals have only their lowest 24 bits.
func sampleOf(cell func(name string) uint32) (s Sample, ok bool) {
	word := int(cell(state))
	if word == 0 {
		return Sample{}, false
	}
	s = Sample{Waiting: int64(cell(waiting)), Capacity: int64(cell(capacity)),
		OldestWait: time.Duration(unpack(cell(oldest)) * float64(time.Second)),
		Configured: unpack(cell(configured)), Override: unpack(cell(override)),
		Effective: unpack(cell(effective)), Paused: word&isPaused != 0,
		Probing: word&isProbing != 0}
	if cause := word / causeUnit; cause < len(causes) {
		s.Cause = causes[cause]
	}
	for name, n := range s.totals() {
		*n = int64(cell(name))
	}
	return s, true
}

// since is what was added to a total between two samples, from their lowest 24 bits. A total that
// has gone down (Redis has lost it, or a failed job was redriven) adds nothing.
func since(was, is int64) int64 {
	n := (is - was) & top
	if n > top/2 {
		return 0
	}
	return n
}

// Numbers are packed as floating point: 18 bits of mantissa, 6 of exponent. They are at most 2
// millionths off, from 1/2^28 to 2^36.
const (
	mantissa = 18
	bias     = 28
)

// pack packs a number. 0 and less is 0, +Inf is top.
func pack(x float64) uint32 {
	if !(x > 0) {
		return 0
	}
	if math.IsInf(x, 1) {
		return top
	}
	part, exponent := math.Frexp(x) // part is from 1/2 to 1
	code := int64(exponent-1+bias)<<mantissa +
		int64(math.Round((2*part-1)*(1<<mantissa)))
	return uint32(min(max(code, 1), top-1))
}

func unpack(code uint32) float64 {
	switch code {
	case 0:
		return 0
	case top:
		return math.Inf(1)
	}
	part := 1 + float64(code&(1<<mantissa-1))/(1<<mantissa)
	return math.Ldexp(part, int(code>>mantissa)-bias)
}

package leaky

import (
	"sync"
	"time"
)

// Clock is Redis's time as seen from this process. It keeps the offset between the process's
// monotonic clock and Redis's TIME, learnt from the scripts' answers, so that sleeping until a due
// time doesn't depend on the host's clock. Safe for concurrent use.
type Clock struct {
	mu     sync.Mutex
	known  bool
	base   time.Time     // when offset was learnt; carries Go's monotonic reading
	micros int64         // Redis's time at base
	error  time.Duration // of micros at most: half the round trip
}

// driftPerSecond is how much less exact an offset becomes: two computers' clocks drift apart by up
// to about 100 µs a second. So an old exact reading is replaced by a newer rougher one in time.
const driftPerSecond = 100 * time.Microsecond

// Observe learns from one script call, from the times of sending and receiving on this host and
// Redis's time in between.
func (c *Clock) Observe(sent, received time.Time, redisMicros int64) {
	half := received.Sub(sent) / 2
	c.mu.Lock()
	defer c.mu.Unlock()
	age := received.Sub(c.base)
	if c.known && half > c.error+time.Duration(age.Seconds()*float64(driftPerSecond)) {
		// A rough reading is ignored, unless Redis's clock has stepped: then any reading is better
		// than the old one.
		off := c.at(received.Add(-half)) - redisTime(redisMicros)
		if off.abs() <= half.Microseconds()+c.error.Microseconds()+1000 {
			return
		}
	}
	c.known, c.base, c.micros, c.error = true, sent.Add(half), redisMicros, half
}

type redisTime int64

func (m redisTime) abs() int64 {
	if m < 0 {
		return int64(-m)
	}
	return int64(m)
}

// at returns Redis's time at t. Callers hold mu.
func (c *Clock) at(t time.Time) redisTime {
	return redisTime(c.micros + t.Sub(c.base).Microseconds())
}

// Until returns how long it is from now to due (µs, Redis's clock); never more than longest, and 0
// when due has passed or nothing was observed yet.
func (c *Clock) Until(due int64, longest time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0
	}
	left := time.Duration(due-int64(c.at(time.Now()))) * time.Microsecond
	return min(max(left, 0), longest)
}

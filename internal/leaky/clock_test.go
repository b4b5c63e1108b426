package leaky_test

import (
	"testing"
	"time"

	"forebay/internal/leaky"
)

const longest = time.Second

func TestAClockKnowsRedisTimeWhateverTheHostsSays(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{0, time.Hour, -30 * 24 * time.Hour} {
		var c leaky.Clock
		sent := time.Now()
		received := sent.Add(time.Millisecond)
		redis := sent.Add(500*time.Microsecond + off)
		c.Observe(sent, received, redis.UnixMicro())
		got := c.Until(redis.Add(500*time.Millisecond).UnixMicro(), longest)
		if late := time.Since(sent); got > 500*time.Millisecond+time.Millisecond || got < 500*time.Millisecond-late-time.Millisecond {
			t.Errorf("offset %v: %v until a moment 500 ms ahead", off, got)
		}
	}
}

// Trap: a task that comes before the first answer would sleep for decades.
func TestAClockNeverSleepsOnNonsense(t *testing.T) {
	t.Parallel()
	var c leaky.Clock
	if got := c.Until(time.Now().Add(time.Hour).UnixMicro(), longest); got != 0 {
		t.Errorf("before anything was observed: %v, want 0", got)
	}
	now := time.Now()
	c.Observe(now, now, now.UnixMicro())
	for due, want := range map[int64]time.Duration{0: 0, now.Add(-time.Minute).UnixMicro(): 0, now.Add(50 * 365 * 24 * time.Hour).UnixMicro(): longest} {
		if got := c.Until(due, longest); got != want {
			t.Errorf("until %d: %v, want %v", due, got, want)
		}
	}
}

// minute is what the clock makes of the minute after base, on a host whose clock is off from Redis's.
func minute(c *leaky.Clock, base time.Time, off time.Duration) time.Duration {
	return c.Until(base.Add(off+time.Minute).UnixMicro(), time.Hour) + time.Since(base)
}

func near(d, want, error time.Duration) bool { return (d - want).Abs() <= error }

func TestAClockTrustsItsMostExactReading(t *testing.T) {
	t.Parallel()
	var c leaky.Clock
	base := time.Now()
	c.Observe(base, base.Add(200*time.Microsecond), base.Add(100*time.Microsecond).UnixMicro())
	// An answer that took 80 ms, all of it on its way back, would put the clock wrong by 40 ms.
	c.Observe(base, base.Add(80*time.Millisecond), base.UnixMicro())
	if got := minute(&c, base, 0); !near(got, time.Minute, 5*time.Millisecond) {
		t.Errorf("a minute is %v after a rough reading", got)
	}
}

func TestAClockFollowsAStepOfRedisTime(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Hour, -time.Hour, 2 * time.Second} {
		var c leaky.Clock
		base := time.Now()
		c.Observe(base, base.Add(100*time.Microsecond), base.UnixMicro())
		c.Observe(base.Add(time.Millisecond), base.Add(21*time.Millisecond), base.Add(11*time.Millisecond+step).UnixMicro()) // a rough reading
		if got := minute(&c, base, step); !near(got, time.Minute, 15*time.Millisecond) {
			t.Errorf("a minute is %v after a step of %v", got, step)
		}
	}
}

// Two computers' clocks part by up to 100 µs a second: an old exact reading is worth less than a new rougher one.
func TestAClockForgetsOldReadings(t *testing.T) {
	t.Parallel()
	var c leaky.Clock
	base := time.Now()
	c.Observe(base.Add(-10*time.Minute), base.Add(-10*time.Minute), base.Add(-10*time.Minute).UnixMicro())
	drift := 20 * time.Millisecond
	c.Observe(base, base.Add(30*time.Millisecond), base.Add(15*time.Millisecond+drift).UnixMicro())
	if got := minute(&c, base, drift); !near(got, time.Minute, 5*time.Millisecond) {
		t.Errorf("a minute is %v, 10 minutes and %v of drift later", got, drift)
	}
}

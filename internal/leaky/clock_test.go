package leaky_test

import (
	"testing"
	"time"

	"github.com/forebay/forebay/internal/leaky"
)

// off returns how far Redis's time is from the host's according to the clock, at one moment of the
// host's.
func off(c *leaky.Clock, at time.Time) time.Duration {
	return time.Duration(c.RedisAt(at)-at.UnixMicro()) * time.Microsecond
}

func TestAClockHasRedisTimeWhateverTheHosts(t *testing.T) {
	t.Parallel()
	for _, want := range []time.Duration{0, time.Hour, -30 * 24 * time.Hour} {
		var c leaky.Clock
		sent := time.Now()
		c.Observe(sent, sent.Add(time.Millisecond), sent.Add(500*time.Microsecond+want).UnixMicro())
		if got := off(&c, sent.Add(time.Second)); (got - want).Abs() > time.Microsecond {
			t.Errorf("the clock says %v, Redis is off by %v", got, want)
		}
		due := time.Now().Add(want + 500*time.Millisecond)
		if left := c.Until(due.UnixMicro(), time.Second); left <= 0 || left > 501*time.Millisecond {
			t.Errorf("%v until a moment 500 ms ahead", left)
		}
	}
}

// Without a bound, a task that comes before the first answer would sleep for decades.
func TestAClockNeverSleepsOnNonsense(t *testing.T) {
	t.Parallel()
	const longest = time.Second
	var c leaky.Clock
	if got := c.Until(time.Now().Add(time.Hour).UnixMicro(), longest); got != 0 {
		t.Errorf("before anything was observed: %v, want 0", got)
	}
	now := time.Now()
	c.Observe(now, now, now.UnixMicro())
	for due, want := range map[int64]time.Duration{0: 0, now.Add(-time.Minute).UnixMicro(): 0,
		now.Add(50 * 365 * 24 * time.Hour).UnixMicro(): longest} {
		if got := c.Until(due, longest); got != want {
			t.Errorf("until %d: %v, want %v", due, got, want)
		}
	}
}

func TestAClockTrustsItsMostExactReading(t *testing.T) {
	t.Parallel()
	var c leaky.Clock
	base := time.Now()
	c.Observe(base, base.Add(200*time.Microsecond), base.Add(100*time.Microsecond).UnixMicro())
	// An answer that took 80 ms, all of it on its way back, would make the clock wrong by 40 ms.
	c.Observe(base, base.Add(80*time.Millisecond), base.UnixMicro())
	if got := off(&c, base.Add(time.Second)); got.Abs() > time.Millisecond {
		t.Errorf("after a rough reading the clock is off by %v", got)
	}
}

func TestAClockFollowsAStepOfRedisTime(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Hour, -time.Hour, 2 * time.Second} {
		var c leaky.Clock
		base := time.Now()
		c.Observe(base, base.Add(100*time.Microsecond), base.UnixMicro())
		// A rough reading.
		c.Observe(base.Add(time.Millisecond), base.Add(21*time.Millisecond),
			base.Add(11*time.Millisecond+step).UnixMicro())
		if got := off(&c, base.Add(time.Second)); (got - step).Abs() > time.Millisecond {
			t.Errorf("after a step of %v the clock says %v", step, got)
		}
	}
}

// Two computers' clocks drift apart by up to 100 µs a second, so an old exact reading is worth less
// than a new rougher one.
func TestAClockForgetsOldReadings(t *testing.T) {
	t.Parallel()
	var c leaky.Clock
	base := time.Now()
	c.Observe(base, base, base.UnixMicro())
	const drift = 20 * time.Millisecond
	later := base.Add(10 * time.Minute)
	c.Observe(later, later.Add(30*time.Millisecond),
		later.Add(15*time.Millisecond+drift).UnixMicro())
	if got := off(&c, later.Add(time.Second)); (got - drift).Abs() > time.Millisecond {
		t.Errorf("10 minutes and %v of drift later the clock says %v", drift, got)
	}
}

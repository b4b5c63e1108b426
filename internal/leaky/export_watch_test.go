package leaky

import "time"

// SetClock makes a Watch go by a test's clock.
func (w *Watch) SetClock(now func() time.Time) { w.now = now }

package adminapi

import (
	"math"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/history"
	"github.com/forebay/forebay/internal/leaky"
)

// Jobs that a full line refused have arrived, too; those that a limit refused wouldn't have entered
// any line.
func TestArrivalsIncludeWhatTheLineRefused(t *testing.T) {
	t.Parallel()
	in := leaky.Arrivals{PerSecond: 8, Spread: 3, Over: time.Minute}
	step := func(full, late int64) history.Point {
		return history.Point{Length: 5 * time.Second, Accepted: 40, Degraded: 10,
			Rejected: map[string]int64{"line_full": full, "wait_too_long": late, "per-minute": 99}}
	}
	got := withRefused(in, []history.Point{step(10, 0), step(0, 50)})
	if got.PerSecond != 14 || math.Abs(got.Spread-5) > 1e-9 || got.Over != time.Minute {
		t.Errorf("arrivals = %+v, want 14/s ± 5", got)
	}
	if got := withRefused(in, nil); got != in {
		t.Errorf("without a history: %+v", got)
	}
}

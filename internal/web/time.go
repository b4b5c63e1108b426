package web

import (
	"time"

	"github.com/forebay/forebay/api"
)

// Time returns a time as answers have it; nil for the zero time, which they leave out.
func Time(t time.Time) *api.Time {
	if t.IsZero() {
		return nil
	}
	return &api.Time{Time: t}
}

// Seconds rounds up to whole seconds. A time below 0 is 0.
func Seconds(d time.Duration) int64 {
	return int64((max(d, 0) + time.Second - 1) / time.Second)
}

// WholeSeconds rounds up to whole seconds, at least one, as a Retry-After states them.
func WholeSeconds(d time.Duration) int { return int(max(Seconds(d), 1)) }

package web

import (
	"time"

	"github.com/forebay/forebay/api"
)

// Time returns a time for an answer, or nil for the zero time, which answers leave out.
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

// WholeSeconds rounds up to whole seconds, at least one, for a Retry-After.
func WholeSeconds(d time.Duration) int { return int(max(Seconds(d), 1)) }

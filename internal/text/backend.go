package text

import (
	"fmt"
	"time"

	"github.com/forebay/forebay/api"
)

// Backend writes the state of a backend's drain and line. Times are in UTC.
func Backend(b api.Backend, now time.Time) string {
	at := api.Time{Time: now}
	noted := func(setting string, n api.OverrideNote) string { return setting + noteText(n, at) }
	state := State(b)
	if b.Pause != nil {
		state = noted(state, *b.Pause)
	}
	rows := [][]string{{"backend", Clean(b.Name)}, {"state", state},
		{"rate", noted(Setting(b.Rate), b.Rate.OverrideNote)},
		{"burst", noted(Setting(b.Burst), b.Burst.OverrideNote)},
		{"concurrency", noted(Setting(b.Concurrency), b.Concurrency.OverrideNote)},
		{"capacity", noted(Setting(b.Capacity), b.Capacity.OverrideNote)},
		{"feedback", noted(Setting(b.Feedback), b.Feedback.OverrideNote)}}
	if b.Cause != nil {
		rows = append(rows, []string{"cause",
			fmt.Sprintf("%s: %.0f %% of the rate is left", causeText(*b.Cause), b.Factor*100)})
	}
	if b.Probing {
		rows = append(rows, []string{"probe",
			"one call tests whether the backend has recovered"})
	}
	if b.GateUntil != nil {
		rows = append(rows, []string{"gate until", clock(*b.GateUntil, at)})
	}
	c, o := b.RecentCalls, b.Outcomes
	return Columns("", append(rows,
		[]string{"line", fmt.Sprintf("%d wait, %d wait for a retry, %d in flight, of %d",
			b.Waiting, b.Delayed, b.InFlight, b.Capacity.Effective)},
		[]string{"oldest waits", Span(b.OldestWaitSeconds)},
		[]string{"calls", fmt.Sprintf("%.2f/s in the last minutes, p50 %s, p95 %s, p99 %s",
			c.PerSecond, Span(c.P50Seconds), Span(c.P95Seconds), Span(c.P99Seconds))},
		[]string{"jobs", fmt.Sprintf("%d accepted, %d succeeded, %d failed, %d canceled, "+
			"%d expired", o.Accepted, o.Succeeded, o.Failed, o.Canceled, o.Expired)}))
}

// State is the state of a backend in a word: why it is slower than it should be, otherwise what
// its next job waits on.
func State(b api.Backend) string {
	switch {
	case b.Paused:
		return "paused"
	case b.Cause != nil:
		return Clean(*b.Cause)
	}
	return Clean(b.WaitingOn)
}

// Target is the value that is set, live or in the file.
func Target[T any](s api.Setting[T]) T {
	if s.Override != nil {
		return *s.Override
	}
	return s.Configured
}

// InForce is the value of a setting in force, and the one that is set where feedback leaves less.
func InForce[T comparable](s api.Setting[T]) string {
	text := fmt.Sprint(s.Effective)
	if set := Target(s); s.Effective != set {
		text += fmt.Sprintf(" of %v", set)
	}
	return Clean(text)
}

// Setting is InForce, with the file's value where another is set live.
func Setting[T comparable](s api.Setting[T]) string {
	if s.Override == nil {
		return InForce(s)
	}
	return InForce(s) + Clean(fmt.Sprintf(" (configured %v)", s.Configured))
}

// Overrides has a line for each setting of a backend that isn't the config's, with who set it, why
// and until when.
func Overrides(b api.Backend, now time.Time) (lines []string) {
	at := api.Time{Time: now}
	add := func(name, value string, set bool, n api.OverrideNote) {
		if set {
			lines = append(lines, Clean(b.Name)+": "+name+" "+value+noteText(n, at))
		}
	}
	add("rate", Setting(b.Rate), b.Rate.Override != nil, b.Rate.OverrideNote)
	add("burst", Setting(b.Burst), b.Burst.Override != nil, b.Burst.OverrideNote)
	add("concurrency", Setting(b.Concurrency), b.Concurrency.Override != nil,
		b.Concurrency.OverrideNote)
	add("capacity", Setting(b.Capacity), b.Capacity.Override != nil, b.Capacity.OverrideNote)
	add("feedback", Setting(b.Feedback), b.Feedback.Override != nil, b.Feedback.OverrideNote)
	if b.Pause != nil {
		add("paused", "true", b.Paused, *b.Pause)
	}
	return lines
}

// Line is how full a backend's line is: jobs of its capacity.
func Line(b api.Backend) string {
	return fmt.Sprintf("%d/%d", b.Waiting+b.Delayed, b.Capacity.Effective)
}

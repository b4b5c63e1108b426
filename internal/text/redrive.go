package text

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forebay/forebay/api"
)

// RedrivePreview is one line: how many jobs, whose and of which operations, when the first of them
// failed, when they will have left, and the token that redrives exactly these.
func RedrivePreview(p api.RedrivePreview) string {
	if p.Jobs == 0 {
		return "No failed job matches."
	}
	noun, they, have := "jobs", "They go", "have"
	if p.Jobs == 1 {
		noun, they, have = "job", "It goes", "has"
	}
	groups := counts(p.ByClient) + "; " + counts(p.ByOperation)
	if len(p.ByCode) > 1 {
		groups += "; " + counts(p.ByCode)
	}
	line := fmt.Sprintf("%d %s (%s)", p.Jobs, noun, groups)
	if p.OldestAt != nil {
		line += ", oldest " + clockTime(p.OldestAt.Time, p.At.Time)
	}
	switch p.Stopped {
	case api.StoppedMax:
		line += "; there may be more"
	case api.StoppedTime:
		line += "; the search took too long, there may be more"
	}
	line += fmt.Sprintf(". %s behind %d", they, p.Ahead)
	switch {
	case p.Paused:
		line += "; the backend is paused."
	case p.LeftAt != nil:
		line += " and " + have + " left by about " + clockTime(p.LeftAt.Time, p.At.Time) + "."
	default:
		line += "."
	}
	if p.Room < int64(p.Jobs) {
		line += fmt.Sprintf(" The line has room for %d.", p.Room)
	}
	return line + " Same set: --token " + Clean(p.Token)
}

// Redriven is one line: how many jobs wait again, and what is left to do.
func Redriven(r api.Redriven) string {
	line := fmt.Sprintf("%d redriven", r.Redriven)
	if r.Skipped > 0 {
		line += fmt.Sprintf(", %d skipped: no longer failed", r.Skipped)
	}
	why, known := map[string]string{
		api.StoppedDone:  "",
		api.StoppedMax:   "there may be more",
		api.StoppedFull:  "the line is full",
		api.StoppedTime:  "it took too long, there may be more",
		api.StoppedStore: "the store failed, there may be more",
	}[r.Stopped]
	if !known {
		why = Clean(r.Stopped)
	}
	if why != "" {
		line += "; " + why
	}
	return line
}

// counts lists what is counted, the largest number first: at most five names, then how many others.
func counts(of map[string]int) string {
	const most = 5
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, name := range names[:min(len(names), most)] {
		parts = append(parts, fmt.Sprintf("%s %d", Clean(name), of[name]))
	}
	if others := names[min(len(names), most):]; len(others) > 0 {
		n := 0
		for _, name := range others {
			n += of[name]
		}
		parts = append(parts, fmt.Sprintf("%d others %d", len(others), n))
	}
	return strings.Join(parts, ", ")
}

// clockTime is a time in UTC, with its day if that isn't the day of near.
func clockTime(t, near time.Time) string {
	t, near = t.UTC(), near.UTC()
	if t.Format(time.DateOnly) == near.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

package text

import (
	"fmt"
	"strings"
	"time"

	"github.com/forebay/forebay/api"
)

// History writes a history, a line for each step and backend, in order of time. Times are UTC.
func History(h api.History) string {
	var b strings.Builder
	width, steps := 0, 0
	for _, backend := range h.Backends {
		width = max(width, len([]rune(Clean(backend.Backend))))
		steps = max(steps, len(backend.Points))
	}
	layout := layoutFor(h.From.Time, h.To.Time)
	for i := range steps {
		for _, backend := range h.Backends {
			if i >= len(backend.Points) {
				continue
			}
			p := backend.Points[i]
			fmt.Fprintf(&b, "%s %-*s  in %s/s  %s  429 %s  stale %s\n", p.At.UTC().Format(layout),
				width, Clean(backend.Backend), perSecond(p.Offered, p.Seconds), lineOf(p),
				percent(p.Rejected, p.Offered), percent(p.Degraded, p.Offered))
		}
	}
	return b.String()
}

// lineOf writes what drains: "out 2.97/s of 8/s (throttled)  line 130/1000  wait 44s".
func lineOf(p api.HistoryPoint) string {
	l := p.Line
	if l == nil {
		return "out ?  line ?  wait ?"
	}
	rate, word := l.Rate.Configured, ""
	if l.Rate.Override != nil {
		rate = *l.Rate.Override
	}
	switch {
	case l.Paused:
		word = " (paused)"
	case l.Probing:
		word = " (probing)"
	case l.Cause != "":
		word = " (" + Clean(l.Cause) + ")"
	}
	return fmt.Sprintf("out %s/s of %s%s  line %d/%d  wait %s", perSecond(l.Started, p.Seconds),
		Clean(rate), word, l.Waiting, l.Capacity, brief(l.OldestWaitSeconds))
}

// Events writes events, a line for each: when, what, on which backend, by whom, and the rest. Times
// are UTC.
func Events(all api.OperationEvents) string {
	var b strings.Builder
	if len(all.Events) == 0 {
		return ""
	}
	layout := layoutFor(all.Events[0].Time.Time, all.Events[len(all.Events)-1].Time.Time)
	for _, e := range all.Events {
		b.WriteString(eventLine(e, layout))
	}
	return b.String()
}

func eventLine(e api.OperationEvent, layout string) string {
	parts := []string{e.Time.UTC().Format(layout), Clean(e.Type)}
	add := func(before, what string) {
		if what != "" {
			parts = append(parts, before+Clean(what))
		}
	}
	add("", e.Backend)
	for _, name := range sortedNames(e.Before, e.After) {
		add("", name+" "+e.Before[name]+" → "+e.After[name])
	}
	add("by ", e.By)
	add("", e.Text)
	add("reason: ", e.Reason)
	return strings.Join(parts, "  ") + "\n"
}

// layoutFor is how times of a span are written: with the day, if it has two.
func layoutFor(from, to time.Time) string {
	if from.UTC().Format(time.DateOnly) == to.UTC().Format(time.DateOnly) {
		return time.TimeOnly
	}
	return time.DateTime
}

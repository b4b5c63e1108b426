package text

import (
	"fmt"
	"strings"

	"github.com/forebay/forebay/api"
)

// Explain writes why a job is where it is. Times are in UTC.
func Explain(e api.Explanation) string {
	starts := ""
	if e.StartsAt != nil && e.StartsInSeconds != nil {
		starts = fmt.Sprintf("; starts about %s, in %s", clock(*e.StartsAt, e.At),
			Span(*e.StartsInSeconds))
	}
	if e.Position == 0 {
		return Clean(e.State) + " in " + Clean(e.Backend) + starts + "\n  " + Clean(e.Reason) + "\n"
	}
	first := fmt.Sprintf("waits %s of %d in %s%s\n", ordinal(e.Position), e.Waiting,
		Clean(e.Backend), starts)
	rows := [][]string{{"waits for", Clean(e.Reason)}}
	if e.Rate != nil {
		rows = append(rows, []string{"rate", rateText(e)})
	}
	if e.Ahead != nil {
		rows = append(rows, []string{"ahead", aheadText(*e.Ahead)})
	}
	for _, holding := range []bool{true, false} {
		name := map[bool]string{true: "holds", false: "holds not"}[holding]
		if details := holdsText(e, holding); details != "" {
			rows = append(rows, []string{name, details})
		}
	}
	var sooner []string
	for _, s := range e.Sooner {
		sooner = append(sooner, soonerText(s)+": in "+Span(s.StartsInSeconds))
	}
	if len(sooner) > 0 {
		rows = append(rows, []string{"sooner", strings.Join(sooner, "     ")})
	}
	return first + Columns("  ", rows)
}

// holdsText writes the things that hold a job, or those that don't.
func holdsText(e api.Explanation, holding bool) string {
	var details []string
	for _, h := range e.Holds {
		if h.Holds == holding {
			details = append(details, Clean(h.Detail)+sinceText(h.Until, e.At, " until ")+
				noteText(h.OverrideNote, e.At))
		}
	}
	return strings.Join(details, ", ")
}

// rateText writes the rate in force as the product of its factors.
func rateText(e api.Explanation) string {
	r := e.Rate
	text := Clean(r.Effective)
	base, notes := r.Configured, ""
	if r.Override != nil {
		base, notes = *r.Override, " ("
		if note := noteText(r.OverrideNote, e.At); note != "" {
			notes += "set" + note + ", "
		}
		notes += "configured " + Clean(r.Configured) + ")"
	}
	if base != "" && (r.Factor != 1 || notes != "") {
		text += " = " + Clean(base) + notes
	}
	if r.Factor != 1 {
		text += fmt.Sprintf(" × %s (recovers from %s%s)", short(r.Factor), causeText(r.Cause),
			sinceText(r.FactorSince, e.At, " since "))
	}
	return text
}

// noteText says who set an override, when, until when and why: " by kim 16:00:05 until
// 16:30:05: their database moves"; "" if it isn't known.
func noteText(n api.OverrideNote, now api.Time) string {
	text := ""
	if n.SetBy != "" {
		text = " by " + Clean(n.SetBy) + sinceText(n.SetAt, now, " ")
	}
	text += sinceText(n.ExpiresAt, now, " until ")
	if n.Reason != "" {
		text += ": " + Clean(n.Reason)
	}
	return text
}

func sinceText(t *api.Time, now api.Time, before string) string {
	if t == nil {
		return ""
	}
	return before + clock(*t, now)
}

// causeText is what the backend did.
func causeText(cause string) string {
	switch cause {
	case "throttled":
		return "answers 429 or 503"
	case "timeout":
		return "calls without an answer in time"
	case "unreachable":
		return "calls that didn't reach it"
	}
	return "trouble"
}

func aheadText(a api.Ahead) string {
	text := fmt.Sprint(a.Jobs)
	var parts []string
	for _, c := range a.Clients {
		parts = append(parts, fmt.Sprintf("%s %d", Clean(c.Client), c.Jobs))
	}
	if a.OtherClients > 0 {
		parts = append(parts, fmt.Sprintf("%s %d", plural(a.OtherClients, "other"), a.OtherJobs))
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	if a.Estimated {
		text += " (about, from 100 of them)"
	}
	return text
}

func soonerText(s api.Sooner) string {
	switch s.Change {
	case "resume":
		return "resumed"
	case "health":
		return "once the backend is well"
	}
	return Clean(s.Change + " " + s.Value)
}

package text

import (
	"fmt"

	"github.com/forebay/forebay/api"
)

// Forecast writes what a line is going to do, with the proposed settings beside those in force.
// Times are in UTC.
func Forecast(f api.Forecast) string {
	heading := []string{"", "now " + inForce(f.Now)}
	views := []api.Outlook{f.Now}
	if f.Proposed != nil {
		heading = append(heading, proposal(f.Now, *f.Proposed))
		views = append(views, *f.Proposed)
	}
	rows := [][]string{append(heading, "("+assumption(f)+")")}
	row := func(name string, cell func(api.Outlook) string) {
		cells := []string{name}
		for _, o := range views {
			cells = append(cells, cell(o))
		}
		rows = append(rows, cells)
	}
	row("bound by", func(o api.Outlook) string { return bound(f, o) })
	row("empty at", func(o api.Outlook) string { return moment(f, o.EmptyAt) })
	row("full at", func(o api.Outlook) string {
		if o.FullAt != nil && o.FullBy == "wait_too_long" {
			return moment(f, o.FullAt) + ", by the longest wait"
		}
		return moment(f, o.FullAt)
	})
	row("wait", func(o api.Outlook) string {
		if o.WaitSeconds == nil {
			return "not known: paused"
		}
		return Span(*o.WaitSeconds)
	})
	row("would expire", func(o api.Outlook) string {
		if o.ExpiringEstimated {
			return fmt.Sprintf("about %d", o.Expiring)
		}
		return fmt.Sprint(o.Expiring)
	})
	row("refused", func(o api.Outlook) string {
		if o.RefusedPerMinute == nil {
			return "not known"
		}
		return fmt.Sprintf("%.0f a minute", *o.RefusedPerMinute)
	})
	return Columns("", rows)
}

// inForce names the settings in force by the one that says most.
func inForce(o api.Outlook) string {
	if o.Paused {
		return "paused"
	}
	return Clean(o.Rate)
}

// proposal names what a proposal changes.
func proposal(now, then api.Outlook) string {
	switch {
	case then.Paused:
		return "paused"
	case then.Rate != now.Rate:
		return "at " + Clean(then.Rate)
	case then.Concurrency != now.Concurrency:
		return fmt.Sprintf("with %d calls at once", then.Concurrency)
	case now.Paused:
		return "resumed"
	}
	return "proposed: the same"
}

func assumption(f api.Forecast) string {
	text := fmt.Sprintf("%d wait, ", f.Waiting)
	if !f.Arrivals.Known {
		return text + "how many arrive isn't known yet"
	}
	return text + fmt.Sprintf("%s/s ± %s arrive, as in the last %s", short(f.Arrivals.PerSecond),
		short(f.Arrivals.Spread), Span(f.Arrivals.OverSeconds))
}

func bound(f api.Forecast, o api.Outlook) string {
	if o.BoundBy != "concurrency" {
		return Clean(o.BoundBy)
	}
	text := fmt.Sprintf("concurrency %d", o.Concurrency)
	if o.PerSecond != nil && f.CallSeconds > 0 {
		text += fmt.Sprintf(": calls take %s s, so %s/s", short(f.CallSeconds), short(*o.PerSecond))
	}
	if o.ConcurrencyNeeded > 0 {
		text += fmt.Sprintf("; concurrency %d would do", o.ConcurrencyNeeded)
	}
	return text
}

func moment(f api.Forecast, t *api.Time) string {
	switch {
	case t != nil:
		return clock(*t, f.At)
	case !f.Arrivals.Known:
		return "not known"
	}
	return "never"
}

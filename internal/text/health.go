package text

import (
	"strings"

	"github.com/forebay/forebay/api"
)

// Health writes a diagnosis: a line for each finding that isn't ok, with the command to go on with,
// and one line for all that are. Times are in UTC.
func Health(d api.Diagnosis) string {
	var rows [][]string
	var fine []string
	for _, f := range d.Findings {
		thing := f.Thing
		if f.Backend != "" {
			thing = f.Backend
		}
		thing = Clean(thing)
		if f.Level == api.LevelOK {
			if f.Thing != "backend" && f.Cause != "" {
				thing += " " + Clean(f.Cause)
			}
			fine = append(fine, thing)
			continue
		}
		cause := Clean(f.Cause)
		if f.Since != nil {
			cause += ", since " + clock(*f.Since, d.At)
		}
		rows = append(rows, []string{Clean(f.Level), thing, cause, Clean(f.Next)})
	}
	out := Columns("", rows)
	if len(fine) > 0 {
		ok := api.LevelOK
		if len(rows) > 0 {
			width := 0
			for _, row := range rows {
				width = max(width, len(row[0]))
			}
			ok += strings.Repeat(" ", width-len(ok))
		}
		out += ok + "  " + strings.Join(fine, "  ") + "\n"
	}
	return out
}

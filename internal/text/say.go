package text

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebay/forebay/api"
)

// ordinal writes a place: 1st, 2nd, 11th.
func ordinal(n int64) string {
	suffix := "th"
	if n%100/10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.FormatInt(n, 10) + suffix
}

// Span writes a duration, given in seconds, in its largest unit that says enough: 0.4 s, 44 s,
// 12 min, 3 h, 5 d.
func Span(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d < 10*time.Second:
		return short(seconds) + " s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", seconds)
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", seconds/60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", seconds/3600)
	}
	return fmt.Sprintf("%.0f d", seconds/(24*3600))
}

// short writes a number with two digits after its point at most.
func short(x float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(x, 'f', 2, 64), "0"), ".")
}

// clock writes a time in UTC, with its date if it is over half a day away from now.
func clock(t, now api.Time) string {
	if off := t.Sub(now.Time); off > 12*time.Hour || off < -12*time.Hour {
		return t.UTC().Format("2006-01-02 15:04")
	}
	return t.UTC().Format("15:04:05")
}

// plural writes a number of things: 1 other, 7 others.
func plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.FormatInt(n, 10) + " " + thing + "s"
}

// Columns writes rows with their cells below each other, each line after indent. The cells must be
// clean.
func Columns(indent string, rows [][]string) string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		line := indent
		for i, cell := range row {
			line += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return out.String()
}

package text

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
)

// perSecond writes a count in some seconds as a rate, with three digits.
func perSecond(n int64, seconds int) string {
	if seconds <= 0 {
		return "?"
	}
	return three(float64(n) / float64(seconds))
}

// three writes a number with three digits, or all of those before the point.
func three(x float64) string {
	if x >= 100 {
		return strconv.FormatFloat(math.Round(x), 'f', 0, 64)
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64)
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// percent writes a part of a whole: "3.1%", "11%"; "0%" of nothing.
func percent(part, whole int64) string {
	if part == 0 || whole == 0 {
		return "0%"
	}
	p, decimals := 100*float64(part)/float64(whole), 0
	if p < 10 {
		decimals = 1
	}
	return strconv.FormatFloat(p, 'f', decimals, 64) + "%"
}

// brief writes a time with its largest unit or two: "0.3s", "44s", "3m20s", "2h5m".
func brief(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < 10*time.Second:
		return strconv.FormatFloat(math.Round(10*seconds)/10, 'f', -1, 64) + "s"
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	d = d.Round(time.Minute)
	return strconv.Itoa(int(d.Hours())) + "h" + strconv.Itoa(int(d.Minutes())%60) + "m"
}

// sortedNames are the names in some maps.
func sortedNames(all ...map[string]string) []string {
	names := map[string]string{}
	for _, m := range all {
		maps.Copy(names, m)
	}
	return slices.Sorted(maps.Keys(names))
}

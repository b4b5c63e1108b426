// Package units reads and writes durations, sizes and switches as people do: 500ms, 30s, 5m, 12h,
// 7d; 512B, 64KiB, 1MiB, 10MB; on and off. A number without its unit is refused.
//
// Errors of parsing are the second half of a sentence whose subject is the text ("isn't a duration;
// write ..."). They don't repeat the text: it may be a secret.
package units

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

var (
	numberForm   = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?$`)
	durationForm = regexp.MustCompile(`^(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h|d))+$`)
	durationPart = regexp.MustCompile(`([0-9.]+)([a-zµ]+)`)
)

// ParseDuration parses a duration as Go does, without sign, and with d for 24 hours. A bare number
// is refused, even 0.
func ParseDuration(s string) (time.Duration, error) {
	if numberForm.MatchString(s) {
		return 0, errors.New("has no unit; write the number with one, such as 500ms, 30s, 5m, " +
			"12h or 7d")
	}
	if !durationForm.MatchString(s) {
		return 0, errors.New("isn't a duration; write a number and a unit, such as 500ms, 30s, " +
			"5m, 12h or 7d")
	}
	var sum time.Duration
	for _, part := range durationPart.FindAllStringSubmatch(s, -1) {
		unit, times := part[2], time.Duration(1)
		if unit == "d" {
			unit, times = "h", 24
		}
		d, err := time.ParseDuration(part[1] + unit)
		if err != nil || d > (math.MaxInt64-sum)/times {
			return 0, errors.New("is longer than can be counted; write at most 366d")
		}
		sum += d * times
	}
	return sum, nil
}

// FormatDuration returns a duration in the form that ParseDuration reads: 7d rather than 168h0m0s,
// but 24h.
func FormatDuration(d time.Duration) string {
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return ShortDuration(d)
}

// ShortDuration returns a duration in Go's form, for programs that read no days, but 1m rather than
// 1m0s and 168h rather than 168h0m0s.
func ShortDuration(d time.Duration) string {
	text := d.String()
	if short, cut := strings.CutSuffix(text, "m0s"); cut {
		text = short + "m"
	}
	if short, cut := strings.CutSuffix(text, "h0m"); cut {
		text = short + "h"
	}
	return text
}

// Size is a number of bytes.
type Size int64

var sizeForm = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(B|KB|MB|GB|KiB|MiB|GiB)$`)

var sizeUnits = map[string]float64{"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// UnmarshalText reads a number and its unit. Half a KiB is a size, half a byte isn't.
func (s *Size) UnmarshalText(text []byte) error {
	m := sizeForm.FindStringSubmatch(string(text))
	if m == nil {
		if numberForm.Match(text) {
			return errors.New("has no unit; write the number with one, such as 100B, 512KiB, " +
				"1MiB or 10MB")
		}
		return errors.New("isn't a size; write a number and a unit, such as 100B, 512KiB, 1MiB " +
			"or 10MB")
	}
	n, err := strconv.ParseFloat(m[1], 64)
	n *= sizeUnits[m[2]]
	if err != nil || n > 1<<53 {
		return errors.New("is larger than can be counted; write at most 64MiB")
	}
	if n != math.Trunc(n) {
		return errors.New("isn't a whole number of bytes")
	}
	*s = Size(n)
	return nil
}

// String returns the size in the largest unit of which it is a whole number.
func (s Size) String() string {
	switch {
	case s > 0 && s%(1<<30) == 0:
		return fmt.Sprintf("%dGiB", s>>30)
	case s > 0 && s%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", s>>20)
	case s > 0 && s%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", s>>10)
	}
	return fmt.Sprintf("%dB", s)
}

// Switch is a value that is on or off.
type Switch bool

// String returns "on" or "off".
func (s Switch) String() string {
	if s {
		return "on"
	}
	return "off"
}

// UnmarshalText reads on or off.
func (s *Switch) UnmarshalText(text []byte) error {
	switch string(text) {
	case "on", "off":
		*s = string(text) == "on"
		return nil
	case "true", "yes":
		return errors.New("isn't a switch; write on")
	case "false", "no":
		return errors.New("isn't a switch; write off")
	}
	return errors.New("isn't a switch; write on or off")
}

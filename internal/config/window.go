package config

import (
	"errors"
	"time"

	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/units"
)

// Window is the time in which a limit allows its amount: a duration, or Day or Month.
type Window time.Duration

// Windows of the UTC calendar, for fixed windows.
const (
	Month = Window(limits.Month)
	Day   = Month - 1
)

// String returns the window as a config writes it.
func (w Window) String() string {
	switch w {
	case Month:
		return "month"
	case Day:
		return "day"
	}
	return units.FormatDuration(time.Duration(w))
}

// UnmarshalText reads a duration, or a calendar window.
func (w *Window) UnmarshalText(text []byte) error {
	switch string(text) {
	case "day":
		*w = Day
		return nil
	case "month":
		*w = Month
		return nil
	case "year", "week", "hour", "minute", "second":
		return errors.New("isn't a window; write a number and a unit, such as 30s, 1h or 7d, " +
			"or day or month of the calendar")
	}
	d, err := units.ParseDuration(string(text))
	if err == nil {
		*w = Window(d)
	}
	return err
}

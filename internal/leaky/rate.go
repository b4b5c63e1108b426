package leaky

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Rate is the drain rate of a backend: a number of slots in a time. The zero Rate is invalid.
type Rate struct {
	text     string
	interval float64 // µs from slot to slot; 0: unlimited
}

// Bounds of a rate. Above 100,000 per second the 10 µs between slots would be shorter than a timer
// can keep. Below one in 30 days a job would miss every deadline.
const (
	minInterval = 10.0
	maxInterval = 30 * 24 * 3600 * 1e6
)

var rateUnits = map[string]float64{"s": 1e6, "m": 60e6, "h": 3600e6, "d": 24 * 3600e6}

// Unlimited is the rate with which only concurrency bounds the drain.
var Unlimited = Rate{text: "unlimited"}

// ParseRate reads "5/s", "0.2/s", "6/m", "1/h", "100/d" or "unlimited". For any other text, and for
// a rate over 100,000/s or under one in 30 days, it returns an error that explains the format.
func ParseRate(text string) (r Rate, err error) {
	if err := r.UnmarshalText([]byte(text)); err != nil {
		return Rate{}, fmt.Errorf("rate %q %w", text, err)
	}
	return r, nil
}

// UnmarshalText is ParseRate, but its error is the second half of a sentence whose subject is the
// text, which it doesn't show.
func (r *Rate) UnmarshalText(text []byte) error {
	if string(text) == Unlimited.text {
		*r = Unlimited
		return nil
	}
	amount, unit, found := strings.Cut(string(text), "/")
	period, known := rateUnits[unit]
	n, err := strconv.ParseFloat(amount, 64)
	plain := strings.Trim(amount, "0123456789.") == "" && !errors.Is(err, strconv.ErrSyntax)
	if !plain || found && !known {
		return errors.New("isn't a rate; write a number per s, m, h or d, such as 5/s, 0.2/s or " +
			"6/m, or unlimited")
	}
	switch interval := period / n; {
	case !found:
		return errors.New("has no unit; write the number per s, m, h or d, such as 5/s, 0.2/s or " +
			"6/m")
	case n == 0:
		return errors.New("would never start a job; write a rate over 0 (to stop a drain for a " +
			"while, pause the backend)")
	case interval < minInterval:
		return errors.New("is over 100000/s, more than timers can keep; write a lower rate, or " +
			"unlimited")
	case interval > maxInterval:
		return errors.New("is under one in 30 days, later than any job may start; write a higher " +
			"rate")
	default:
		*r = Rate{text: string(text), interval: interval}
		return nil
	}
}

// String returns the rate as it was written.
func (r Rate) String() string { return r.text }

// Interval returns the time from slot to slot in microseconds; 0 for unlimited.
func (r Rate) Interval() float64 { return r.interval }

// PerSecond returns the rate in slots per second; +Inf for unlimited.
func (r Rate) PerSecond() float64 {
	if r.interval == 0 {
		return math.Inf(1)
	}
	return 1e6 / r.interval
}

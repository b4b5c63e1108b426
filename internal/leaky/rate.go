package leaky

import (
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
func ParseRate(text string) (Rate, error) {
	if text == "unlimited" {
		return Unlimited, nil
	}
	amount, unit, found := strings.Cut(text, "/")
	period, known := rateUnits[unit]
	if !found || !known {
		return Rate{}, fmt.Errorf("rate %q: write a number per s, m, h or d (such as 5/s, 0.2/s, "+
			"6/m) or unlimited", text)
	}
	if strings.Trim(amount, "0123456789.") != "" {
		return Rate{}, fmt.Errorf("rate %q: %q isn't a plain decimal number", text, amount)
	}
	n, err := strconv.ParseFloat(amount, 64)
	if err != nil {
		return Rate{}, fmt.Errorf("rate %q: %q isn't a plain decimal number", text, amount)
	}
	if n <= 0 {
		return Rate{}, fmt.Errorf("rate %q: must be over 0; to stop the drain, pause the backend",
			text)
	}
	interval := period / n
	if interval < minInterval || interval > maxInterval {
		return Rate{}, fmt.Errorf("rate %q: must lie between one in 30 days and 100000/s; beyond "+
			"that use unlimited or pause the backend", text)
	}
	return Rate{text: text, interval: interval}, nil
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

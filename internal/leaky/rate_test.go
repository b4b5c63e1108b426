package leaky_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/forebay/forebay/internal/leaky"
)

// Case C19: A rate may be any positive number per s, m, h or d.
func TestRatesThatCanBeWritten(t *testing.T) {
	t.Parallel()
	for text, interval := range map[string]float64{
		"5/s": 200_000, "0.2/s": 5e6, ".5/s": 2e6, "6/m": 10e6, "7/m": 60e6 / 7.0, "1/h": 3600e6, "100/d": 864e6, "1500/s": 1e6 / 1500.0, "6000000/m": 10, "1/d": 24 * 3600e6,
		"100000/s": 10, "0.0333333333334/d": 24 * 3600e6 / 0.0333333333334, "unlimited": 0,
	} {
		r, err := leaky.ParseRate(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		perSecond := 1e6 / interval
		if r.Interval() != interval || r.String() != text ||
			r.PerSecond() != perSecond && !(interval == 0 && math.IsInf(r.PerSecond(), 1)) {
			t.Errorf("%s: interval %v, per second %v, text %q", text, r.Interval(), r.PerSecond(),
				r)
		}
	}
}

// Case C16: Texts that make no sense as a rate are refused, so that nothing can divide by zero.
func TestRatesThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "5", "5/", "/s", "5/s ", " 5/s", "5 /s", "5/w", "5/S", "0/s", "0.0/s", "-1/s", "+1/s", "1e3/s", "0x10/s", "1_0/s",
		"NaN/s", "Inf/s", "inf/s", "5/sec", "0.0/m", "6000061/m", "0.033/d", "0.00000000000000000000001/s", strings.Repeat("9", 400) + "/s", "1..5/s", "./s", "5/s/s", "five/s", "100001/s", "0.03/d", "1/M", "Unlimited", "unlimited/s", "9999999999999999999999/s"} {
		if r, err := leaky.ParseRate(text); err == nil {
			t.Errorf("%q was read as %v µs a slot", text, r.Interval())
		} else if want := fmt.Sprintf("rate %q ", text); !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "; write ") {
			t.Errorf("%q: the error is %v, want %s... and how to write it", text, err, want)
		}
	}
}

package httpapi

import (
	"testing"
	"time"
)

func TestWindowsReadAsInTheConfig(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{time.Minute: "1m", time.Hour: "1h",
		24 * time.Hour: "24h", 90 * time.Second: "1m30s", 90 * time.Minute: "1h30m",
		10 * time.Second: "10s", 500 * time.Millisecond: "500ms",
		time.Hour + 10*time.Second: "1h0m10s", 20 * time.Minute: "20m"} {
		if got := windowText(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

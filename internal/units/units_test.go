package units_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/units"
)

func size(text string) (s units.Size, err error) {
	err = s.UnmarshalText([]byte(text))
	return s, err
}

func TestDurationsAreGosWithDays(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0s": 0, "500ms": 500 * time.Millisecond, "5us": 5 * time.Microsecond,
		"5µs": 5 * time.Microsecond, "7ns": 7,
		"1.5m": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * day, "1.5d": 36 * time.Hour,
		"1d12h": 36 * time.Hour,
		"0.25d": 6 * time.Hour, "106751d": 106751 * day,
	} {
		if got, err := units.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"106752d", "200000000d", "2562048h", "106751d24h",
		"9999999999999999999s", strings.Repeat("9", 400) + "s", "1w", "5 s", "d", ".5h", "5.s",
		"5m5", "٥s"} {
		if got, err := units.ParseDuration(text); err == nil {
			t.Errorf("%.30s: got %v, want an error", text, got)
		}
	}
}

func TestWhatIsWrittenIsReadTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{1, time.Microsecond, time.Second, time.Minute,
			time.Hour, 24 * time.Hour}).Draw(t, "unit")
		d := unit * time.Duration(rapid.Int64Range(0, math.MaxInt64/int64(unit)).Draw(t, "count"))
		if got, err := units.ParseDuration(units.FormatDuration(d)); err != nil || got != d {
			t.Fatalf("%s: got %v, %v; want %v", units.FormatDuration(d), got, err, d)
		}
		s := units.Size(rapid.Int64Range(0, 1<<53).Draw(t, "size"))
		if got, err := size(s.String()); err != nil || got != s {
			t.Fatalf("%s: got %v, %v", s, got, err)
		}
	})
	for d, want := range map[time.Duration]string{0: "0s", 24 * time.Hour: "24h", 48 * time.Hour: "2d", 90 * time.Second: "1m30s", 90 * time.Minute: "1h30m", 36 * time.Hour: "36h", time.Hour + 10*time.Second: "1h0m10s", 10 * time.Minute: "10m", 100 * time.Hour: "100h", 5 * time.Minute: "5m", 1500: "1.5µs"} {
		if got := units.FormatDuration(d); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
		if got, err := time.ParseDuration(units.ShortDuration(d)); err != nil || got != d {
			t.Errorf("%s: Go reads %v, %v", units.ShortDuration(d), got, err)
		}
	}
}

func TestSizesNeedAUnit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]units.Size{
		"0B": 0, "100B": 100, "1KB": 1000, "10MB": 10_000_000, "2GB": 2_000_000_000, "1KiB": 1024,
		"512KiB": 512 << 10, "1MiB": 1 << 20, "1GiB": 1 << 30, "1.5KiB": 1536,
	} {
		if got, err := size(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1", "1.5", "0", "-1B", "1b", "1mb", "1 MiB", "MiB", "1M",
		"1e3B", "0.5B", "9999999999GiB", strings.Repeat("9", 400) + "B"} {
		if got, err := size(text); err == nil {
			t.Errorf("%.30q: got %v, want an error", text, got)
		}
	}
}

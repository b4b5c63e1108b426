package httpapi

import (
	"testing"
	"time"

	"github.com/forebay/forebay/internal/limits"
)

func TestMonthsHaveTheirOwnLengths(t *testing.T) {
	t.Parallel()
	for at, days := range map[string]int64{"2026-02-28T23:59:59Z": 28, "2028-02-01T00:00:00Z": 29,
		"2026-11-30T12:00:00Z": 30, "2026-12-31T23:59:59Z": 31,
		"2026-03-01T01:30:00+02:00": 28} {
		when, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if got := monthSeconds(when); got != days*86400 {
			t.Errorf("%s: %d s, want %d days", at, got, days)
		}
	}
}

func TestPoliciesAreStatedInWholeSeconds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		amount int64
		window time.Duration
		want   string
	}{
		{60, time.Minute, `"l";q=60;w=60`},
		{5, 500 * time.Millisecond, `"l";q=10;w=1`},
		{3, 1500 * time.Millisecond, `"l";q=4;w=2`},
		{1, time.Millisecond, `"l";q=1000;w=1`},
		{1_000_000_000, 366 * 24 * time.Hour, `"l";q=1000000000;w=31622400`},
		{7, 24 * time.Hour, `"l";q=7;w=86400`},
	} {
		if got := string(appendPolicy(nil,
			limits.Limit{Name: "l", Amount: c.amount, Window: c.window}, 1,
			time.Time{})); got != c.want {
			t.Errorf("%d in %v: %s, want %s", c.amount, c.window, got, c.want)
		}
	}
}

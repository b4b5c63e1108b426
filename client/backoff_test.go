package client

import (
	"math"
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// C60 and C63 for every setting: the delay is never before the wait that was asked for, never out
// of its range, never 0, and no number of tries overflows.
func TestADelayLiesInItsRange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "base"))
		b := Backoff{Base: base,
			Cap:    time.Duration(rapid.Int64Range(int64(base), math.MaxInt64).Draw(t, "cap")),
			Jitter: Jitter(rapid.IntRange(int(Full), int(None)).Draw(t, "jitter"))}
		n := rapid.IntRange(1, 1000).Draw(t, "n")
		asked := time.Duration(rapid.OneOf(rapid.Just(int64(0)),
			rapid.Int64Range(1, math.MaxInt64)).Draw(t, "asked"))
		random := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "random")

		ceiling := math.Min(float64(base)*math.Pow(2, float64(n-1)), float64(b.Cap))
		low, high := map[Jitter]float64{Full: 0, Equal: ceiling / 2, None: ceiling}[b.Jitter],
			ceiling
		if asked > 0 {
			fixed := math.Max(low, float64(asked))
			if high = fixed; b.Jitter != None {
				high += math.Max(ceiling-low, float64(asked)/jitterPart)
			}
			low = fixed
		}
		got := b.Delay(n, asked, random)
		if got <= 0 || got < asked {
			t.Fatalf("%v, asked for %v", got, asked)
		}
		// float64 has 53 digits of a Duration's 63; the +1 is for the halving.
		if slack := 1 + high/(1<<50); float64(got) < low-slack || float64(got) > high+slack {
			t.Fatalf("%v isn't within %v and %v", got, time.Duration(low), time.Duration(high))
		}
	})
}

func TestTheWholeRangeIsDrawn(t *testing.T) {
	t.Parallel()
	b := Backoff{Base: time.Second, Cap: 8 * time.Second}
	almost := math.Nextafter(1, 0)
	for _, c := range []struct {
		jitter      Jitter
		asked       time.Duration
		least, most time.Duration
	}{
		{Full, 0, 1, 8 * time.Second},
		{Equal, 0, 4 * time.Second, 8 * time.Second},
		{None, 0, 8 * time.Second, 8 * time.Second},
		{Full, 60 * time.Second, 60 * time.Second, 68 * time.Second},
		{Full, 200 * time.Second, 200 * time.Second, 220 * time.Second},
		{Equal, 60 * time.Second, 60 * time.Second, 66 * time.Second},
		{Equal, 2 * time.Second, 4 * time.Second, 8 * time.Second},
		{None, 60 * time.Second, 60 * time.Second, 60 * time.Second},
		{None, 2 * time.Second, 8 * time.Second, 8 * time.Second},
		{Full, math.MaxInt64, math.MaxInt64, math.MaxInt64},
	} {
		b.Jitter = c.jitter
		least, most := b.Delay(9, c.asked, almost), b.Delay(9, c.asked, 0)
		if least-c.least > time.Microsecond || least < c.least || most != c.most {
			t.Errorf("jitter %d, asked %v: %v to %v, want %v to %v",
				c.jitter, c.asked, least, most, c.least, c.most)
		}
	}
}

// Any text of a server gives a wait of at least 0, without a panic.
func FuzzRetryAfter(f *testing.F) {
	for _, text := range []string{
		"", "3", "-1", "1e9", "99999999999999999999", "Mon, 30 Nov 2026 07:00:03 GMT",
		"Monday, 30-Nov-26 07:00:03 GMT", "Mon Nov 30 07:00:03 2026",
	} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, text, date string) {
		if got := retryAfter(http.Header{"Retry-After": {text}, "Date": {date}},
			time.Now()); got < 0 {
			t.Errorf("%q: %v", text, got)
		}
	})
}

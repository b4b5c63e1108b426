package limits

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// C16, C19: very slow and very fast limits are valid. A limit that would divide by zero, overflow
// or never admit is an error, which names the limit and the mend.
func TestWhatALimitMayBe(t *testing.T) {
	t.Parallel()
	good := func(change func(*Limit)) Limit {
		l := Limit{Name: "per-minute", Owner: "tier:free", Algorithm: TokenBucket, Per: PerClient,
			Amount: 60, Window: time.Minute}
		change(&l)
		return l
	}
	of := func(a Algorithm) func(func(*Limit)) Limit {
		return func(change func(*Limit)) Limit {
			return good(func(l *Limit) { l.Algorithm = a; change(l) })
		}
	}
	counter, log := of(SlidingWindowCounter), of(SlidingWindowLog)
	fixed, leaky := of(FixedWindow), of(LeakyBucket)
	permits := func(change func(*Limit)) Limit {
		return of(Concurrency)(func(l *Limit) { l.Window = 0; change(l) })
	}
	for _, l := range []Limit{
		good(func(l *Limit) {}),
		good(func(l *Limit) { l.Amount, l.Window = 1, 10*time.Second }),
		good(func(l *Limit) { l.Amount = 6 }),
		good(func(l *Limit) { l.Amount, l.Window = 1, 31*24*time.Hour }),
		good(func(l *Limit) { l.Amount, l.Window = 20_000, time.Second }),
		good(func(l *Limit) { l.Amount, l.Window, l.Burst = MaxAmount, MinWindow, MaxAmount }),
		good(func(l *Limit) { l.Amount, l.Window, l.Burst = 1, MaxWindow, 1 }),
		good(func(l *Limit) { l.Per = PerGlobal; l.Owner = "" }),
		counter(func(l *Limit) {}),
		counter(func(l *Limit) { l.Amount, l.Window = 1, 10*time.Second }),
		counter(func(l *Limit) { l.Amount, l.Window = 1, 31*24*time.Hour }),
		counter(func(l *Limit) { l.Amount, l.Window = MaxAmount, MaxWindow }),
		counter(func(l *Limit) { l.Amount, l.Window = MaxAmount, MinWindow }),
		log(func(l *Limit) { l.Amount, l.Window = 1, 31*24*time.Hour }),
		log(func(l *Limit) { l.Amount, l.Window = MaxLog, MaxWindow }),
		fixed(func(l *Limit) { l.Amount, l.Window = 1, Month }),
		fixed(func(l *Limit) { l.Amount, l.Window = MaxAmount, Month }),
		fixed(func(l *Limit) { l.Amount, l.Window = MaxAmount, MinWindow }),
		fixed(func(l *Limit) { l.Window = MaxWindow }),
		leaky(func(l *Limit) { l.Amount, l.Window, l.Burst = 20_000, time.Second, 1 }),
		leaky(func(l *Limit) { l.Amount, l.Window, l.Burst = MaxAmount, MinWindow, MaxAmount }),
		permits(func(l *Limit) { l.Amount = 1 }),
		permits(func(l *Limit) { l.Amount = MaxAmount }),
		good(func(l *Limit) { l.Amount, l.Bytes = 100<<20, true }),
		counter(func(l *Limit) { l.Amount, l.Bytes = 100<<20, true }),
		good(func(l *Limit) { l.Per = PerTier }),
		good(func(l *Limit) { l.Per = PerCountry; l.Shadow = true }),
	} {
		if err := l.Validate(); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	for _, c := range []struct {
		limit Limit
		mend  string
	}{
		{good(func(l *Limit) { l.Name = "" }), "a lower-case letter, then letters"},
		{good(func(l *Limit) { l.Name = "Per-Minute" }), "a lower-case letter, then letters"},
		{good(func(l *Limit) { l.Name = "a}b" }), "a lower-case letter, then letters"},
		{good(func(l *Limit) { l.Name = "a\n" }), "a lower-case letter, then letters"},
		{good(func(l *Limit) { l.Name = strings.Repeat("a", 65) }), "at most 64"},
		{good(func(l *Limit) { l.Owner = strings.Repeat("a", 257) }), "at most 256"},
		{good(func(l *Limit) { l.Per = "planet" }),
			"per planet is none of client, ip, operation, client+operation, tier, country, " +
				"global"},
		{good(func(l *Limit) { l.Algorithm = "guess" }),
			"algorithm guess is none of token-bucket, leaky-bucket, sliding-window-counter, " +
				"sliding-window-log, fixed-window, concurrency"},
		{good(func(l *Limit) { l.Burst = -1 }),
			"burst -1 is out of bounds for this limit; write 1 to 1000000000"},
		{good(func(l *Limit) { l.Burst = MaxAmount + 1 }),
			"burst 1000000001 is out of bounds for this limit; write 1 to 1000000000"},
		{good(func(l *Limit) { l.Amount, l.Window, l.Burst = 1, MaxWindow, 1000 }),
			"1 per 8784h0m0s can be counted exactly up to 100; use a smaller burst"},
		{good(func(l *Limit) { l.Amount, l.Window, l.Burst = 999_999_937, time.Hour, MaxAmount }),
			"up to 2501999; use a smaller burst, or a rounder amount and window"},
		{good(func(l *Limit) { l.Window = Month }),
			"window month is of the calendar, and the algorithm of this limit is token-bucket; " +
				"write a duration such as 24h, or use fixed-window"},
		{leaky(func(l *Limit) { l.Amount, l.Window, l.Burst = 1, MaxWindow, 1000 }),
			"can be counted exactly up to 100; use a smaller burst"},
		{leaky(func(l *Limit) { l.Window = Month }),
			"window month is of the calendar, and the algorithm of this limit is leaky-bucket; " +
				"write a duration such as 24h, or use fixed-window"},
		{counter(func(l *Limit) { l.Burst = 5 }),
			"burst has no meaning for this limit, whose algorithm is sliding-window-counter; " +
				"leave it out, or use token-bucket"},
		{counter(func(l *Limit) { l.Window = Month }),
			"window month is of the calendar, and the algorithm of this limit is " +
				"sliding-window-counter; write a duration such as 24h, or use fixed-window"},
		{log(func(l *Limit) { l.Burst = 5 }),
			"burst has no meaning for this limit, whose algorithm is sliding-window-log; leave " +
				"it out, or use token-bucket"},
		{log(func(l *Limit) { l.Window = Month }),
			"window month is of the calendar, and the algorithm of this limit is " +
				"sliding-window-log; write a duration such as 24h, or use fixed-window"},
		{log(func(l *Limit) { l.Amount = MaxLog + 1 }),
			"limit 10001 is too much for this limit: a sliding-window-log remembers each " +
				"request; write 1 to 10000, or use sliding-window-counter"},
		{fixed(func(l *Limit) { l.Burst = 5 }),
			"burst has no meaning for this limit, whose algorithm is fixed-window; leave it " +
				"out, or use token-bucket"},
		{permits(func(l *Limit) { l.Burst = 5 }),
			"burst has no meaning for this limit, whose algorithm is concurrency; leave it " +
				"out, or use token-bucket"},
		{permits(func(l *Limit) { l.Window = time.Minute }),
			"window has no meaning for this limit: concurrency counts the jobs that wait and " +
				"run now; leave it out"},
		{permits(func(l *Limit) { l.Window = Month }),
			"concurrency counts the jobs that wait and run now; leave it out"},
		{permits(func(l *Limit) { l.Bytes = true }),
			"cost.bytes has no meaning for concurrency, which counts jobs; leave it out, or " +
				"use token-bucket"},
		{permits(func(l *Limit) { l.Amount = 0 }),
			"limit 0 is out of bounds for this limit; write 1 to 1000000000"},
		{permits(func(l *Limit) { l.Amount = -5 }),
			"limit -5 is out of bounds for this limit; write 1 to 1000000000"},
	} {
		err := c.limit.Validate()
		if err == nil || !strings.Contains(err.Error(), c.mend) ||
			!strings.HasPrefix(err.Error(), "limit ") {
			t.Errorf("%+v: %v; want %q", c.limit, err, c.mend)
		}
		if _, compiled := Compile(c.limit); compiled == nil || compiled.Error() != err.Error() {
			t.Errorf("%+v: Compile says %v, Validate %v", c.limit, compiled, err)
		}
	}
	// Every algorithm with a window.
	for _, of := range []func(func(*Limit)) Limit{good, leaky, counter, log, fixed} {
		for _, c := range []struct {
			amount int64
			window time.Duration
			mend   string
		}{
			{0, time.Minute, "limit 0 is out of bounds for this limit; write 1 to 1000000000"},
			{-5, time.Minute, "limit -5 is out of bounds for this limit; write 1 to 1000000000"},
			{MaxAmount + 1, time.Minute,
				"limit 1000000001 is out of bounds for this limit; write 1 to 1000000000"},
			{10, 0, "window 0s is out of bounds for this limit; write 1ms to 366d"},
			{10, -time.Second, "window -1s is out of bounds for this limit; write 1ms to 366d"},
			// Next to Month.
			{10, -2, "window -2ns is out of bounds for this limit; write 1ms to 366d"},
			{10, MinWindow - time.Microsecond, "is out of bounds for this limit; write 1ms to"},
			{10, MaxWindow + time.Microsecond, "is out of bounds for this limit; write 1ms to"},
			{10, time.Second + time.Nanosecond, "use whole microseconds"},
		} {
			l := of(func(l *Limit) { l.Amount, l.Window = c.amount, c.window })
			if err := l.Validate(); err == nil || !strings.Contains(err.Error(), c.mend) ||
				!strings.Contains(err.Error(), "limit per-minute") {
				t.Errorf("%+v: %v; want %q", l, err, c.mend)
			}
		}
	}
}

// A config shows every problem of a limit at its field, with the value and the limit's name in the
// config's form.
func TestEveryProblemOfALimitHasItsField(t *testing.T) {
	t.Parallel()
	l := Limit{Name: "odd", Per: "planet", Amount: MaxLog + 1, Window: -time.Second, Burst: -1,
		Algorithm: SlidingWindowLog}
	var got []string
	for _, p := range l.Problems() {
		got = append(got, p.Field+": "+p.Text("VALUE", "LIMIT"))
	}
	want := []string{
		"per: VALUE is none of client, ip, operation, client+operation, tier, country, global",
		"limit: VALUE is too much for LIMIT: a sliding-window-log remembers each request; write " +
			"1 to 10000, or use sliding-window-counter",
		"window: VALUE is out of bounds for LIMIT; write 1ms to 366d",
		"burst: has no meaning for LIMIT, whose algorithm is sliding-window-log; leave it out, " +
			"or use token-bucket",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var a Algorithm
	if err := a.UnmarshalText([]byte("fixed-window")); err != nil || a != FixedWindow {
		t.Errorf("fixed-window is read as %q, %v", a, err)
	}
	if err := a.UnmarshalText([]byte("Fixed-Window")); err == nil || a != FixedWindow ||
		err.Error() != "is none of "+list(everyAlgorithm) {
		t.Errorf("an unknown word is read as %q, %v", a, err)
	}
}

package config

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDurationsAreGosWithDays(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0s": 0, "500ms": 500 * time.Millisecond, "5us": 5 * time.Microsecond, "5µs": 5 * time.Microsecond, "7ns": 7,
		"1.5m": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * day, "1.5d": 36 * time.Hour, "1d12h": 36 * time.Hour,
		"0.25d": 6 * time.Hour, "106751d": 106751 * day,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"106752d", "200000000d", "2562048h", "106751d24h", "9999999999999999999s", strings.Repeat("9", 400) + "s", "1w", "5 s", "d", ".5h", "5.s", "5m5", "٥s"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%.30s: got %v, want an error", text, got)
		}
	}
}

func TestWhatDescribePrintsIsReadTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{1, time.Microsecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "unit")
		d := unit * time.Duration(rapid.Int64Range(0, math.MaxInt64/int64(unit)).Draw(t, "count"))
		if got, err := parseDuration(formatDuration(d)); err != nil || got != d {
			t.Fatalf("%s: got %v, %v; want %v", formatDuration(d), got, err, d)
		}
		s := Size(rapid.Int64Range(0, 1<<53).Draw(t, "size"))
		if got, err := parseSize(s.String()); err != nil || got != s {
			t.Fatalf("%s: got %v, %v", s, got, err)
		}
	})
	for d, want := range map[time.Duration]string{0: "0s", 24 * time.Hour: "24h", 48 * time.Hour: "2d", 90 * time.Second: "1m30s", 5 * time.Minute: "5m", 1500: "1.5µs"} {
		if got := formatDuration(d); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
}

func TestSizesNeedAUnit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{
		"0B": 0, "100B": 100, "1KB": 1000, "10MB": 10_000_000, "2GB": 2_000_000_000, "1KiB": 1024, "512KiB": 512 << 10, "1MiB": 1 << 20, "1GiB": 1 << 30, "1.5KiB": 1536,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1", "1.5", "0", "-1B", "1b", "1mb", "1 MiB", "MiB", "1M", "1e3B", "0.5B", "9999999999GiB", strings.Repeat("9", 400) + "B"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%.30q: got %v, want an error", text, got)
		}
	}
}

// C16: no rate is zero, negative or not a number.
func TestRatesAreANumberPerUnit(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"5/s", "0.2/s", "6/m", "1/h", "100/d", "unlimited", "100000/s", "6000000/m", "1/d", "0.034/d"} {
		if err := checkRate(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"", "5", "/s", "5/", "0/s", "0.0/m", "-1/s", "+1/s", "NaN/s", "inf/s", "1e3/s", "0x5/s", "5/S", "5/sec", "5 /s", "5/s ", "1_000/s",
		"100001/s", "6000061/m", "0.033/d", "0.00000000000000000000001/s", strings.Repeat("9", 400) + "/s", "Unlimited", "5/s/s", ".5/s", "5./s"} {
		if err := checkRate(text); err == nil {
			t.Errorf("%.30q was accepted", text)
		}
	}
}

func TestVariablesAreReplacedOnce(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"A": "1", "B_2": "two", "NESTED": "${A}", "_x": "x", "EMPTY": ""}
	lookup := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	for text, want := range map[string]string{
		"":                    "",
		"plain $5 {A} $A $":   "plain $5 {A} $A $",
		"${A}":                "1",
		"a${A}b${B_2}${_x}":   "a1btwox",
		"${NESTED}":           "${A}", // what a variable holds is not read again
		"$${A}":               "${A}",
		"$$${A}":              "$${A}",
		"$${A} ${A} $${":      "${A} 1 ${",
		"[${EMPTY}]":          "[]",
		"${A}$${A}${A}":       "1${A}1",
		"$${" + "${A}" + "}}": "${1}}",
	} {
		if got, _, err := expand(text, lookup); err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"x${MISSING}": `needs the environment variable "MISSING", which is not set`,
		"${":          "has a ${ that isn't", "${}": "has a ${ that isn't", "${A": "has a ${ that isn't", "${1A}": "has a ${ that isn't",
		"${A B}": "has a ${ that isn't", "${A:-b}": "has a ${ that isn't", "${A${A}}": "has a ${ that isn't",
	} {
		if got, _, err := expand(text, lookup); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
	}
}

// What a variable holds is text of one value: it can't close a quote, begin a key or add to a list.
func TestAVariableCanNotAddToTheConfig(t *testing.T) {
	t.Parallel()
	const nasty = `x", "a": ["b"], 'c': {d}, #`
	text := strings.Replace(minimal, "5/s}", "5/s}, headers:\n  {X-Quoted: \"${NASTY}\",\n X-Single: '${NASTY}'}", 1)
	text += "shutdown: ${DURATION}\n"
	c, _, err := read("f", []byte(text), func(name string) (string, bool) {
		return map[string]string{"NASTY": nasty, "DURATION": "7s"}[name], true
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if h := c.Backends["reports"].Headers; len(h) != 2 || h["X-Single"] != nasty || h["X-Quoted"] != nasty || c.Shutdown != 7*time.Second {
		t.Errorf("got %q", []string{fmt.Sprint(len(h)), string(h["X-Single"]), string(h["X-Quoted"])})
	}
}

package main

import (
	"strings"
	"testing"
	"time"
)

func TestTheReportOfAMillionSaysWhatWasMet(t *testing.T) {
	t.Parallel()
	good, bad := spread{1.2, 1, 1.5}, spread{2.1, 1.9, 2.5}
	r := report{Plan: full, Million: millionFigures{Waiting: 1_000_000, Bytes: 699.6,
		Steps: []stepRow{
			{Name: "offer", EmptyCaller: spread{Median: 100}, FullCaller: spread{Median: 120},
				Caller: good, EmptyRedis: spread{Median: 20}, FullRedis: spread{Median: 24},
				Redis: good},
			{Name: "cancel", Caller: good, Redis: bad},
			{Name: "look", Caller: bad, Redis: good},
		},
		Asked: []askedRow{{"explain", 512.4, 3 * time.Millisecond}},
		Starts: []startRow{{Waiting: 1, First: 300 * time.Millisecond, Stop: 20 * time.Millisecond},
			{Waiting: 1_000_000, First: time.Second, Stop: time.Second}},
	}}
	var b strings.Builder
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| offer | 100 µs | 120 µs | 1.20 (1.00..1.50) | 20 µs | 24 µs | **1.20** (1.00..1.50) | yes |",
		"| cancel | 0 µs | 0 µs | 1.20 (1.00..1.50) | 0 µs | 0 µs | **2.10** (1.90..2.50) | **no** |",
		"| look | 0 µs | 0 µs | 2.10 (1.90..2.50) | 0 µs | 0 µs | **1.20** (1.00..1.50) | **no** |",
		"| explain | 512 µs | 3.00 ms | yes |",
		"**700 bytes** (goal: under 600; met: **no**)",
		"| 1 | 300.00 ms | 1000.00 ms | yes | 20.00 ms |",
		"| 1000000 | 1000.00 ms | 1000.00 ms | **no** | 1000.00 ms |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, &b)
		}
	}
	b.Reset()
	if err := (&report{Plan: full}).write(&b); err != nil ||
		strings.Contains(b.String(), "million") {
		t.Errorf("it wasn't measured, but the report has it (%v):\n%s", err, &b)
	}
}

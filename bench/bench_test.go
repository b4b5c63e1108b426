package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestASpreadIsMedianLowestAndHighest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		figures []float64
		want    spread
	}{
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{4, 1, 9}, spread{4, 1, 9}},
		{[]float64{4, 1, 2, 9}, spread{3, 1, 9}},
	} {
		if got := spreadOf(c.figures); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.figures, got, c.want)
		}
	}
}

func TestAQuantileIsOneOfTheValues(t *testing.T) {
	t.Parallel()
	hundred := make([]int64, 100)
	for i := range hundred {
		hundred[i] = int64(i)
	}
	for q, want := range map[float64]int64{0: 0, 0.5: 50, 0.99: 99, 1: 99} {
		if got := quantile(hundred, q); got != want {
			t.Errorf("%v: %d, want %d", q, got, want)
		}
	}
	if got := quantile([]int64(nil), 0.5); got != 0 {
		t.Errorf("of none: %d", got)
	}
}

func TestTheBusiestWindowIsFoundWhereverItStarts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		arrivals := rapid.SliceOfN(rapid.Int64Range(0, 100), 0, 30).Draw(t, "arrivals")
		slices.Sort(arrivals)
		width := rapid.Int64Range(1, 50).Draw(t, "width")
		want := 0
		for start := int64(0); start <= 100; start++ {
			n := 0
			for _, at := range arrivals {
				if at >= start && at < start+width {
					n++
				}
			}
			want = max(want, n)
		}
		if got := busiest(arrivals, width); got != want {
			t.Fatalf("%v in windows of %d: %d, want %d", arrivals, width, got, want)
		}
	})
}

func TestAnEvenDrainHasItsRateAndNoBusyWindow(t *testing.T) {
	t.Parallel()
	var arrivals []int64
	for i := range int64(1000) {
		arrivals = append(arrivals, 7+i*10_000)
	}
	want := pace{Calls: 1000, Rate: 100, Second: 100, Tenth: 10, Gap1: 10 * time.Millisecond, Gap99: 10 * time.Millisecond}
	if got := paceOf(arrivals); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for i := range arrivals[:10] { // ten calls at one moment
		arrivals[i] = 7
	}
	if got := paceOf(arrivals); got.Tenth != 10 || got.Second != 100 {
		t.Errorf("%+v", got)
	}
	if got := paceOf(nil); got != (pace{}) {
		t.Errorf("of none: %+v", got)
	}
}

func TestTheGoalOfADrainIsItsRateAndOneAndOnePercent(t *testing.T) {
	t.Parallel()
	for rate, want := range map[int]int{10: 11, 100: 102, 500: 506} {
		if got := (drainRow{Configured: rate}).allowed(); got != want {
			t.Errorf("%d/s: %d, want %d", rate, got, want)
		}
	}
	if got := (drainRow{Configured: 100, pace: pace{Rate: 99.5}}).deviation(); got < -0.51 || got > -0.49 {
		t.Errorf("deviation %v %%, want -0.5", got)
	}
}

func TestPayloadsHaveTheirSizeAndAreJSON(t *testing.T) {
	t.Parallel()
	if len(payload) != 256 || !json.Valid(payload) || !json.Valid(submission) {
		t.Errorf("%d bytes: %s", len(payload), payload)
	}
}

func TestTheReportSaysWhatWasMetAndLeavesOutWhatWasNotMeasured(t *testing.T) {
	t.Parallel()
	r := report{
		Plan:    full,
		Machine: machine{CPU: "Some CPU", Kernel: "Linux 6", Redis: "7.0"},
		Ratios: []ratioRow{
			{Name: "accepted (202)", Conns: 64, Baseline: "enqueue", Ours: spread{11000, 10000, 12000}, Theirs: spread{10000, 9000, 11000}, Ratio: spread{1.1, 1, 1.2}, Goal: 1},
			{Name: "rejected (429)", Conns: 64, Baseline: "PING", Ratio: spread{0.9, 0.8, 1}, Goal: 1.1},
		},
		Drains: []drainRow{{500, pace{Calls: 5000, Rate: 500.1, Second: 506, Tenth: 52, Gap1: time.Millisecond, Gap99: 3 * time.Millisecond}}},
		Memory: []memoryRow{{"forebay, in line", 512.4}},
	}
	var b strings.Builder
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Machine: Some CPU, ", "Redis 7.0",
		"| accepted (202) | 64 | 11000 | enqueue | 10000 | **1.10** (1.00..1.20) | 1.0 | yes |",
		"| rejected (429) | 64 | 0 | PING | 0 | **0.90** (0.80..1.00) | 1.1 | **no** |",
		"| 500/s | 500.10/s | +0.02 % | 506 | 506 | 52 | 1.00 ms | 3.00 ms | yes |",
		"| forebay, in line | 512 |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, &b)
		}
	}
	for _, absent := range []string{"## Idle", "## Latency", "smoke", "other work"} {
		if strings.Contains(b.String(), absent) {
			t.Errorf("%q though it wasn't measured", absent)
		}
	}
}

func TestABusyMachineAndASmokeRunAreOwnedUpTo(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	r := report{Plan: short, Smoke: true, Machine: machine{Load: 3.2}}
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"load average 3.2", "smoke run"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, &b)
		}
	}
}

func TestRedisInfoAndCPUInfoAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"# Memory\r\nused_memory:123\r\nused_memory_human:1M\r\n": "123",
		"model name\t: x\nused_memory : 4: 5 \n":                  "4: 5",
		"used_memory_rss:9\n":                                     "none",
		"":                                                        "none",
	} {
		if got := field(text, "used_memory", "none"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

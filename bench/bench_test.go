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
	want := pace{Calls: 1000, Rate: 100, Tenth: 10, Second: 100, Ten: 1000,
		Gap1: 10 * time.Millisecond, Gap99: 10 * time.Millisecond}
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

func TestTheRateOfBurstsIsTakenFromBurstToBurst(t *testing.T) {
	t.Parallel()
	var arrivals []int64
	for burst := range int64(5) {
		for i := range int64(10) {
			arrivals = append(arrivals, burst*1_100_000+i*500)
		}
	}
	arrivals = arrivals[3:] // the first one was cut
	if got := burstRate(arrivals, time.Second); got < 9.09 || got > 9.1 {
		t.Errorf("%v/s, want ten each 1.1 s", got)
	}
	even := []int64{0, 100_000, 200_000, 300_000}
	if got := burstRate(even, time.Second); got != 10 {
		t.Errorf("without bursts: %v/s", got)
	}
}

func TestTheGoalOfADrainIsItsRateAndOneAndOnePercent(t *testing.T) {
	t.Parallel()
	for rate, want := range map[float64][3]int{0.2: {1, 1, 3}, 10: {2, 11, 102},
		100: {11, 102, 1011}, 500: {51, 506, 5051}} {
		d := drainRow{Configured: rate}
		if got := [3]int{d.allowed(tenth), d.allowed(second), d.allowed(ten)}; got != want {
			t.Errorf("%v/s: %d, want %d", rate, got, want)
		}
	}
	good := drainRow{Configured: 100, pace: pace{Rate: 100.1, Tenth: 11, Second: 102, Ten: 1011}}
	for want, change := range map[string]func(*drainRow){
		"good":   func(*drainRow) {},
		"slow":   func(d *drainRow) { d.Rate = 99.7 },
		"tenth":  func(d *drainRow) { d.Tenth++ },
		"second": func(d *drainRow) { d.Second++ },
		"ten":    func(d *drainRow) { d.Ten++ },
	} {
		d := good
		change(&d)
		if d.met() != (want == "good") {
			t.Errorf("%s: met %v", want, d.met())
		}
	}
	slow := drainRow{Configured: 100, pace: pace{Rate: 99.5}}
	if got := slow.deviation(); got < -0.51 || got > -0.49 {
		t.Errorf("deviation %v %%, want -0.5", got)
	}
}

func TestAnErrorIsOfTheMeanOrOfTheFullestSecond(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate   float64
		second int
		want   float64
	}{{100, 102, 0}, {98, 102, 2}, {101, 90, 1}, {100, 152, 50}} {
		d := drainRow{Configured: 100, pace: pace{Rate: c.rate, Second: c.second}}
		if got := failing(d); got < c.want-0.001 || got > c.want+0.001 {
			t.Errorf("%v/s, %d in a second: %v %%, want %v", c.rate, c.second, got, c.want)
		}
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
			{Name: "accepted (202)", Conns: 64, Baseline: "enqueue",
				Ours: spread{11000, 10000, 12000}, Theirs: spread{10000, 9000, 11000},
				Ratio: spread{1.1, 1, 1.2}, Goal: 1},
			{Name: "rejected (429)", Conns: 64, Baseline: "PING", Ratio: spread{0.9, 0.8, 1},
				Goal: 1.1},
		},
		Drains: []drainRow{{Configured: 500, Workers: 3, Scripts: 7.25, Commands: 55,
			pace: pace{Calls: 5000, Rate: 500.1, Tenth: 51, Second: 506, Ten: 5001,
				Gap1: time.Millisecond, Gap99: 3 * time.Millisecond}}},
		FullSpeed: []ratioRow{{Name: "jobs called", Ours: spread{6000, 5000, 7000},
			Theirs: spread{10000, 9000, 11000}, Ratio: spread{0.6, 0.5, 0.7}, Goal: 0.5}},
		Limiters: []limiterRow{{Configured: 10, Limiter: "1 in 100 ms",
			Ours:   drainRow{Configured: 10, pace: pace{Rate: 10.001, Second: 11}},
			Theirs: drainRow{Configured: 10, pace: pace{Rate: 9.7, Second: 10}}}},
		Lone: loneFigures{Ratio: spread{1.7, 1.5, 2}, Scripts: 1.001, Again: 0.0002},
		Flood: floodFigures{Alone: spread{900, 800, 1000}, Beside: spread{1800, 1500, 2000},
			Ratio: spread{2, 1.9, 2.1}, Refused: 20_000},
		Memory: []memoryRow{{"forebay, in line", 512.4}},
	}
	var b strings.Builder
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Machine: Some CPU, ", "Redis 7.0",
		"| accepted (202) | 64 | 11000 | enqueue | 10000 | **1.10** (1.00..1.20) | 1 | yes |",
		"| rejected (429) | 64 | 0 | PING | 0 | **0.90** (0.80..1.00) | 1.1 | **no** |",
		"| 500/s | 3 | 500.10/s | +0.02 % | 51 of 51 | 506 of 506 | 5001 of 5051 " +
			"| 1.00 ms | 3.00 ms | yes | 7.2 | 55 |",
		"| jobs called | 6000 | 10000 | **0.60** (0.50..0.70) | 0.5 | yes |",
		"| 10/s | 1 in 100 ms | 9.70/s | 10 | 3.00 % | 10.00/s | 11 | 0.01 % | yes |",
		"goal: at most 1.6; met: **no**",
		"1.00 (goal: 1). Of one refusal before its Retry-After is over: 0.0002",
		"**2.00** (1.90..2.10) times; goal: at most 2; met: yes.",
		"| forebay, in line | 512 |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, &b)
		}
	}
	for _, absent := range []string{"## Idle", "## Latency at", "Not measured", "smoke",
		"other work"} {
		if strings.Contains(b.String(), absent) {
			t.Errorf("%q, though it wasn't measured", absent)
		}
	}
}

func TestABusyMachineAndASmokeRunAreReported(t *testing.T) {
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

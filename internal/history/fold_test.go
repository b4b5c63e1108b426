package history

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var four = time.Date(2026, 12, 1, 16, 0, 0, 0, time.UTC)

// What somebody asks for becomes a span that can be read, or a sentence on what is wrong.
func TestSpansFitWhatIsKept(t *testing.T) {
	t.Parallel()
	now := four.Add(7 * time.Second)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, c := range []struct {
		about    string
		from, to time.Time
		step     time.Duration
		want     Span
		wrong    string
	}{
		{"nothing: the last 15 minutes", time.Time{}, time.Time{}, 0,
			Span{four.Add(-895 * time.Second), four.Add(5 * time.Second), 5 * time.Second}, ""},
		{"two hours", ago(2 * time.Hour), time.Time{}, 0,
			Span{four.Add(-2 * time.Hour), four.Add(5 * time.Second), time.Minute}, ""},
		{"two days", ago(48 * time.Hour), time.Time{}, 0,
			Span{four.Add(-48 * time.Hour), four.Add(5 * time.Second), 15 * time.Minute}, ""},
		{"a minute of yesterday", ago(24 * time.Hour), ago(24*time.Hour - time.Minute), 0,
			Span{four.Add(-24 * time.Hour), four.Add(2*time.Minute - 24*time.Hour),
				time.Minute}, ""},
		{"a step of one's own", ago(time.Minute), time.Time{}, 20 * time.Second,
			Span{four.Add(-60 * time.Second), four.Add(5 * time.Second), 20 * time.Second}, ""},
		{"an end to come", ago(time.Minute), now.Add(time.Hour), 30 * time.Second,
			Span{four.Add(-60 * time.Second), four.Add(5 * time.Second), 30 * time.Second}, ""},
		{"all at once", now, now, 0, Span{}, "to must be later"},
		{"the wrong way", ago(time.Minute), ago(time.Hour), 0, Span{}, "to must be later"},
		{"to come", now.Add(time.Hour), now.Add(2 * time.Hour), 0, Span{}, "to must be later"},
		{"too long ago", ago(50 * time.Hour), time.Time{}, 0, Span{}, "48h"},
		{"a step between", ago(time.Minute), time.Time{}, 7 * time.Second, Span{},
			"multiple of 5s"},
		{"a step back", ago(time.Minute), time.Time{}, -5 * time.Second, Span{}, "multiple of 5s"},
		{"a fine step long ago", ago(3 * time.Hour), time.Time{}, 5 * time.Second, Span{},
			"multiple of 1m"},
		{"too many", ago(48 * time.Hour), time.Time{}, time.Minute, Span{}, "2000 points"},
	} {
		got, err := Fit(now, c.from, c.to, c.step, 1)
		if (err == nil) != (c.wrong == "") ||
			err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: error %v, want %q", c.about, err, c.wrong)
		} else if diff := cmp.Diff(c.want, got); err == nil && diff != "" {
			t.Errorf("%s: want (-), got (+):\n%s", c.about, diff)
		}
	}
	for _, backends := range []int{1, 60, 200, 1000} {
		got, err := Fit(now, ago(48*time.Hour), time.Time{}, 0, backends)
		if n := int(got.To.Sub(got.From)/got.Step) + 1; err != nil || n*backends > maxInAll {
			t.Errorf("%d backends have %d points each, %v", backends, n, err)
		}
	}
	if _, err := Fit(now, ago(2*time.Hour), time.Time{}, 5*time.Second, 60); err == nil {
		t.Error("60 backends have 1440 points each")
	}
}

// put is the oracle of add.lua: it writes cells into a table.
func (t table) put(bucket int64, cells map[string]uint32) {
	chunk, i := floorDiv(bucket, perChunk), 3*int(floorMod(bucket, perChunk))
	if t.chunks[chunk] == nil {
		t.chunks[chunk] = map[string]string{}
	}
	for name, n := range cells {
		text := []byte(t.chunks[chunk][name])
		for len(text) < i+3 {
			text = append(text, 0)
		}
		text[i], text[i+1], text[i+2] = byte(n>>16), byte(n>>8), byte(n)
		t.chunks[chunk][name] = string(text)
	}
}

// A step has what its buckets have: counts are added up, of samples the last one counts, and what
// has begun and ended is what was added since the sample before.
func TestStepsAreMadeOfBuckets(t *testing.T) {
	t.Parallel()
	have := table{fine, map[int64]map[string]string{}}
	put := func(at time.Duration, cells map[string]uint32) {
		have.put(fine.bucket(four.Add(at)), cells)
	}
	sample := func(at time.Duration, waiting, started int64) {
		s := Sample{Waiting: waiting, Configured: math.Inf(1), Effective: 0.5, Cause: "timeout",
			OldestWait: 2 * time.Second, Totals: Totals{Started: started, Failed: started / 2}}
		put(at, s.cells())
	}
	sample(-5*time.Second, 1, 1<<24-10) // just before; the total is about to run over
	put(0, map[string]uint32{Accepted: 2, Rejected("per-minute"): 1})
	sample(0, 5, 1<<24+2)
	put(5*time.Second, map[string]uint32{Accepted: 3, Fresh: 1, Degraded: 4, Rejected("other"): 2})
	sample(5*time.Second, 7, 1<<24+6)
	// Nothing from 10 s to 20 s: nobody looked.
	put(20*time.Second, map[string]uint32{Rejected("line_full"): 9})
	sample(20*time.Second, 3, 1<<24+7)
	sample(25*time.Second, 4, 2) // Redis has lost the books

	got := have.fold(Span{four, four.Add(25 * time.Second), 10 * time.Second})
	line := func(waiting, started, failed int64) *Sample {
		return &Sample{Waiting: waiting, Configured: math.Inf(1), Effective: 0.5, Cause: "timeout",
			OldestWait: 2 * time.Second, Totals: Totals{Started: started, Failed: failed}}
	}
	want := []Point{
		{At: four, Length: 10 * time.Second, Accepted: 5, Fresh: 1, Degraded: 4,
			Rejected: map[string]int64{"per-minute": 1, "other": 2}, Line: line(7, 16, 8)},
		{At: four.Add(10 * time.Second), Length: 10 * time.Second},
		{At: four.Add(20 * time.Second), Length: 5 * time.Second,
			Rejected: map[string]int64{"line_full": 9}, Line: line(3, 1, 0)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	if got := have.fold(Span{four.Add(25 * time.Second), four.Add(30 * time.Second),
		5 * time.Second}); len(got) != 1 || got[0].Line == nil || got[0].Line.Started != 0 {
		t.Errorf("after a loss: %+v", got)
	}
}

// Whatever the steps are, their counts are those of the buckets, and none is left out or doubled.
func TestNoCountIsLostBetweenSteps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.SampledFrom([]tier{fine, coarse}).Draw(t, "tier")
		have := table{at, map[int64]map[string]string{}}
		first := at.bucket(four)
		model, total, last := map[int64]uint32{}, uint32(0), map[int64]uint32{}
		for b := first - 5; b < first+300; b++ {
			if n := rapid.Uint32Range(0, 9).Draw(t, "n"); n < 5 {
				model[b] = n
				have.put(b, map[string]uint32{Accepted: n})
			}
			if n := rapid.Uint32Range(0, 9).Draw(t, "started"); n < 7 || b == first-1 {
				total += n
				last[b] = total
				have.put(b, Sample{Totals: Totals{Started: int64(total)}}.cells())
			}
		}
		step := at.step * time.Duration(rapid.IntRange(1, 50).Draw(t, "step"))
		from := at.at(first).Truncate(step)
		if from.Before(at.at(first)) {
			from = from.Add(step)
		}
		buckets := rapid.Int64Range(1, 250).Draw(t, "buckets")
		to := from.Add(time.Duration(buckets) * at.step)
		var accepted, wantAccepted uint32
		var begun int64
		end := from
		for _, p := range have.fold(Span{from, to, step}) {
			if !p.At.Equal(end) {
				t.Fatalf("a step begins at %v, the one before ends at %v", p.At, end)
			}
			end = p.At.Add(p.Length)
			accepted += uint32(p.Accepted)
			if p.Line != nil {
				begun += p.Line.Started
			}
		}
		if !end.Equal(to) {
			t.Fatalf("the last step ends at %v, want %v", end, to)
		}
		before, after := uint32(0), uint32(0)
		for b := first - 5; b < at.bucket(to); b++ {
			if b >= at.bucket(from) {
				wantAccepted += model[b]
			} else if n, ok := last[b]; ok {
				before = n
			}
			if n, ok := last[b]; ok {
				after = n
			}
		}
		if accepted != wantAccepted || begun != int64(after-before) {
			t.Fatalf("accepted %d, started %d; want %d, %d", accepted, begun, wantAccepted,
				after-before)
		}
	})
}

// Numbers keep four digits and more on their way through three bytes.
func TestNumbersFitThreeBytes(t *testing.T) {
	t.Parallel()
	for _, x := range []float64{0, math.Inf(1), 1, 0.05 / (30 * 24 * 3600), 2.97, 1.0 / 3, 1e5,
		172800, 0.001, 1 - 1e-9} {
		got := unpack(pack(x))
		if got != x && math.Abs(got-x) > x*3e-6 {
			t.Errorf("%v becomes %v", x, got)
		}
	}
	for _, x := range []float64{-1, math.NaN()} {
		if pack(x) != 0 {
			t.Errorf("%v becomes %v", x, unpack(pack(x)))
		}
	}
}

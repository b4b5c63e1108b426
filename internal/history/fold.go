package history

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// MaxPoints bounds the steps of a reading: a page of 1 MB.
	MaxPoints = 2000
	// maxInAll bounds the points of an answer about several backends: 10 MB.
	maxInAll = 20_000
	// fewPoints is how many steps a reading has at most if it doesn't say how long they are.
	fewPoints = 200
	// settled is how long after its end a bucket has what the processes report.
	settled = time.Second
	// slack is how much longer ago than it is kept a time may be, for one that was named a moment
	// ago.
	slack = time.Minute
	// lookback is how many buckets before a span are searched for a sample, for what is counted
	// since.
	lookback = 12
)

// Span is a time that is read in steps.
type Span struct {
	From time.Time // a multiple of Step
	To   time.Time // a multiple of 5 s; the last step may be short
	Step time.Duration
}

// steps are those that a reading gets if it doesn't name one.
var steps = []time.Duration{5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
	30 * time.Minute, time.Hour, 3 * time.Hour, 24 * time.Hour}

// Fit returns the span of some backends to read at a time for somebody who asks for one: zero
// values stand for the last 15 minutes, and for the shortest step that gives 200 points at most
// (fewer with over 100 backends). A span ends where no bucket is complete yet. Errors are sentences
// about from, to and step.
func Fit(now, from, to time.Time, step time.Duration, backends int) (Span, error) {
	most := min(MaxPoints, maxInAll/max(backends, 1))
	if to.IsZero() || to.After(now) {
		to = now
	}
	if from.IsZero() {
		from = to.Add(-15 * time.Minute)
	}
	reach := func(keep time.Duration) bool { return !from.Before(now.Add(-keep - slack)) }
	switch {
	case !to.After(from):
		return Span{}, errors.New("the parameter to must be later than from, and from not in the " +
			"future")
	case !reach(coarse.keep):
		return Span{}, errors.New("the parameter from is longer ago than 48h, and no more is kept")
	case step == 0:
		for _, step = range steps {
			if to.Sub(from) <= time.Duration(min(fewPoints, most-1))*step && (step >= coarse.step || reach(fine.keep)) {
				break
			}
		}
	case step < 0 || step%fine.step != 0:
		return Span{}, errors.New("the parameter step must be a multiple of 5s")
	case step%coarse.step != 0 && !reach(fine.keep):
		return Span{}, errors.New("the parameter step must be a multiple of 1m for times longer " +
			"ago than 2h")
	}
	s := Span{From: from.Truncate(step), Step: step}
	s.To = s.From.Add((to.Sub(s.From) + step - 1) / step * step)
	if s.To.Sub(s.From) > time.Duration(most)*step {
		return Span{}, fmt.Errorf("these are more than %d points a backend: name a longer step, or "+
			"less time", most)
	}
	if done := now.Add(-settled).Truncate(fine.step); s.To.After(done) {
		s.To = done
	}
	return s, nil
}

// tier is the one that the span is read from.
func (s Span) tier() tier {
	if s.Step%coarse.step == 0 {
		return coarse
	}
	return fine
}

// Point is one step of a span.
type Point struct {
	At                        time.Time
	Length                    time.Duration
	Accepted, Fresh, Degraded int64
	Rejected                  map[string]int64 // by reason
	// Line is the last sample of the step; nil: there is none. Its Totals are what was added since
	// the last sample before the step, or nothing where that isn't known.
	Line *Sample
}

// table has the chunks of one backend and tier, by number: strings of cells by count.
type table struct {
	tier
	chunks map[int64]map[string]string
}

// cell is one cell. A count that a chunk doesn't have is 0.
func (t table) cell(name string, bucket int64) uint32 {
	cells, i := t.chunks[floorDiv(bucket, perChunk)][name], 3*int(floorMod(bucket, perChunk))
	if len(cells) < i+3 {
		return 0
	}
	return uint32(cells[i])<<16 | uint32(cells[i+1])<<8 | uint32(cells[i+2])
}

func floorMod(a, b int64) int64 { return (a%b + b) % b }
func floorDiv(a, b int64) int64 { return (a - floorMod(a, b)) / b }

// counts are the names of the counts of decisions that the table has.
func (t table) counts() map[string]bool {
	names := map[string]bool{}
	for _, chunk := range t.chunks {
		for name := range chunk {
			if name == Accepted || name == Fresh || name == Degraded ||
				strings.HasPrefix(name, rejected) {
				names[name] = true
			}
		}
	}
	return names
}

// fold makes the points of a span of what a table has.
func (t table) fold(s Span) []Point {
	points := make([]Point, 0, max(0, s.To.Sub(s.From)/s.Step)+1)
	names := t.counts()
	var last *Sample
	first := t.bucket(s.From)
	for b := first - lookback; t.at(b).Before(s.To); b++ {
		cell := func(name string) uint32 { return t.cell(name, b) }
		now, isSampled := sampleOf(cell)
		if b >= first {
			at := t.at(b)
			begin := at.Truncate(s.Step)
			if len(points) == 0 || points[len(points)-1].At.Before(begin) {
				end := begin.Add(s.Step)
				if end.After(s.To) {
					end = s.To
				}
				points = append(points, Point{At: begin, Length: end.Sub(begin)})
			}
			p := &points[len(points)-1]
			for name := range names {
				p.count(name, int64(cell(name)))
			}
			if isSampled {
				p.sample(now, last)
			}
		}
		if isSampled {
			last = &now
		}
	}
	return points
}

func (p *Point) count(name string, n int64) {
	switch name {
	case Accepted:
		p.Accepted += n
	case Fresh:
		p.Fresh += n
	case Degraded:
		p.Degraded += n
	default:
		if n > 0 {
			if p.Rejected == nil {
				p.Rejected = map[string]int64{}
			}
			p.Rejected[strings.TrimPrefix(name, rejected)] += n
		}
	}
}

// sample makes a sample the point's line, and adds what its totals have more than those of the
// last one; nil: there is none.
func (p *Point) sample(now Sample, last *Sample) {
	sum := now
	if last == nil {
		last = &now
	}
	before := last.totals()
	for name, n := range sum.totals() {
		*n = since(*before[name], *n)
		if p.Line != nil {
			*n += *p.Line.totals()[name]
		}
	}
	p.Line = &sum
}

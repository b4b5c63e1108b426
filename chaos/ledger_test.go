package chaos

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

// setting holds the settings of a drain.
type setting struct {
	rate               float64 // per second
	burst, concurrency int
	paused             bool
}

// ledger records the settings of one drain over time. A change whose answer got lost may have been
// made or not.
type ledger struct {
	mu      sync.Mutex
	entries []entry // guarded by mu
}

// entry is a setting that may have been in force from one moment on, and certainly was from another
// one on, if that isn't zero.
type entry struct {
	setting
	from, sure time.Time
}

// settling is how long after a change's answer the previous setting may still show. Slots are
// granted 50 ms ahead, and tickets and first bytes of calls are under way.
const settling = 200 * time.Millisecond

func newLedger(s setting, at time.Time) *ledger {
	return &ledger{entries: []entry{{setting: s, from: at.Add(-time.Hour),
		sure: at.Add(-time.Hour)}}}
}

// latest returns the setting requested last, and whether it is known to be in force.
func (l *ledger) latest() (s setting, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.entries[len(l.entries)-1]
	return last.setting, !last.sure.IsZero()
}

// ask records a change that is about to be requested; done records that it was made.
func (l *ledger) ask(s setting) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := len(l.entries)
	l.entries = append(l.entries, entry{setting: s, from: time.Now()})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.entries[i].sure = time.Now()
	}
}

// frame is a time in which the same settings may have been in force, with the largest value of
// each.
type frame struct {
	from, to time.Time
	setting
}

// frames splits a time at every change. Around a change, the larger values hold.
func (l *ledger) frames(from, to time.Time) []frame {
	l.mu.Lock()
	defer l.mu.Unlock()
	ends := make([]time.Time, len(l.entries))
	cuts := []time.Time{from, to}
	for i, e := range l.entries {
		ends[i] = to.Add(time.Hour)
		for _, later := range l.entries[i+1:] {
			if end := later.sure.Add(settling); !later.sure.IsZero() && end.Before(ends[i]) {
				ends[i] = end
			}
		}
		for _, cut := range []time.Time{e.from, ends[i]} {
			if cut.After(from) && cut.Before(to) {
				cuts = append(cuts, cut)
			}
		}
	}
	slices.SortFunc(cuts, time.Time.Compare)
	var frames []frame
	for i, cut := range cuts[:len(cuts)-1] {
		f := frame{from: cut, to: cuts[i+1], setting: setting{paused: true}}
		for k, e := range l.entries {
			if e.from.After(f.from) || !ends[k].After(f.from) {
				continue
			}
			if !e.paused {
				f.rate, f.paused = max(f.rate, e.rate), false
			}
			f.burst, f.concurrency = max(f.burst, e.burst), max(f.concurrency, e.concurrency)
		}
		frames = append(frames, f)
	}
	return frames
}

// jitter is how much timers may add to the starts in a window (docs/drain.md).
const jitter = 0.01

// excess is a window that holds more starts than were allowed.
type excess struct {
	from    time.Time
	width   time.Duration
	starts  int
	allowed float64
}

// overfull finds, for each width, the window that exceeds the allowed starts most. Allowed are rate
// × w + burst, one more for each change within the window, 1 % for jitter, and the starts that came
// due while the machine itself stood still.
func overfull(starts []time.Time, frames []frame, stood []span,
	widths ...time.Duration) (all []excess) {
	for _, width := range widths {
		worst := excess{}
		last := 0
		for first, from := range starts {
			for last < len(starts) && starts[last].Before(from.Add(width)) {
				last++
			}
			if allowed := allowance(frames, stood, from,
				from.Add(width)); float64(last-first) > allowed &&
				float64(last-first)-allowed > float64(worst.starts)-worst.allowed {
				worst = excess{from, width, last - first, allowed}
			}
		}
		if worst.starts > 0 {
			all = append(all, worst)
		}
	}
	return all
}

func allowance(frames []frame, stood []span, from, to time.Time) float64 {
	due, burst, changes, fastest := 0.0, 0, -1, 0.0
	for _, f := range frames {
		if overlap := earlier(f.to, to).Sub(later(f.from, from)); overlap > 0 {
			due += f.rate * overlap.Seconds() * (1 + jitter)
			burst, fastest = max(burst, f.burst), max(fastest, f.rate)
			changes++
		}
	}
	still := 0.0
	for _, s := range stood {
		if s.from.Before(to) && s.to.Add(stallEnds).After(from) {
			still += s.to.Sub(s.from).Seconds()
		}
	}
	return math.Floor(due + fastest*still + float64(burst) + float64(changes) + 1e-6)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// span is a time in which this process itself stood still.
type span struct{ from, to time.Time }

// stalls measures how late this process's timers are: the cause delays the other processes, and the
// arrival of calls, as well.
type stalls struct {
	stop chan struct{}
	done chan struct{}
	all  []span // to be read after end
}

const (
	stallEvery = 2 * time.Millisecond
	stallOver  = 5 * time.Millisecond  // how late a timer may be
	stallEnds  = 20 * time.Millisecond // within which all delayed calls have come
)

func watchStalls() *stalls {
	s := &stalls{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for before := time.Now(); ; {
			select {
			case <-s.stop:
				return
			case <-time.After(stallEvery):
			}
			now := time.Now()
			if now.Sub(before) > stallEvery+stallOver {
				s.all = append(s.all, span{before, now})
			}
			before = now
		}
	}()
	return s
}

func (s *stalls) end() []span {
	close(s.stop)
	<-s.done
	return s.all
}

func TestTheLedgerTakesTheLargerNumberAroundAChange(t *testing.T) {
	t.Parallel()
	zero := time.Now()
	at := func(seconds float64) time.Time {
		return zero.Add(time.Duration(seconds * float64(time.Second)))
	}
	l := newLedger(setting{rate: 10, burst: 1, concurrency: 5}, zero)
	l.entries = append(l.entries,
		// raised
		entry{setting{rate: 40, burst: 2, concurrency: 5}, at(2), at(2.5)},
		// the answer got lost
		entry{setting{rate: 80, burst: 2, concurrency: 5}, at(4), time.Time{}},
		// paused
		entry{setting{rate: 20, burst: 1, concurrency: 5, paused: true}, at(6), at(6.001)})
	for _, c := range []struct {
		from, to float64
		rate     float64
	}{{0, 2, 10}, {2, 4, 40}, {4, 6.201, 80}, {6.201, 9, 0}} {
		for _, f := range l.frames(at(c.from), at(c.to)) {
			if f.rate != c.rate {
				t.Errorf("in %v of %+v: %v/s", f, c, f.rate)
			}
		}
	}
}

func TestAWindowWithTooManyStartsIsFound(t *testing.T) {
	t.Parallel()
	zero := time.Now()
	frames := newLedger(setting{rate: 20, burst: 1}, zero).frames(zero, zero.Add(time.Minute))
	var starts []time.Time
	for i := range 200 {
		starts = append(starts, zero.Add(time.Duration(i)*50*time.Millisecond))
	}
	if bad := overfull(starts, frames, nil, time.Second, 10*time.Second); bad != nil {
		t.Errorf("an even drain: %+v", bad)
	}
	extra := slices.Insert(slices.Clone(starts), 100, starts[100], starts[100])
	bad := overfull(extra, frames, nil, time.Second)
	if len(bad) != 1 || bad[0].starts != 22 || bad[0].allowed != 21 {
		t.Errorf("two starts too many: %+v", bad)
	}
	stood := []span{{starts[98], starts[100]}}
	if bad := overfull(extra, frames, stood, time.Second); bad != nil {
		t.Errorf("after the machine stood still: %+v", bad)
	}
}

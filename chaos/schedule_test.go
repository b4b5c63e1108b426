package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// event is an event in a lane: one process, Redis, one backend, or its settings. Events of a lane
// come one after another. Lanes run side by side.
type event struct {
	at    time.Duration // from the start
	lasts time.Duration // after that it is undone
	lane  string
	kind  string
	size  float64 // a rate, a count, or the part of calls that a backend's mood affects
}

func (e event) String() string {
	text := fmt.Sprintf("%7.2fs %-12s %s", e.at.Seconds(), e.lane, e.kind)
	if e.size != 0 {
		text += fmt.Sprintf(" %.4g", e.size)
	}
	if e.lasts != 0 {
		text += fmt.Sprintf(" for %.2fs", e.lasts.Seconds())
	}
	return text
}

// overLease is longer than a lease.
const overLease = 11 * time.Second

// deed is a possible event of a lane: its weight, and the bounds of its length and size.
type deed struct {
	kind        string
	chance      int
	least, most time.Duration
	sizes       []float64
}

// lane is a kind of lane: its deeds, and the pause before each.
type lane struct {
	names       []string
	least, most time.Duration
	deeds       []deed
}

var lanes = []lane{
	{workers, 700 * time.Millisecond, 4 * time.Second, []deed{
		{"kill", 3, 200 * time.Millisecond, 2 * time.Second, nil},
		{"freeze", 2, 300 * time.Millisecond, 4 * time.Second, nil},
		{"freeze", 1, overLease, overLease + 2*time.Second, nil},
		{"stop", 2, 0, 0, nil},
		{"cut", 2, 0, 0, nil},
		{"hang", 2, 300 * time.Millisecond, 3 * time.Second, nil},
		{"hang", 1, overLease, overLease + 2*time.Second, nil},
		{"refuse", 1, 300 * time.Millisecond, 3 * time.Second, nil},
	}},
	{apis, time.Second, 5 * time.Second, []deed{
		{"kill", 2, 200 * time.Millisecond, 2 * time.Second, nil},
		{"freeze", 2, 300 * time.Millisecond, 2 * time.Second, nil},
		{"stop", 2, 0, 0, nil},
		{"cut", 2, 0, 0, nil},
		{"hang", 2, 300 * time.Millisecond, 2 * time.Second, nil},
		{"refuse", 1, 300 * time.Millisecond, 2 * time.Second, nil},
	}},
	{[]string{"redis"}, 3 * time.Second, 8 * time.Second, []deed{
		{"kill", 2, 100 * time.Millisecond, 2 * time.Second, nil},
		{"freeze", 2, 300 * time.Millisecond, 2500 * time.Millisecond, nil},
		{"forget scripts", 1, 0, 0, nil},
	}},
	{backends, 300 * time.Millisecond, 3 * time.Second, []deed{
		{"slow", 3, 500 * time.Millisecond, 3 * time.Second, []float64{0.3, 1}},
		{"500", 2, 300 * time.Millisecond, 2 * time.Second, []float64{0.3, 1}},
		{"429", 1, 300 * time.Millisecond, 2 * time.Second, []float64{0.1, 1}},
		{"429 wait", 1, 300 * time.Millisecond, 2 * time.Second, []float64{0.1, 1}},
		{"503", 1, 300 * time.Millisecond, 2 * time.Second, []float64{0.1, 1}},
		{"503 wait", 1, 300 * time.Millisecond, 2 * time.Second, []float64{0.1, 1}},
		{"silence", 2, 300 * time.Millisecond, 2 * time.Second, []float64{0.3, 1}},
		{"break", 2, 300 * time.Millisecond, 2 * time.Second, []float64{0.3, 1}},
		{"torn", 2, 300 * time.Millisecond, 2 * time.Second, []float64{0.3, 1}},
		{"well", 2, time.Second, 4 * time.Second, nil},
	}},
	{[]string{"alpha tune", "beta tune"}, time.Second, 4 * time.Second, []deed{
		{"rate", 4, 0, 0, []float64{2, 5, 10, 20, 40, 100}},
		{"burst", 1, 0, 0, []float64{1, 3, 8}},
		{"concurrency", 2, 0, 0, []float64{1, 3, 8, 20}},
		{"pause", 2, 300 * time.Millisecond, 2 * time.Second, nil},
		{"feedback off", 1, 0, 0, nil},
		{"reset", 3, 0, 0, nil},
	}},
}

// schedule draws the events of a span. Each name has its own generator, so that a change of one
// lane leaves the others as they are.
func schedule(seed uint64, span time.Duration) []event {
	var all []event
	for _, l := range lanes {
		for _, name := range l.names {
			all = append(all, l.draw(rand.New(rand.NewPCG(seed, hash(name))), name, span)...)
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return all
}

func (l lane) draw(rng *rand.Rand, name string, span time.Duration) (events []event) {
	var deck []deed
	for _, d := range l.deeds {
		for range d.chance {
			deck = append(deck, d)
		}
	}
	// One worker begins by freezing for longer than its lease, so that the shortest run has that
	// too.
	first := name == workers[0]
	for at := time.Duration(0); ; {
		d := deck[rng.IntN(len(deck))]
		at += between(rng, l.least, l.most)
		if first {
			at, d, first = time.Second, l.deeds[2], false
		}
		e := event{at: at, lasts: between(rng, d.least, d.most), lane: name, kind: d.kind}
		if len(d.sizes) > 0 {
			e.size = d.sizes[rng.IntN(len(d.sizes))]
		}
		if at >= span {
			return events
		}
		if at += e.lasts; at <= span { // otherwise a shorter one may still fit
			events = append(events, e)
		} else {
			at -= e.lasts
		}
	}
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return (least + time.Duration(rng.Int64N(int64(most-least)+1))).Round(10 * time.Millisecond)
}

// hash is FNV-1a.
func hash(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

package leaky_test

import (
	"context"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/units"
)

func (b *bench) health() leaky.Health {
	b.t.Helper()
	h, err := b.Health(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

func TestABackendsHealthIsThatOfFeedback(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	if h := b.health(); h != (leaky.Health{Factor: 1}) {
		t.Errorf("well: %+v", h)
	}
	b.accept("acme")
	b.outcome(b.next(),
		leaky.Settlement{To: jobs.Waiting, Sign: leaky.Throttled, Gate: 10 * time.Second})
	b.pass(4 * time.Second)
	if h := b.health(); h != (leaky.Health{Gate: 6 * time.Second, Factor: 0.5}) {
		t.Errorf("behind the gate: %+v", h)
	}
	b.pass(6 * time.Second)
	if h := b.health(); h != (leaky.Health{Factor: 0.5}) {
		t.Errorf("the gate is open: %+v", h)
	}
	probe := b.next()
	if h := b.health(); h != (leaky.Health{Probing: true, Factor: 0.5}) {
		t.Errorf("probed: %+v", h)
	}
	b.outcome(probe, leaky.Settlement{To: jobs.Succeeded})
	if h := b.health(); h.Probing || h.Factor <= 0.5 || h.Factor >= 1 {
		t.Errorf("on the mend: %+v", h)
	}
	off := units.Switch(false)
	b.tune(leaky.Override{Feedback: &off})
	if h := b.health(); h != (leaky.Health{Factor: 1}) {
		t.Errorf("without feedback: %+v", h)
	}
}

// await waits until a reading shows a backend sick, or healthy.
func await(t *testing.T, h *leaky.Healths, backend string, below float64, sick bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); h.Sick(backend, below) != sick; {
		if time.Now().After(end) {
			t.Fatalf("sick: %v, want %v", !sick, sick)
		}
		time.Sleep(time.Millisecond)
	}
}

// run runs the Healths until the end of the test, or a call of stop.
func run(t *testing.T, h *leaky.Healths) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); h.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

func TestASickBackendIsKnownWithoutAsking(t *testing.T) {
	t.Parallel()
	b, well := newLine(t, nil), newLine(t, nil)
	name := b.Settings().Backend
	b.accept("acme")
	b.outcome(b.next(),
		leaky.Settlement{To: jobs.Waiting, Sign: leaky.Throttled, Gate: time.Minute})

	h := leaky.NewHealths(map[string]*leaky.Line{name: b.Line, well.Settings().Backend: well.Line})
	if h.Sick(name, 1) {
		t.Error("sick before any reading")
	}
	stop := run(t, h)
	await(t, h, name, 0, true) // the gate is closed
	if h.Sick(well.Settings().Backend, 1) || h.Sick("another", 1) {
		t.Error("others are sick too")
	}
	stop()
	h.Age(name, 4*time.Second)
	if !h.Sick(name, 0) {
		t.Error("the last word doesn't hold for 4 s")
	}
	h.Age(name, 2*time.Second)
	if h.Sick(name, 0) {
		t.Error("the last word holds for over 5 s")
	}
}

func TestALowRateIsSickBelowTheGivenPart(t *testing.T) {
	t.Parallel()
	b := sick(t, nil) // factor 0.05
	name := b.Settings().Backend
	h := leaky.NewHealths(map[string]*leaky.Line{name: b.Line})
	stop := run(t, h)
	await(t, h, name, 0.06, true)
	if h.Sick(name, 0.05) || h.Sick(name, 0) {
		t.Error("sick, although the rate isn't under the part")
	}
	// A gate in a reading opens in time even without a newer reading.
	stop()
	b.pass(time.Second)
	b.accept("acme")
	b.outcome(b.next(),
		leaky.Settlement{To: jobs.Waiting, Sign: leaky.Throttled, Gate: 2 * time.Second})
	stop = run(t, h)
	await(t, h, name, 0, true)
	stop()
	h.Age(name, 3*time.Second)
	if h.Sick(name, 0) {
		t.Error("sick for a gate that is open")
	}
}

// If a poll fails, the last reading is used.
func TestWithoutRedisASickBackendStaysSickForAWhile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newUnchecked(t, server.Client(t), nil)
	name := b.Settings().Backend
	b.accept("acme")
	b.outcome(b.next(), leaky.Settlement{To: jobs.Waiting, Sign: leaky.Throttled, Gate: time.Hour})
	h := leaky.NewHealths(map[string]*leaky.Line{name: b.Line})
	run(t, h)
	await(t, h, name, 0, true)
	server.Kill()
	if !h.Sick(name, 0) {
		t.Error("well with Redis gone")
	}
	await(t, h, name, 0, false) // until that is 5 s old
}

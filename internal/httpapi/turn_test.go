package httpapi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// claims is a Line that counts the claims on decisions, and may do something else instead of offering.
type claims struct {
	Line
	asked *atomic.Int64
	err   error // of each claim; nil: they go well
	offer func(context.Context, leaky.Offer) (leaky.Place, error)
}

func (l claims) Claim(ctx context.Context, id, by string) (bool, error) {
	if l.err != nil {
		return false, l.err
	}
	taken, err := l.Line.Claim(ctx, id, by)
	l.asked.Add(1)
	return taken, err
}

func (l claims) Offer(ctx context.Context, o leaky.Offer) (leaky.Place, error) {
	if l.offer != nil {
		return l.offer(ctx, o)
	}
	return l.Line.Offer(ctx, o)
}

// twinWorld has one place for report's jobs, which plain's may stand in for, and returns the URL of a second process whose line is wrapped.
func twinWorld(t *testing.T, line func(*world) Line) (w *world, other string) {
	t.Helper()
	w = newWorld(t, func(s *setup) {
		s.report = append(s.report, perClient("one", 1, time.Hour))
		s.adjust = summarize
	})
	lines := w.config.Lines
	w.config.Lines = maps.Clone(lines)
	w.config.Lines[w.backend] = line(w)
	_, other, _ = w.serve()
	w.config.Lines = lines
	return w, other
}

// twin asks for a job of report with one key until there is one.
func (w *world) twin(url string) (location string) {
	w.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		a, err := w.try("POST", url+"/v1/jobs", `{"operation":"`+w.report+`","payload":1}`, key(keyA), idempotent("k"))
		switch {
		case err != nil:
			w.Error(err)
			return ""
		case a.StatusCode == http.StatusAccepted:
			return a.Header.Get("Location")
		case a.StatusCode != http.StatusServiceUnavailable && a.Header.Get("Forebay-Decision") != `degraded;reason="store_unavailable"`:
			w.Errorf("%s %s", a.Status, a.body)
			return ""
		}
	}
	w.Error("no job")
	return ""
}

// claimed waits until a process has asked for the claim that another has.
func (w *world) claimed(asked *atomic.Int64) {
	w.Helper()
	w.eventually("it asks for the claim", func() bool { return asked.Load() > 0 })
}

// Twins of a request that come to two processes get one job, though there is room for one of them only: not one each of the two operations.
func TestTwinsInTwoProcessesShareAStandIn(t *testing.T) {
	t.Parallel()
	offered, goOn, asked := make(chan struct{}, 100), make(chan struct{}), new(atomic.Int64)
	w, slow := twinWorld(t, func(w *world) Line {
		return claims{Line: w.line, asked: new(atomic.Int64), offer: func(ctx context.Context, o leaky.Offer) (leaky.Place, error) {
			offered <- struct{}{} // the limit is spent
			<-goOn
			return w.line.Offer(ctx, o)
		}}
	})
	w.config.Lines = map[string]Line{w.backend: claims{Line: w.line, asked: asked}}
	_, quick, _ := w.serve()
	got := make(chan string, 2)
	go func() { got <- w.twin(slow) }()
	<-offered
	go func() { got <- w.twin(quick) }()
	w.claimed(asked)
	close(goOn)
	if one, two := <-got, <-got; one != two || w.count() != 1 {
		t.Errorf("%s and %s, %d jobs", one, two, w.count())
	}
}

// An offer that was given up may still come to be: until that is known, nobody decides otherwise.
func TestAnOfferInDoubtKeepsTwinsWaiting(t *testing.T) {
	t.Parallel()
	var late atomic.Pointer[leaky.Offer]
	w, slow := twinWorld(t, func(w *world) Line {
		return claims{Line: w.line, asked: new(atomic.Int64), offer: func(_ context.Context, o leaky.Offer) (leaky.Place, error) {
			late.Store(&o)
			return leaky.Place{}, errors.New("no answer in time")
		}}
	})
	asked := new(atomic.Int64)
	w.config.Lines = map[string]Line{w.backend: claims{Line: w.line, asked: asked}}
	_, quick, _ := w.serve()
	a := w.want(w.call("POST", slow+"/v1/jobs", `{"operation":"`+w.report+`","payload":1}`, key(keyA), idempotent("k")), 200)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="store_unavailable"`})
	got := make(chan string, 1)
	go func() { got <- w.twin(quick) }()
	w.claimed(asked)
	o := *late.Load()
	if _, err := w.line.Offer(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if location := <-got; location != "/v1/jobs/"+o.Job.ID || w.count() != 1 {
		t.Errorf("%s, want %s alone of %d jobs", location, o.Job.ID, w.count())
	}
}

// A twin whose process died while it decided keeps others waiting: they are told to come again, and then the key is good.
func TestAKeyThatIsBeingDecidedIsAskedForAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.adjust = summarize })
	id := jobs.DeriveID(w.backend, w.clientA(), w.report, "k")
	if taken, err := w.line.Claim(t.Context(), id, "dead"); !taken || err != nil {
		t.Fatalf("%v, %v", taken, err)
	}
	a := w.submit(w.report, `1`, key(keyA), idempotent("k"))
	if p := w.problem(a, http.StatusServiceUnavailable, api.CodeStore); p.RetryAfter < 1 || a.Header.Get("Retry-After") == "" {
		t.Errorf("%+v %v", p, a.Header)
	}
	// Other keys, and requests without one, have nothing to do with it.
	w.want(w.submit(w.report, `1`, key(keyA), idempotent("l")), http.StatusAccepted)
	w.want(w.submit(w.report, `1`, key(keyA)), http.StatusAccepted)
	if location := w.twin(w.url); location != "/v1/jobs/"+id {
		t.Errorf("%s, want %s", location, id)
	}
}

// A claim is given back with the answer, whatever that is; and requests that can get a job of one operation alone take none.
func TestAClaimEndsWithTheDecision(t *testing.T) {
	t.Parallel()
	asked := new(atomic.Int64)
	w := newWorld(t, func(s *setup) {
		s.report = append(s.report, perClient("one", 1, time.Hour))
		s.wrap = func(l Line) Line { return claims{Line: l, asked: asked} }
		s.adjust = func(w *world, c *Config) {
			summarize(w, c)
			c.operation(w.plain).Limits = w.limits("plain", []admission.Limit{perClient("two", 2, time.Hour)})
		}
	})
	for _, c := range []struct{ operation, key, decision string }{
		{w.report, "a", "accepted"},
		{w.report, "a", "accepted"}, // again
		{w.report, "b", `degraded;reason="one"`},
		{w.report, "b", `degraded;reason="replayed"`},
		{w.report, "c", `degraded;reason="one"`},
		{w.report, "d", `degraded;reason="one"`}, // the fixed answer
	} {
		before := asked.Load()
		a := w.submit(c.operation, `1`, key(keyA), idempotent(c.key))
		w.says(a, map[string]string{"Forebay-Decision": c.decision})
		if left := w.rdb.Keys(t.Context(), jobs.KeyPrefix(w.backend)+"deciding:*").Val(); len(left) > 0 || asked.Load() != before+1 {
			t.Errorf("%s: %d claims, left: %v", c.key, asked.Load()-before, left)
		}
	}
	before := asked.Load()
	w.submit(w.report, `1`, key(keyA))
	w.submit(w.plain, `1`, key(keyA), idempotent("k"))
	if n := asked.Load() - before; n != 0 {
		t.Errorf("%d claims for what has no stand-in, or no key", n)
	}
}

// Where Redis takes no claim, since it is full, say, the job of a key is still found; a new one can't be made.
func TestWithoutAClaimAKeysJobIsFound(t *testing.T) {
	t.Parallel()
	w, full := twinWorld(t, func(w *world) Line {
		return claims{Line: w.line, err: errors.New("OOM command not allowed")}
	})
	location := w.twin(w.url)
	if again := w.twin(full); again != location {
		t.Errorf("%s, want %s", again, location)
	}
	a := w.want(w.call("POST", full+"/v1/jobs", `{"operation":"`+w.report+`","payload":2}`, key(keyA), idempotent("new")), 200)
	w.says(a, map[string]string{"Forebay-Decision": `degraded;reason="store_unavailable"`})
	if n := w.count(); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

// A crowd with one key, of whom none gets a job, is refused together: nobody waits until the time is over.
func TestACrowdWithOneKeyIsRefusedTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.line.Capacity = 1
		s.adjust = summarize
	})
	w.pause()
	w.want(w.submit(w.shared, `"fills the line"`, key(keyB)), http.StatusAccepted)
	decisions := make(chan string, 100)
	for range cap(decisions) {
		go func() {
			a, err := w.try("POST", w.url+"/v1/jobs", `{"operation":"`+w.report+`","payload":1}`, key(keyA), idempotent("k"))
			if err != nil {
				t.Error(err)
			}
			decisions <- a.Header.Get("Forebay-Decision")
		}()
	}
	for range cap(decisions) {
		if said := <-decisions; said != `degraded;reason="line_full"` { // the fixed answer
			t.Errorf("%s", said)
		}
	}
	// It leaves no trace: once there is room the key gets its job.
	for _, look := range w.waiting() {
		w.want(w.call("DELETE", w.url+"/v1/jobs/"+look.Job.ID, "", key(keyB)), 200)
	}
	w.says(w.want(w.submit(w.report, `1`, key(keyA), idempotent("k")), http.StatusAccepted), map[string]string{"Forebay-Decision": "accepted"})
}

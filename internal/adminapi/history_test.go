package adminapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/history"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/testforebay"
)

// past is the history of a world: its tallies are written when a test says so, its events at once.
type past struct {
	*world
	tallies *history.Tallies
	events  *history.Events
}

func newPast(t *testing.T) *past {
	t.Helper()
	p := &past{}
	p.world = newWorld(t, func(s *setup) {
		s.Redis = redistest.Start(t).Client(t) // the history is one for all backends
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			p.tallies = history.New(history.Config{Redis: w.Redis, Process: "api test",
				Backends: []string{w.Backend}, Log: slog.New(slog.DiscardHandler),
				Sample: func(ctx context.Context, _ string) (history.Sample, error) {
					st, err := w.Line.Status(ctx)
					return history.Sample{Waiting: st.Waiting, Capacity: int64(st.Capacity),
						Configured: st.Configured.Rate.PerSecond(),
						Effective:  st.EffectiveRate}, err
				}})
			p.events = history.NewEvents(w.Redis, p.tallies.Now, slog.New(slog.DiscardHandler))
			c.Operators.Tallies, c.Operators.Events = p.tallies, p.events
			c.Tally = func(operation, decision, reason string) *atomic.Int64 {
				if operation == "" {
					return nil
				}
				if decision == api.Rejected {
					return p.tallies.Counter(w.Backend, history.Rejected(reason))
				}
				return p.tallies.Counter(w.Backend, history.Accepted)
			}
		}
	})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { p.events.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return p
}

// Operators see what was decided and where the line stood, by time, as JSON and as text.
func TestOperatorsSeeWhatHappened(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	for range 3 {
		p.Want(p.Submit(p.Report, "1", key(keyA)), 202)
	}
	p.Problem(p.Submit("no-such-operation", "1", key(keyA)), 404, api.CodeUnknownOperation)
	p.Problem(p.Submit(p.Report, "1,", key(keyA)), 400, api.CodeInvalidRequest)
	p.tallies.Flush(t.Context())
	var got api.History
	find := func() bool {
		strictly(t, "history", p.Want(p.AdminCall("GET",
			"history?backend="+p.Backend+"&from=-2m&step=10s"), 200).Text, &got)
		return len(got.Events) > 0 && slices.ContainsFunc(got.Backends[0].Points,
			func(h api.HistoryPoint) bool { return h.Line != nil })
	}
	p.Eventually("the bucket is over, and the process's start is on record", find)
	sum := api.HistoryPoint{}
	for _, h := range got.Backends[0].Points {
		sum.Offered, sum.Accepted = sum.Offered+h.Offered, sum.Accepted+h.Accepted
		if h.Line != nil && (h.Line.Waiting != 3 || h.Line.Capacity != 1000 ||
			h.Line.Rate.Configured != "10/s" || h.Line.Rate.Override != nil) {
			t.Errorf("the line: %+v", h.Line)
		}
	}
	if sum.Offered != 3 || sum.Accepted != 3 || len(got.Backends) != 1 || got.StepSeconds != 10 {
		t.Errorf("%+v in %+v", sum, got)
	}
	if len(got.Events) != 1 || got.Events[0].Type != api.EventProcessStarted {
		t.Errorf("events in between: %+v", got.Events)
	}
	a := p.Want(p.AdminCall("GET", "history?from=-2m&step=1m&format=text"), 200)
	if kind := a.Header.Get("Content-Type"); kind != "text/plain; charset=utf-8" ||
		!strings.Contains(string(a.Text), p.Backend+"  in ") {
		t.Errorf("%s: %s", kind, a.Text)
	}
	for _, query := range []string{"from=yesterday", "to=-1h&from=-1m", "step=7s", "step=1",
		"from=-3d", "step=5s&from=-5h", "from=-47h&step=1m", "format=xml", "since=-1h",
		"from=2026-12-01", "from="} {
		p.Problem(p.AdminCall("GET", "history?"+query), 400, api.CodeInvalidRequest)
	}
	p.Problem(p.AdminCall("GET", "history?backend=nowhere"), 404, api.CodeUnknownBackend)
}

// A change by an operator is an event: who, what it was and what it is.
func TestChangesAreEvents(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	by := field(api.HeaderOperator, "kim")
	p.Want(p.Call("PATCH", p.Admin+"/admin/v1/backends/"+p.Backend, `{"rate":"8/s"}`, by), 200)
	id := p.Job(p.Want(p.Submit(p.Report, "1", key(keyA)), 202)).ID
	p.Want(p.AdminCall("DELETE", "jobs/"+id, by), 200)
	var got api.OperationEvents
	p.Eventually("both are recorded", func() bool {
		strictly(t, "events", p.Want(p.AdminCall("GET", "events"), 200).Text, &got)
		return len(got.Events) == 2
	})
	tuned, canceled := got.Events[0], got.Events[1]
	if tuned.Type != api.EventBackendTuned || tuned.By != "kim" || tuned.Backend != p.Backend ||
		tuned.Before["rate"] != "10/s" || tuned.After["rate"] != "8/s" {
		t.Errorf("%+v", tuned)
	}
	if canceled.Type != api.EventJobCanceled || canceled.Backend != p.Backend ||
		!strings.Contains(canceled.Text, id) || got.NextCursor != nil {
		t.Errorf("%+v", canceled)
	}
	for _, e := range got.Events {
		if !slices.Contains(api.OperationEventTypes, e.Type) {
			t.Errorf("%s isn't in the list of types", e.Type)
		}
	}
	for query, want := range map[string]int{"?limit=1": 1, "?type=job_canceled": 1, "?from=-1h": 2,
		"?cursor=" + tuned.ID: 1, "?backend=" + p.Backend: 2, "?type=store_lost": 0} {
		strictly(t, query, p.Want(p.AdminCall("GET", "events"+query), 200).Text, &got)
		if len(got.Events) != want {
			t.Errorf("%s: %d events, want %d", query, len(got.Events), want)
		}
	}
	a := p.Want(p.AdminCall("GET", "events?format=text"), 200)
	if !strings.Contains(string(a.Text), "rate 10/s → 8/s  by kim") {
		t.Errorf("as text: %s", a.Text)
	}
	for _, query := range []string{"cursor=x", "type=earthquake", "limit=0", "limit=1001",
		"from=now", "format=yaml", "x=1"} {
		p.Problem(p.AdminCall("GET", "events?"+query), 400, api.CodeInvalidRequest)
	}
	p.Problem(p.AdminCall("GET", "events?backend=nowhere"), 404, api.CodeUnknownBackend)
}

// stream reads the events of a stream. A reader that has seen one goes on after it.
func (p *past) stream(query, seen string) (next func() api.OperationEvent, end func()) {
	p.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "GET", p.Admin+"/admin/v1/events"+query, nil)
	if err != nil {
		p.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	if seen != "" {
		r.Header.Set("Last-Event-ID", seen)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil || res.StatusCode != 200 ||
		res.Header.Get("Content-Type") != "text/event-stream" {
		p.Fatalf("no stream: %v, %v", res, err)
	}
	lines := bufio.NewScanner(res.Body)
	return func() (e api.OperationEvent) {
		p.Helper()
		id, kind := "", ""
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				id = value
			case "event":
				kind = value
			case "data":
				err := json.Unmarshal([]byte(value), &e)
				if err != nil || e.ID != id || e.Type != kind {
					p.Fatalf("event %s %s: %s, %v", id, kind, value, err)
				}
				return e
			}
		}
		p.Fatalf("the stream ended: %v", lines.Err())
		return e
	}, func() { cancel(); res.Body.Close() }
}

// A stream has each event once, also if it breaks and is taken up again.
func TestEventsCanBeFollowed(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	record := func(by string) {
		p.events.Record(api.OperationEvent{Type: api.EventJobCanceled, By: by, Backend: p.Backend})
	}
	record("before")
	p.Eventually("one is recorded", func() bool {
		id, err := p.events.LastID(t.Context())
		return err == nil && id != "0-0"
	})
	next, end := p.stream("", "") // from now on
	record("first")
	record("second")
	first := next()
	end()
	if first.By != "first" {
		t.Errorf("the first event is %+v", first)
	}
	next, end = p.stream("?backend="+p.Backend, first.ID)
	defer end()
	record("third")
	if a, b := next(), next(); a.By != "second" || b.By != "third" {
		t.Errorf("it goes on with %+v, %+v", a, b)
	}
	whole, end := p.stream("?from=-1h", "")
	defer end()
	for _, by := range []string{"before", "first", "second", "third"} {
		if e := whole(); e.By != by {
			t.Errorf("%s is %+v", by, e)
		}
	}
	accept := field("Accept", "text/event-stream")
	p.Problem(p.AdminCall("GET", "events", accept, field("Last-Event-ID", "x")), 400,
		api.CodeInvalidRequest)
	p.Want(p.AdminCall("HEAD", "events", accept), 200)
}

// Streams leave room on the listener for those who act, and end when the process does.
func TestStreamsOfEventsAreBounded(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	var ends []func()
	for range 52 {
		_, end := p.stream("", "")
		ends = append(ends, end)
	}
	refused := p.Problem(p.AdminCall("GET", "events", field("Accept", "text/event-stream")), 429,
		api.CodeTooManyStreams)
	if refused.RetryAfter < 10 {
		t.Errorf("retry after %d s", refused.RetryAfter)
	}
	for _, end := range ends[1:] {
		end()
	}
	p.Eventually("there is room", func() bool {
		return p.AdminCall("HEAD", "events", field("Accept", "text/event-stream")).StatusCode == 200
	})
	ends[0]()
}

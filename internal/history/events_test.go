package history

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/redistest"
)

// run writes the events of a process until the test ends or stop is called.
func run(t *testing.T, e *Events) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return stop
}

func event(kind, by string) api.OperationEvent { return api.OperationEvent{Type: kind, By: by} }

// Events are found in order, page by page, by backend, type and time; once, also those that each
// process has noticed. It is the same on an embedded Redis.
func TestEventsAreRecordedOnceAndInOrder(t *testing.T) {
	t.Parallel()
	for about, rdb := range map[string]redis.UniversalClient{
		"Redis": redistest.Start(t).Client(t), "embedded": redistest.Miniredis(t)} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			a, b := NewEvents(rdb, time.Now, quiet), NewEvents(rdb, time.Now, quiet)
			tuned := api.OperationEvent{Type: api.EventBackendTuned, Backend: "reports", By: "kim",
				Reason: strings.Repeat("é", 400), Before: map[string]string{"rate": "10/s"},
				After: map[string]string{"rate": "8/s"}}
			a.Record(tuned)
			for _, e := range []*Events{a, b} {
				e.RecordOnce(event(api.EventClientsReloaded, ""), "3 clients", time.Minute)
			}
			run(t, a)()
			b.RecordOnce(event(api.EventClientsReloaded, ""), "4 clients", time.Minute)
			b.Record(event(api.EventJobCanceled, "kim"))
			b.Record(event(api.EventJobCanceled, "kim")) // another job
			run(t, b)()
			want := "backend_tuned kim, clients_reloaded, clients_reloaded, job_canceled kim, " +
				"job_canceled kim"
			if got := strings.Join(types(t, b), ", "); got != want {
				t.Fatalf("got %s\nwant %s", got, want)
			}
			hour := time.Now().Add(-time.Hour)
			page, next, err := b.List(t.Context(), Filter{From: hour, Limit: 3})
			if err != nil || len(page) != 3 || next != page[2].ID {
				t.Fatalf("%v, next %q, %v", page, next, err)
			}
			if got := page[0]; got.Backend != "reports" || got.Before["rate"] != "10/s" ||
				got.After["rate"] != "8/s" || len(got.Reason) < maxText ||
				len(got.Reason) > maxText+10 || time.Since(got.Time.Time).Abs() > time.Minute {
				t.Errorf("the first one: %+v", got)
			}
			rest, end, err := b.List(t.Context(), Filter{After: next, Limit: 3})
			if err != nil || len(rest) != 2 || end != "" || !laterID(rest[0].ID, next) {
				t.Errorf("%v, next %q, %v", rest, end, err)
			}
			for f, n := range map[Filter]int{
				{Type: api.EventJobCanceled, Limit: 9}: 2, {Backend: "reports", Limit: 9}: 1,
				{Limit: 2}: 2, {From: time.Now().Add(time.Hour), Limit: 9}: 0,
				{To: time.Now().Add(-time.Hour), Limit: 9}: 0} {
				if page, _, err := b.List(t.Context(), f); err != nil || len(page) != n {
					t.Errorf("%+v: %d events, %v; want %d", f, len(page), err, n)
				}
			}
			if last, err := b.LastID(t.Context()); err != nil || last != rest[1].ID {
				t.Errorf("the last id is %s, %v", last, err)
			}
			for _, id := range []string{"x", "1", "-1-2", "1-x", "99999999999999999999-0"} {
				_, _, err := b.List(t.Context(), Filter{After: id, Limit: 1})
				if !errors.Is(err, ErrBadID) {
					t.Errorf("after %q: %v", id, err)
				}
			}
		})
	}
}

// 10,000 events are kept, and none for longer than 48 h.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	add := func(at time.Time, n int) {
		_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := range n {
				p.XAdd(t.Context(), &redis.XAddArgs{Stream: keyEvents,
					ID: fmt.Sprintf("%d-%d", at.UnixMilli(), i+1), Values: []string{"at",
						strconv.FormatInt(at.UnixMicro(), 10), "e", `{"type":"job_canceled"}`}})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	add(time.Now().Add(-49*time.Hour), 10)
	add(time.Now().Add(-47*time.Hour), MaxEvents-5)
	e := NewEvents(rdb, time.Now, quiet)
	if got := len(types(t, e)); got != MaxEvents-5 {
		t.Errorf("%d events are found, want %d", got, MaxEvents-5)
	}
	for range 9 {
		e.Record(event(api.EventJobRedriven, "kim"))
	}
	run(t, e)()
	if n := rdb.XLen(t.Context(), keyEvents).Val(); n != MaxEvents {
		t.Errorf("Redis has %d", n)
	}
	if got := types(t, e); len(got) != MaxEvents || got[0] != "job_canceled" ||
		got[MaxEvents-1] != "job_redriven kim" {
		t.Errorf("%d events, from %q to %q", len(got), got[0], got[len(got)-1])
	}
	if ttl := rdb.TTL(t.Context(), keyEvents).Val(); ttl <= 47*time.Hour || ttl > keep {
		t.Errorf("the TTL is %v", ttl)
	}
}

// storeState is a store that a test takes away and gives back.
type storeState struct {
	mu   sync.Mutex
	lost chan struct{} // closed: it is lost
}

func (s *storeState) Unavailable() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

func (s *storeState) Healthy() bool {
	select {
	case <-s.Unavailable():
		return false
	default:
		return true
	}
}

func (s *storeState) Reason() string { return "no route to host" }

func (s *storeState) lose() { close(s.lost) }

func (s *storeState) recover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = make(chan struct{})
}

// An outage of Redis is recorded when it is over, once for all processes, with the time when it
// began; and so is what happened meanwhile, as far as there is room.
func TestAnOutageIsRecordedWhenItIsOver(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	state := &storeState{lost: make(chan struct{})}
	a, b := NewEvents(rdb, time.Now, quiet), NewEvents(rdb, time.Now, quiet)
	a.Record(event(api.EventBackendTuned, "kim"))
	run(t, a)
	run(t, b)
	eventually(t, "before", a, func(all []string) bool { return len(all) == 1 })
	server.Kill()
	for _, e := range []*Events{a, b} {
		ctx, cancel := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { e.WatchStore(ctx, state) })
		t.Cleanup(func() { cancel(); watching.Wait() })
	}
	began := time.Now()
	state.lose()
	noted := func(e *Events, n int) func() bool {
		return func() bool { e.mu.Lock(); defer e.mu.Unlock(); return len(e.queue) == n }
	}
	for _, e := range []*Events{a, b} {
		until(t, "the loss is noted", noted(e, 1))
	}
	b.Record(event(api.EventClientsRefused, ""))
	until(t, "an outage of some length", func() bool { return time.Since(began) > 2*prompt })
	server.Restart()
	state.recover()
	eventually(t, "after", a, func(all []string) bool { return len(all) == 4 })
	for _, e := range []*Events{a, b} {
		until(t, "all is written", noted(e, 0))
	}
	got := types(t, a)
	if diff := cmp.Diff(map[string]int{"backend_tuned kim": 1, "store_lost": 1,
		"clients_refused": 1, "store_found": 1}, tally(got)); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	page, _, _ := a.List(t.Context(), Filter{Type: api.EventStoreLost, Limit: 1})
	if len(page) != 1 || page[0].Text != "no route to host" ||
		page[0].Time.Sub(began).Abs() > time.Second {
		t.Errorf("lost at %v: %+v", began, page)
	}
}

func tally(all []string) map[string]int {
	n := map[string]int{}
	for _, one := range all {
		n[one]++
	}
	return n
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// A process keeps the last 100 events while it can't write, and says how many more there were.
func TestEventsThatCanNotBeWrittenAreBounded(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	e := NewEvents(rdb, time.Now, quiet)
	for i := range 130 {
		e.Record(event(api.EventJobCanceled, strconv.Itoa(i)))
	}
	run(t, e)()
	got := types(t, e)
	if len(got) != 101 || got[0] != "events_dropped" || got[1] != "job_canceled 30" ||
		got[100] != "job_canceled 129" {
		t.Errorf("%d events: %q", len(got), got)
	}
	page, _, _ := e.List(t.Context(), Filter{Type: api.EventsDropped, Limit: 1})
	if len(page) != 1 || page[0].Text != "30 events" {
		t.Errorf("dropped: %+v", page)
	}
	var none *Events
	none.Record(event(api.EventJobCanceled, "")) // does nothing
}

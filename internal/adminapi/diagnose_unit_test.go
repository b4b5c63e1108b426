package adminapi

import (
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/glance"
	"github.com/forebay/forebay/internal/leaky"
)

// well is a sighting of a service in which all is well, with a backend "reports".
func well(now time.Time) (sighting, *backendSeen) {
	rate, _ := leaky.ParseRate("8/s")
	st := leaky.Status{Now: now, Factor: 1, EffectiveRate: 8, EffectiveConcurrency: 4, Waiting: 5,
		Settings: leaky.Settings{Drain: leaky.Drain{Rate: rate, Concurrency: 4},
			Room: leaky.Room{Capacity: 100}},
		Books: leaky.Books{Accepted: 105, Succeeded: 100}}
	b := &backendSeen{status: glance.Seen[leaky.Status]{Value: st, At: now},
		recent: leaky.Recent{Over: time.Minute, Books: leaky.Books{Succeeded: 50}}}
	return sighting{now: now, store: storeSeen{healthy: true, writable: true},
		workers:  &glance.Seen[int]{Value: 3, At: now},
		webhooks: map[string]glance.Seen[post]{"reports": {At: now}},
		stale:    map[string]int64{"monthly": 0}}, b
}

// Each fault is found at its level, with its cause and the command to go on with, and nothing else
// is found beside it.
func TestADiagnosisOfEachFault(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var mu sync.Mutex
	nexts := map[string]bool{} // guarded by mu: all advice
	t.Cleanup(func() {
		// cmd/forebay tests that each is a command that there is.
		const file = "testdata/next.txt"
		got := strings.Join(slices.Sorted(maps.Keys(nexts)), "\n") + "\n"
		if want, err := os.ReadFile(file); string(want) != got {
			t.Errorf("%s has other advice (%v) than\n%s", file, err, got)
		}
	})
	type change func(*sighting, *leaky.Status, *backendSeen)
	for name, c := range map[string]struct {
		change change
		thing  string
		level  string
		cause  string // a part of it
		next   string // a part of it; "": there is none
	}{
		"all is well": {func(*sighting, *leaky.Status, *backendSeen) {}, "", api.LevelOK, "", ""},
		"the store is away": {func(s *sighting, _ *leaky.Status, _ *backendSeen) {
			s.store.healthy, s.store.since = false, now.Add(-time.Second)
		}, thingStore, api.LevelCritical, "unavailable", "docs operating"},
		"the store is full": {func(s *sighting, _ *leaky.Status, _ *backendSeen) {
			s.store.writable = false
		}, thingStore, api.LevelCritical, "takes no writes", "docs operating"},
		"the store is unsafe": {func(s *sighting, _ *leaky.Status, _ *backendSeen) {
			s.store.warnings = []string{"It evicts.", "It forgets."}
		}, thingStore, api.LevelWarning, "It evicts (and 1 more)", "docs operating"},
		"no worker runs, and none is needed": {func(s *sighting, st *leaky.Status, _ *backendSeen) {
			s.workers.Value, st.Waiting = 0, 0
			st.Books.Accepted = 100
		}, thingWorkers, api.LevelCritical, "none runs", "docs operating"},
		"the count of workers is old": {func(s *sighting, _ *leaky.Status, _ *backendSeen) {
			s.workers.At = now.Add(-time.Minute)
		}, thingWorkers, api.LevelUnknown, "not seen lately", ""},
		"the backend throttles": {func(_ *sighting, st *leaky.Status, _ *backendSeen) {
			st.Factor, st.EffectiveRate, st.Cause, st.Probing = 0.37, 2.96, leaky.Throttled, true
		}, thingBackend, api.LevelCritical,
			"answers 429 or 503: drains 2.96/s of 8/s, one call probes", "explain backend/reports"},
		"the gate is closed": {func(_ *sighting, st *leaky.Status, _ *backendSeen) {
			st.GateUntil = now.Add(time.Minute)
		}, thingBackend, api.LevelCritical, "no call before", "explain backend/reports"},
		"the backend hangs": {func(_ *sighting, st *leaky.Status, _ *backendSeen) {
			st.Factor, st.EffectiveRate, st.Cause = 0.5, 4, leaky.Timeout
		}, thingBackend, api.LevelCritical, "doesn't answer in time", "explain backend/reports"},
		"the backend throttles again": {func(_ *sighting, st *leaky.Status, b *backendSeen) {
			st.Factor, st.EffectiveRate, st.Cause = 0.9, 7.2, leaky.Throttled
			b.recent.Books.Throttled = 1
		}, thingBackend, api.LevelCritical, "answers 429 or 503", "explain backend/reports"},
		"the backend recovers": {func(_ *sighting, st *leaky.Status, _ *backendSeen) {
			st.Factor, st.EffectiveRate, st.Cause = 0.9, 7.2, leaky.Throttled
		}, thingBackend, api.LevelWarning, "recovers: drains 7.2/s of 8/s",
			"explain backend/reports"},
		"nobody drains": {func(_ *sighting, _ *leaky.Status, b *backendSeen) {
			b.recent.StalledFor = 20 * time.Second
		}, thingBackend, api.LevelCritical, "5 wait, and no call begins",
			"explain backend/reports"},
		"a slow drain isn't a stalled one": {func(_ *sighting, st *leaky.Status, b *backendSeen) {
			b.recent.StalledFor, st.EffectiveRate = time.Minute, 1.0/60
		}, "", api.LevelOK, "", ""},
		"the line is full": {func(_ *sighting, st *leaky.Status, _ *backendSeen) {
			st.Waiting, st.Books.Accepted = 100, 200
		}, thingBackend, api.LevelCritical, "line is full", "forebay rate reports"},
		"the line is nearly full": {func(_ *sighting, st *leaky.Status, _ *backendSeen) {
			st.Waiting, st.Books.Accepted = 85, 185
		}, thingBackend, api.LevelWarning, "room for 15 more of 100", "forebay rate reports"},
		"the drain is paused": {func(_ *sighting, st *leaky.Status, b *backendSeen) {
			st.Paused, st.By = true, "jo" // who has changed something else since
			st.Notes = map[string]leaky.Note{"paused": {By: "kim", At: now.Add(-3 * time.Hour),
				Reason: "restart"}}
			b.recent.StalledFor, b.expires = time.Hour, now
		}, thingBackend, api.LevelWarning, "paused by kim (restart); 5 wait, the first expires",
			"forebay resume reports"},
		"the queue is paused": {func(_ *sighting, st *leaky.Status, _ *backendSeen) {
			st.WaitingOn = leaky.OnQueuePaused
		}, thingBackend, api.LevelWarning, "queue of its tickets", "explain backend/reports"},
		"some jobs fail": {func(_ *sighting, _ *leaky.Status, b *backendSeen) {
			b.recent.Books.Failed = 4
		}, thingFailures, api.LevelWarning, "reports: 4 of 54 jobs failed", "--status failed"},
		"most jobs fail": {func(_ *sighting, _ *leaky.Status, b *backendSeen) {
			b.recent.Books.Failed = 60
		}, thingFailures, api.LevelCritical, "60 of 110", "--status failed"},
		"redrives aren't failures undone": {func(_ *sighting, _ *leaky.Status, b *backendSeen) {
			b.recent.Books.Failed, b.recent.Books.Redriven = -60, 60
		}, "", api.LevelOK, "", ""},
		"one job fails": {func(_ *sighting, _ *leaky.Status, b *backendSeen) {
			b.recent.Books = leaky.Books{Failed: 1}
		}, "", api.LevelOK, "", ""},
		"no webhook is sent": {func(s *sighting, _ *leaky.Status, _ *backendSeen) {
			s.webhooks["reports"] = glance.Seen[post]{At: now,
				Value: post{Due: now.Add(-2 * time.Minute)}}
		}, thingWebhooks, api.LevelCritical, "overdue", "forebay webhooks ls"},
		"a webhook was given up": {func(s *sighting, _ *leaky.Status, _ *backendSeen) {
			s.webhooks["reports"] = glance.Seen[post]{At: now,
				Value: post{GivenUp: now.Add(-2 * time.Minute)}}
		}, thingWebhooks, api.LevelWarning, "given up", "--state failed"},
		"a webhook was given up long ago": {func(s *sighting, _ *leaky.Status, _ *backendSeen) {
			s.webhooks["reports"] = glance.Seen[post]{At: now,
				Value: post{GivenUp: now.Add(-2 * time.Hour)}}
		}, "", api.LevelOK, "", ""},
		"webhooks were never seen": {func(s *sighting, _ *leaky.Status, _ *backendSeen) {
			s.webhooks["reports"] = glance.Seen[post]{}
		}, thingWebhooks, api.LevelUnknown, "not seen yet", ""},
		"stale answers are served": {func(s *sighting, _ *leaky.Status, _ *backendSeen) {
			s.stale = map[string]int64{"monthly": 31, "daily": 2}
		}, thingStale, api.LevelWarning, "33 served in the last minute, most of monthly",
			"forebay cache ls"},
		"the books are off": {func(_ *sighting, st *leaky.Status, _ *backendSeen) {
			st.Books.Accepted += 3
		}, thingBooks, api.LevelCritical, "off by 3", "forebay books reports"},
		"jobs were lost": {func(_ *sighting, _ *leaky.Status, b *backendSeen) {
			b.recent.Books.Lost = 2
		}, thingBooks, api.LevelWarning, "lost 2", "forebay books reports"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, b := well(now)
			c.change(&s, &b.status.Value, b)
			s.backends = map[string]backendSeen{"reports": *b}
			d := diagnose(s)
			if d.Level != c.level || d.Level != d.Findings[0].Level {
				t.Fatalf("%+v, want %s", d, c.level)
			}
			for i, f := range d.Findings {
				if f.Next != "" {
					mu.Lock()
					nexts[f.Next] = true
					mu.Unlock()
				}
				if f.Level == api.LevelOK {
					if f.Next != "" {
						t.Errorf("advice where all is well: %+v", f)
					}
					continue
				}
				if i > 0 || f.Thing != c.thing || !strings.Contains(f.Cause, c.cause) ||
					(f.Next == "") != (c.next == "") || !strings.Contains(f.Next, c.next) {
					t.Errorf("found %+v", f)
				}
			}
		})
	}
}

// What was seen too long ago is unknown, whatever it was, and comes without advice. The whole is as
// bad as the worst.
func TestADiagnosisOfOldSights(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s, b := well(now)
	b.status.At, b.status.Value.Paused = now.Add(-16*time.Second), true
	s.backends = map[string]backendSeen{"reports": *b, "never": {}}
	d := diagnose(s)
	unknown := 0
	for _, f := range d.Findings {
		if f.Level != api.LevelUnknown {
			continue
		}
		unknown++
		if f.Next != "" {
			t.Errorf("advice from old input: %+v", f)
		}
	}
	if d.Level != api.LevelUnknown || unknown != 5 { // two backends, failures, webhooks, books
		t.Errorf("%d unknown in %+v", unknown, d)
	}
	s.store.healthy = false
	if d = diagnose(s); d.Level != api.LevelCritical || d.Findings[0].Thing != thingStore {
		t.Errorf("without the store: %+v", d)
	}
}

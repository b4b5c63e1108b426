package text_test

import (
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/text"
)

func at(clock string) *api.Time {
	t, err := time.Parse("2006-01-02 15:04:05", "2026-11-30 "+clock)
	if err != nil {
		panic(err)
	}
	return &api.Time{Time: t}
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAForecastAsText(t *testing.T) {
	t.Parallel()
	f := api.Forecast{Backend: "reports", At: *at("16:00:30"), Waiting: 272, CallSeconds: 0.4,
		Arrivals: api.Arrivals{Known: true, PerSecond: 5, Spread: 0.4, OverSeconds: 60},
		Now: api.Outlook{Rate: "8/s", Concurrency: 4, BoundBy: "rate", PerSecond: new(8.0),
			EmptyAt: at("16:02:01"), RefusedPerMinute: new(0.0), WaitSeconds: new(34.0)},
		Proposed: &api.Outlook{Rate: "12/s", Concurrency: 4, BoundBy: "concurrency",
			PerSecond: new(10.0), ConcurrencyNeeded: 5, EmptyAt: at("16:01:24"),
			RefusedPerMinute: new(0.0), WaitSeconds: new(27.2), Expiring: 3,
			ExpiringEstimated: true}}
	same(t, text.Forecast(f), `
              now 8/s     at 12/s                                                           `+
		`(272 wait, 5/s ± 0.4 arrive, as in the last 60 s)
bound by      rate        concurrency 4: calls take 0.4 s, so 10/s; concurrency 5 would do
empty at      16:02:01    16:01:24
full at       never       never
wait          34 s        27 s
would expire  0           about 3
refused       0 a minute  0 a minute
`)
	f.Proposed, f.Arrivals = nil, api.Arrivals{}
	f.Now = api.Outlook{Rate: "8/s", Paused: true, BoundBy: "paused"}
	same(t, text.Forecast(f), `
              now paused         (272 wait, how many arrive isn't known yet)
bound by      paused
empty at      not known
full at       not known
wait          not known: paused
would expire  0
refused       not known
`)
}

func TestAnExplanationAsText(t *testing.T) {
	t.Parallel()
	e := api.Explanation{JobID: "reports-x", Backend: "reports", State: "waiting",
		At: *at("16:00:20"), Reason: "It waits for its turn.", Position: 131, Waiting: 240,
		StartsAt: at("16:01:04"), StartsInSeconds: new(44.0),
		Rate: &api.ExplainedRate{Effective: "2.97/s", Configured: "10/s", Override: new("8/s"),
			OverrideNote: api.OverrideNote{SetBy: "k\x1bim", SetAt: at("16:00:05"),
				ExpiresAt: at("16:30:05"), Reason: "their database moves"}, Factor: 0.37,
			Cause: "throttled", FactorSince: at("16:00:09")},
		Ahead: &api.Ahead{Jobs: 130, Clients: []api.ClientAhead{{Client: "globex", Jobs: 61},
			{Client: "acme", Jobs: 48}}, OtherClients: 7, OtherJobs: 21},
		Holds: []api.Hold{{What: "gate", Detail: "gate open"},
			{What: "concurrency", Detail: "3 of 4 calls at once"},
			{What: "pause", Holds: true, Detail: "paused",
				OverrideNote: api.OverrideNote{SetBy: "jo", SetAt: at("16:00:10")}}},
		Sooner: []api.Sooner{{Change: "health", StartsInSeconds: 16.4},
			{Change: "priority", Value: "high", StartsInSeconds: 4}}}
	same(t, text.Explain(e), `
waits 131st of 240 in reports; starts about 16:01:04, in 44 s
  waits for  It waits for its turn.
  rate       2.97/s = 8/s (set by k`+"\ufffd"+`im 16:00:05 until 16:30:05: their database `+
		`moves, configured 10/s) × 0.37 (recovers from answers 429 or 503 since 16:00:09)
  ahead      130: globex 61, acme 48, 7 others 21
  holds      paused by jo 16:00:10
  holds not  gate open, 3 of 4 calls at once
  sooner     once the backend is well: in 16 s     priority high: in 4 s
`)
	e = api.Explanation{Backend: "reports", State: "failed", At: *at("16:00:20"),
		Reason: "It failed in attempt 3, with x\n."}
	same(t, text.Explain(e), "failed in reports\n  It failed in attempt 3, with x\ufffd.\n")
}

func TestADiagnosisAsText(t *testing.T) {
	t.Parallel()
	d := api.Diagnosis{Level: "critical", At: *at("16:00:30"), Findings: []api.Finding{
		{Level: "critical", Thing: "backend", Backend: "reports",
			Cause: "answers 429 or 503: drains 2.97/s of 8/s, one call probes",
			Since: at("16:00:09"), Next: "forebay explain backend/reports"},
		{Level: "warning", Thing: "backend", Backend: "exports",
			Cause: "paused by kim; 412 wait", Since: at("13:00:05"),
			Next: "forebay resume exports"},
		{Level: "ok", Thing: "store"}, {Level: "ok", Thing: "workers", Cause: "3"},
		{Level: "ok", Thing: "books"}}}
	same(t, text.Health(d), `
critical  reports  answers 429 or 503: drains 2.97/s of 8/s, one call probes, since 16:00:09  `+
		`forebay explain backend/reports
warning   exports  paused by kim; 412 wait, since 13:00:05                                    `+
		`forebay resume exports
ok        store  workers 3  books
`)
}

func TestABackendAsText(t *testing.T) {
	t.Parallel()
	b := api.Backend{Name: "reports", Rate: api.Setting[string]{Configured: "10/s",
		Override: new("8/s"), Effective: "2.97/s", OverrideNote: api.OverrideNote{SetBy: "kim",
			SetAt: at("16:00:05"), ExpiresAt: at("17:00:05"), Reason: "their advice"}},
		Burst:       api.Setting[int]{Configured: 1, Effective: 1},
		Concurrency: api.Setting[int]{Configured: 10, Override: new(4), Effective: 4},
		Capacity:    api.Setting[int]{Configured: 1000, Effective: 1000},
		Feedback:    api.Setting[string]{Configured: "on", Effective: "on"},
		Cause:       new("throttled"), Factor: 0.37, WaitingOn: "rate", Waiting: 130, Delayed: 1,
		OldestWaitSeconds: 44, RecentCalls: api.RecentCalls{PerSecond: 2.9, P50Seconds: 0.25}}
	same(t, text.Backend(b, at("16:00:20").Time), `
backend       reports
state         throttled
rate          2.97/s of 8/s (configured 10/s) by kim 16:00:05 until 17:00:05: their advice
burst         1
concurrency   4 (configured 10)
capacity      1000
feedback      on
cause         answers 429 or 503: 37 % of the rate is left
line          130 wait, 1 wait for a retry, 0 in flight, of 1000
oldest waits  44 s
calls         2.90/s in the last minutes, p50 0.25 s, p95 0 s, p99 0 s
jobs          0 accepted, 0 succeeded, 0 failed, 0 canceled, 0 expired
`)
	b.Paused, b.GateUntil, b.Probing = true, at("16:00:25"), true
	b.Pause = &api.OverrideNote{SetBy: "j\x1bo", SetAt: at("16:00:10")}
	got := text.Backend(b, at("16:00:20").Time)
	for _, line := range []string{"state         paused by j\ufffdo 16:00:10\n",
		"probe         one call tests", "gate until    16:00:25\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
}

func TestAJobAsText(t *testing.T) {
	t.Parallel()
	j := &api.Job{ID: "reports-x", Operation: "report", Status: "queued",
		CreatedAt: *at("16:00:05"), Queue: &api.Queue{Position: 22, ETASeconds: new(44.0),
			WaitingOn: "rate"}}
	same(t, text.Job(j, at("16:00:20").Time), `
job        reports-x
operation  report
status     queued
attempts   0
stands     22nd in line, starts in about 44 s, waits on rate
created    16:00:05
`)
	j.Queue.ETASeconds = nil
	if got := text.Standing(j); got != "22nd in line, the backend is paused" {
		t.Error(got)
	}
	j.Status, j.Queue = "failed", nil
	j.Error = &api.Problem{Code: "x\x1b", Status: 424}
	j.FinishedAt, j.ExpiresAt = at("16:00:07"), &api.Time{Time: at("16:00:07").AddDate(0, 0, 7)}
	got := text.Job(j, at("16:00:20").Time)
	if !strings.Contains(got, "expires    2026-12-07 16:00\n") || strings.Contains(got, "\x1b") {
		t.Error(got)
	}
}

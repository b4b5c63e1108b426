package text_test

import (
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/text"
)

var four = time.Date(2026, 12, 1, 16, 0, 27, 0, time.UTC)

// A history is a line for each step and backend, with what an operator looks at first.
func TestAHistoryIsALineAStep(t *testing.T) {
	t.Parallel()
	point := func(at time.Duration, line *api.HistoryLine) api.HistoryPoint {
		return api.HistoryPoint{At: api.Time{Time: four.Add(at)}, Seconds: 5, Offered: 71,
			Accepted: 61, Degraded: 8, Rejected: 2, Line: line}
	}
	throttled := &api.HistoryLine{Waiting: 130, Capacity: 1000, OldestWaitSeconds: 44.3,
		Rate:  api.Setting[string]{Configured: "10/s", Override: new("8/s"), Effective: "2.97/s"},
		Cause: "throttled", Started: 15}
	paused := &api.HistoryLine{Capacity: 10, OldestWaitSeconds: 7512,
		Rate: api.Setting[string]{Configured: "unlimited", Effective: "unlimited"}, Paused: true}
	h := api.History{From: api.Time{Time: four}, To: api.Time{Time: four.Add(10 * time.Second)},
		Backends: []api.BackendHistory{
			{Backend: "reports", Points: []api.HistoryPoint{point(0, throttled),
				point(5*time.Second, nil)}},
			{Backend: "x\x1b", Points: []api.HistoryPoint{point(0, paused),
				{At: api.Time{Time: four.Add(5 * time.Second)}, Seconds: 5, Line: paused}}}}}
	const want = `16:00:27 reports  in 14.2/s  out 3/s of 8/s (throttled)  line 130/1000  wait 44s  429 2.8%  stale 11%
16:00:27 x�       in 14.2/s  out 0/s of unlimited (paused)  line 0/10  wait 2h5m  429 2.8%  stale 11%
16:00:32 reports  in 14.2/s  out ?  line ?  wait ?  429 2.8%  stale 11%
16:00:32 x�       in 0/s  out 0/s of unlimited (paused)  line 0/10  wait 2h5m  429 0%  stale 0%
`
	if got := text.History(h); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := text.History(api.History{}); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

// An event is a line, and no name in it makes another one.
func TestAnEventIsALine(t *testing.T) {
	t.Parallel()
	all := api.OperationEvents{Events: []api.OperationEvent{
		{ID: "1-0", Time: api.Time{Time: four}, Type: api.EventBackendTuned, Backend: "reports",
			By: "kim\nroot", Reason: "errors",
			Before: map[string]string{"rate": "10/s", "burst": "1"},
			After:  map[string]string{"rate": "8/s", "burst": "2"}},
		{ID: "2-0", Time: api.Time{Time: four.Add(time.Second)}, Type: api.EventStoreFound,
			Text: "after 12s"}}}
	const want = `16:00:27  backend_tuned  reports  burst 1 → 2  rate 10/s → 8/s  by kim�root  reason: errors
16:00:28  store_found  after 12s
`
	if got := text.Events(all); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	all.Events[1].Time.Time = four.Add(24 * time.Hour)
	if got := text.Events(all); got[:20] != "2026-12-01 16:00:27 " {
		t.Errorf("over two days: %q", got)
	}
	if got := text.Events(api.OperationEvents{}); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

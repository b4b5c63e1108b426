package text_test

import (
	"testing"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/text"
)

// One line says what a redrive would do, and how to do exactly that.
func TestAPreviewIsOneLine(t *testing.T) {
	t.Parallel()
	preview := func(change func(*api.RedrivePreview)) api.RedrivePreview {
		p := api.RedrivePreview{Backend: "reports", At: *at("16:00:27"), Jobs: 4, Token: "7f3a",
			Stopped: api.StoppedDone, OldestAt: at("16:00:20"), Ahead: 130, Room: 870,
			LeftAt:      at("16:01:10"),
			ByClient:    map[string]int{"globex": 1, "acme": 3},
			ByOperation: map[string]int{"invoice": 4}, ByCode: map[string]int{"backend_status": 4}}
		change(&p)
		return p
	}
	for want, p := range map[string]api.RedrivePreview{
		"4 jobs (acme 3, globex 1; invoice 4), oldest 16:00:20. They go behind 130 and have left " +
			"by about 16:01:10. Same set: --token 7f3a": preview(func(*api.RedrivePreview) {}),
		"No failed job matches.": {Backend: "reports", Stopped: api.StoppedDone},
		"4 jobs (acme 3, globex 1; invoice 4; backend_status 3, worker_lost 1), oldest 16:00:20; " +
			"there may be more. They go behind 130; the backend is paused. The line has room " +
			"for 2. Same set: --token 7f3a": preview(func(p *api.RedrivePreview) {
			p.ByCode = map[string]int{"backend_status": 3, "worker_lost": 1}
			p.Paused, p.LeftAt, p.Room, p.Stopped = true, nil, 2, api.StoppedMax
		}),
		"1 job (a\ufffd[2J 1; invoice 1), oldest 2026-11-29 16:00:20. It goes behind 0 and has " +
			"left by about 2026-12-01 16:01:10. " +
			"Same set: --token 7f3a": preview(func(p *api.RedrivePreview) {
			p.Jobs, p.Ahead = 1, 0
			p.ByClient = map[string]int{"a\x1b[2J": 1}
			p.ByOperation = map[string]int{"invoice": 1}
			p.OldestAt = new(api.Time{Time: at("16:00:20").AddDate(0, 0, -1)})
			p.LeftAt = new(api.Time{Time: at("16:01:10").AddDate(0, 0, 1)})
		}),
		"28 jobs (a 9, b 5, c 4, d 4, e 3, 2 others 3; invoice 28), oldest 16:00:20. They go " +
			"behind 130 and have left by about 16:01:10. " +
			"Same set: --token 7f3a": preview(func(p *api.RedrivePreview) {
			p.Jobs = 28
			p.ByClient = map[string]int{"a": 9, "b": 5, "c": 4, "d": 4, "e": 3, "f": 2, "g": 1}
			p.ByOperation = map[string]int{"invoice": 28}
		}),
	} {
		if got := text.RedrivePreview(p); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	for want, r := range map[string]api.Redriven{
		"12 redriven": {Redriven: 12, Stopped: api.StoppedDone},
		"0 redriven, 4 skipped: no longer failed; the line is full": {Skipped: 4,
			Stopped: api.StoppedFull},
		"1 redriven; new\ufffd": {Redriven: 1, Stopped: "new\n"},
	} {
		if got := text.Redriven(r); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

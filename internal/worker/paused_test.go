package worker_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

// Case N22.
//
// A queue that was paused with asynq's own tools (jobs.Pause in that package's tests sets the same
// key) is recognised, gets no more tickets, and isn't taken for a lost worker.
func TestAQueuePausedFromOutsideIsRecognised(t *testing.T) {
	t.Parallel()
	s := newSite(t, ok)
	s.settings.Concurrency = 3
	s.open()
	var log lines
	s.config.Log = slog.New(slog.NewTextHandler(&log, nil))
	queue := "asynq:{" + s.settings.Backend + "}:"
	s.rdb.Set(t.Context(), queue+"paused", "1", 0)
	var ids []string
	for range 10 {
		ids = append(ids, s.offer(nil))
	}
	workers := []*running{s.start(redistest.Client(t)), s.start(redistest.Client(t))}
	waitsOn := func() string {
		st, err := s.line.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.WaitingOn
	}
	s.until("the line doesn't say that its queue is paused", func() bool {
		return waitsOn() == leaky.OnQueuePaused
	})
	if look, err := s.line.Look(t.Context(), ids[9]); err != nil ||
		look.WaitingOn != leaky.OnQueuePaused || look.Wait != 0 {
		t.Errorf("a job waits on %q for %v, %v", look.WaitingOn, look.Wait, err)
	}
	idle := func() (seconds float64) {
		for _, w := range workers {
			seconds += w.sum(t, "forebay_drain_wait_seconds_total", leaky.OnQueuePaused)
		}
		return seconds
	}
	// When two dispatchers have waited that long in all, each has passed the 2 s after which a
	// ticket comes back.
	s.until("the dispatchers don't wait for it", func() bool { return idle() > 6 })
	if n := s.rdb.LLen(t.Context(), queue+"pending").Val(); n > 2*int64(s.settings.Concurrency) {
		t.Errorf("%d tickets pile up", n)
	}
	if got := waitsOn(); got != leaky.OnQueuePaused {
		t.Errorf("after a while it waits on %q", got)
	}
	s.rdb.Del(t.Context(), queue+"paused")
	for _, id := range ids {
		if st := s.await(id); st.State != jobs.Succeeded || st.Attempts != 1 {
			t.Errorf("job %s: %+v", id, st)
		}
	}
	for _, w := range workers {
		if n := w.sum(t, "forebay_jobs_returned_total", ""); n != 0 {
			t.Errorf("%v jobs of lost workers", n)
		}
	}
	s.until("the log doesn't say that it goes on", func() bool {
		return strings.Count(log.String(), "the queue was resumed") > 0
	})
	if text := log.String(); strings.Contains(text, "lost worker") ||
		!strings.Contains(text, "paused by asynq's own tools") {
		t.Error(text)
	}
	s.check()
}

// The drain goes on by itself at the end of a pause, and one worker's log says so.
func TestAPauseEndsByItself(t *testing.T) {
	t.Parallel()
	s := newSite(t, ok)
	s.open()
	var log lines
	s.config.Log = slog.New(slog.NewTextHandler(&log, nil))
	if err := s.line.Retune(t.Context(), leaky.Tuning{Set: leaky.Override{Paused: new(true)},
		By: "kim", For: leaky.MinFor}); err != nil {
		t.Fatal(err)
	}
	set, err := s.line.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := s.offer(nil)
	for range 2 {
		s.start(redistest.Client(t))
	}
	if st := s.await(id); st.State != jobs.Succeeded ||
		st.StartedAt.Before(set.Notes["paused"].Ends) {
		t.Errorf("%+v, in a pause until %v", st, set.Notes["paused"].Ends)
	}
	if n := strings.Count(log.String(), "an override has ended"); n != 1 ||
		!strings.Contains(log.String(), "setting=paused was=true config=false") {
		t.Errorf("%d lines say so:\n%s", n, log.String())
	}
	s.check()
}

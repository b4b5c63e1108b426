package webhook_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/webhook"
)

// Case C118.
//
// A receiver that hangs doesn't hold up webhooks to others. Its own are cut off at the timeout.
func TestAReceiverThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hang := make(chan struct{})
	x := w.receive(func(_ int, _ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(hang) }) // before x closes, which waits for its answers
	y := w.receive(nil)
	p := anywhere(time.Hour)
	p.Timeout = 20 * time.Second
	s := w.start(p)
	const each = 50
	var toX, toY []string
	for range each {
		toX = append(toX, w.end(x.URL))
	}
	for range each {
		toY = append(toY, w.end(y.URL))
	}
	began := time.Now()
	for _, id := range toY {
		w.awaitState(id, webhook.Delivered)
	}
	if took := time.Since(began); took > p.Timeout/2 {
		t.Errorf("Y's took %v", took)
	}
	if got := s.attempts(t, "failed"); got != 0 {
		t.Errorf("%v attempts ended before Y's: it waited for X", got)
	}
	if n := len(x.requests()); n > webhook.MaxPerHost {
		t.Errorf("%d requests at X at one time", n)
	}
	if got := s.attempts(t, "put_off"); got < each-webhook.MaxPerHost {
		t.Errorf("%v were put off", got)
	}
	w.until("X's are cut off", func() bool { return s.attempts(t, "failed") > 0 })
	d := w.await(toX[0], "it is recorded as a timeout", func(d webhook.Delivery) bool {
		return d.Attempts > 0
	})
	if d.Log[0].Word != "timeout" || d.Attempts != 1 || d.Log[0].Took < p.Timeout {
		t.Errorf("X's first: %+v", d)
	}
	// Being put off is no attempt.
	for _, id := range toX {
		if d, err := w.outbox.Read(t.Context(), id); err != nil || d.Attempts > 1 {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// A process that stops lets attempts end for a while. Those that it then breaks off don't count,
// and another process makes them.
func TestAStopCostsNoAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rc := w.receive(func(n int, rw http.ResponseWriter, r *http.Request) {
		if n == 1 {
			<-r.Context().Done()
		}
	})
	s := w.start(anywhere(time.Hour))
	id := w.end(rc.URL)
	w.until("the attempt is under way", func() bool { return len(rc.requests()) == 1 })
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	w.start(anywhere(time.Hour))
	if d := w.awaitState(id, webhook.Delivered); d.Attempts != 1 {
		t.Errorf("on record: %+v", d)
	}
}

// Redis may go away and come back: webhooks that were due meanwhile are delivered then.
func TestWebhooksOutliveARestartOfRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rc := w.receive(nil)
	w.start(anywhere(time.Hour))
	w.awaitState(w.end(rc.URL), webhook.Delivered)
	w.server.Kill()
	w.server.Restart()
	w.until("Redis is back", func() bool { return w.rdb.Ping(t.Context()).Err() == nil })
	w.awaitState(w.end(rc.URL), webhook.Delivered)
}

// A relay is woken again although the host at the other end of its connection has gone without
// closing it, and it looks for the deliveries whose wake-ups were lost.
func TestWakeUpsOutliveASilentConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := redistest.StartProxy(t, w.server.Addr)
	listens := redis.NewClient(&redis.Options{Addr: proxy.Addr, DisableIdentity: true})
	t.Cleanup(func() { listens.Close() })
	rc := w.receive(nil)
	w.start(anywhere(time.Hour), func(s *webhook.Sender) {
		s.Redis = listens
		s.Silence(300 * time.Millisecond)
		s.LookEvery(time.Hour)
	})
	w.awaitState(w.end(rc.URL), webhook.Delivered)
	proxy.Lame()
	for range 2 { // the first wake-up is lost
		w.awaitState(w.end(rc.URL), webhook.Delivered)
	}
}

// Lists go on where a page ended, also among many deliveries that are due at one moment, and while
// others are added.
func TestListsHavePages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rc := w.receive(statuses(410))
	s := w.start(anywhere())
	const n = 7
	want := map[string]bool{}
	for i := range n {
		id := w.end(rc.URL + "/" + strconv.Itoa(i))
		w.awaitState(id, webhook.Disabled)
		want[id] = true
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	all := func(state webhook.State, each func()) (ids []string) {
		t.Helper()
		cursor := ""
		for pages := 0; pages < 20; pages++ {
			page, next, err := w.outbox.List(t.Context(), w.backend, state, cursor, 3)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range page {
				ids = append(ids, d.JobID)
			}
			if cursor = next; next == "" {
				return ids
			}
			each()
		}
		t.Fatal("no end of pages")
		return nil
	}
	seen := map[string]bool{}
	for _, id := range all(webhook.Failed, func() {}) {
		if seen[id] || !want[id] {
			t.Errorf("%s comes twice, or isn't one", id)
		}
		seen[id] = true
	}
	if len(seen) != n {
		t.Errorf("%d of %d listed", len(seen), n)
	}

	var due []string
	for range n {
		due = append(due, w.end(rc.URL))
	}
	// all at one moment
	if _, err := webhook.Claim(w.outbox, t.Context(), w.backend, time.Hour, 100); err != nil {
		t.Fatal(err)
	}
	if got := all(webhook.Pending, func() {}); len(got) != n {
		t.Errorf("%d of %d pending", len(got), n)
	}
	// The delivery in the cursor leaves the list.
	moved := false
	got := all(webhook.Pending, func() {
		if !moved {
			moved = true
			page, _, _ := w.outbox.List(t.Context(), w.backend, webhook.Pending, "", 3)
			w.rdb.ZRem(t.Context(), jobs.KeyPrefix(w.backend)+"callbacks", page[2].JobID)
		}
	})
	for _, id := range due {
		count := 0
		for _, one := range got {
			if one == id {
				count++
			}
		}
		if count == 0 {
			t.Errorf("%s isn't listed", id)
		}
	}
	// Cursors come from outside, so they may be anything.
	for _, cursor := range []string{"nonsense", "1", "1 ", " " + due[0], "nan " + due[0],
		"NaN " + due[0], "inf " + due[0], "-Infinity " + due[0], "1e999 " + due[0],
		"0x_1p4 " + due[0], "(1 " + due[0]} {
		if _, _, err := w.outbox.List(t.Context(), w.backend, webhook.Pending, cursor,
			3); err != webhook.ErrCursor {
			t.Errorf("%q isn't a cursor: %v", cursor, err)
		}
	}
}

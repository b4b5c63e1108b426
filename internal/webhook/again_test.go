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

// A redelivery that an operator asks for during an attempt is made.
func TestARedeliveryDuringAnAttemptIsMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proceed := make(chan struct{})
	rc := w.receive(func(n int, rw http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			<-proceed
			rw.WriteHeader(500)
		}
	})
	w.start(anywhere())
	id := w.end(rc.URL)
	w.until("the attempt is under way", func() bool { return len(rc.requests()) == 1 })
	if err := w.outbox.Redeliver(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	w.until("it is made again", func() bool { return len(rc.requests()) == 2 })
	close(proceed)
	d := w.await(id, "both are logged", func(d webhook.Delivery) bool {
		return d.Attempts == 2 && d.State == webhook.Delivered
	})
	if page, _, err := w.outbox.List(t.Context(), w.backend, webhook.Failed, "", 10); err != nil ||
		len(page) != 0 {
		t.Errorf("the attempt that was overtaken gave it up: %+v, %+v, %v", d, page, err)
	}
}

// A redriven job ends again, and that end is a message of its own.
func TestAJobThatEndsAgainIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rc := w.receive(nil)
	w.start(anywhere(time.Hour))
	id := jobs.NewID(w.backend)
	w.endAgain(id, rc.URL, "job.failed")
	first := w.awaitState(id, webhook.Delivered)
	w.endAgain(id, rc.URL, "job.succeeded")
	d := w.await(id, "its second end is delivered", func(d webhook.Delivery) bool {
		return d.State == webhook.Delivered && d.Type == "job.succeeded"
	})
	if d.MessageID == first.MessageID || len(rc.requests()) != 2 {
		t.Errorf("%d requests, %s after %s", len(rc.requests()), d.MessageID, first.MessageID)
	}
	// A job that runs again when its delivery is due is delivered once it has ended.
	again := w.end(rc.URL)
	w.awaitState(again, webhook.Delivered)
	w.say(again, webhook.ErrNotEnded)
	if err := w.outbox.Redeliver(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	w.until("it leaves the outbox", func() bool {
		return w.rdb.ZCard(t.Context(), jobs.KeyPrefix(w.backend)+"callbacks").Val() == 0
	})
	if n := len(rc.requests()); n != 3 {
		t.Errorf("%d requests", n)
	}
	// Nothing is pending until then.
	if d, err := w.outbox.Read(t.Context(), again); err != webhook.ErrNone {
		t.Errorf("on record of a job that runs again: %+v, %v", d, err)
	}
	w.say(again, nil)
	w.endAgain(again, rc.URL, "job.failed")
	w.await(again, "its next end is delivered", func(d webhook.Delivery) bool {
		return d.State == webhook.Delivered && d.Type == "job.failed" && d.Attempts == 1
	})
	// The record of an earlier end stays if the next one is taken back before its delivery.
	w.say(id, webhook.ErrNotEnded)
	w.endAgain(id, rc.URL, "job.failed")
	w.until("it leaves the outbox", func() bool {
		return w.rdb.ZCard(t.Context(), jobs.KeyPrefix(w.backend)+"callbacks").Val() == 0
	})
	if now, err := w.outbox.Read(t.Context(), id); err != nil || now.State != webhook.Delivered ||
		now.MessageID != d.MessageID {
		t.Errorf("on record of a delivered end: %+v, %v", now, err)
	}
}

func TestAPurgedJobIsDeliveredIfThatHadBegun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rc := w.receive(statuses(500, 200))
	begun, fresh := w.end(rc.URL), jobs.NewID(w.backend)
	s := w.start(anywhere(time.Hour))
	w.await(begun, "it has failed once", func(d webhook.Delivery) bool { return d.Attempts == 1 })
	w.say(begun, webhook.ErrGone)
	w.say(fresh, webhook.ErrGone)
	w.endAgain(fresh, rc.URL, "job.succeeded")
	if err := w.outbox.Redeliver(t.Context(), begun); err != nil {
		t.Fatal(err)
	}
	w.awaitState(begun, webhook.Delivered)
	w.until("the other leaves the outbox", func() bool {
		return w.rdb.ZCard(t.Context(), jobs.KeyPrefix(w.backend)+"callbacks").Val() == 0
	})
	if _, err := w.outbox.Read(t.Context(), fresh); err != webhook.ErrNone {
		t.Errorf("on record of a job that was purged before: %v", err)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// The call of each step may fail, before or after Redis did it: the end arrives all the same, and
// no attempt is counted twice.
func TestAFailedStepCostsNoWebhook(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"claim", "begin", "open", "settle"} {
		for _, applied := range []bool{false, true} {
			t.Run(step+" applied="+strconv.FormatBool(applied), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				rc := w.receive(nil)
				script := webhook.Script(step)
				if err := script.Load(t.Context(), w.rdb).Err(); err != nil {
					t.Fatal(err)
				}
				rdb := w.server.Client(t)
				faulty := redistest.NewFaulty(t, rdb)
				faulty.FailNext(func(cmd redis.Cmder) bool {
					return cmd.Name() == "evalsha" && cmd.Args()[1] == script.Hash()
				}, applied)
				id := w.end(rc.URL)
				w.start(anywhere(time.Hour), func(s *webhook.Sender) {
					s.HoldFor(3 * time.Second)
					s.Through(rdb)
				})
				d := w.awaitState(id, webhook.Delivered)
				if n := len(rc.requests()); n != 1 || d.Attempts != 1 || faulty.Armed() != 0 {
					t.Errorf("%d requests, %d attempts on record; %d faults left", n, d.Attempts,
						faulty.Armed())
				}
			})
		}
	}
}

// An attempt may be settled several times, as the reply may be lost each time. It still counts as
// one attempt.
func TestAnAttemptIsCountedOnceHoweverOftenItIsSettled(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]webhook.State{500: webhook.Pending, 200: webhook.Delivered,
		410: webhook.Disabled} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			rc := w.receive(statuses(status))
			script := webhook.Script("settle")
			if err := script.Load(t.Context(), w.rdb).Err(); err != nil {
				t.Fatal(err)
			}
			rdb := w.server.Client(t)
			faulty := redistest.NewFaulty(t, rdb)
			for range 3 { // the third begins when the second has ended
				faulty.FailNext(func(cmd redis.Cmder) bool {
					return cmd.Name() == "evalsha" && cmd.Args()[1] == script.Hash()
				}, true)
			}
			id := w.end(rc.URL)
			w.start(anywhere(time.Hour), func(s *webhook.Sender) { s.Through(rdb) })
			w.until("it was settled three times", func() bool { return faulty.Armed() == 0 })
			d := w.awaitState(id, want)
			if n := len(rc.requests()); n != 1 || d.Attempts != 1 || len(d.Log) != 1 ||
				d.Log[0].Status != status {
				t.Errorf("%d requests; on record: %+v", n, d)
			}
		})
	}
}

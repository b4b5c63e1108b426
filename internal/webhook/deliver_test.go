package webhook_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/webhook"
)

// verify checks a request with the specification's own library.
func verify(t *testing.T, text string, g got) error {
	t.Helper()
	official, err := standardwebhooks.NewWebhook(text)
	if err != nil {
		t.Fatal(err)
	}
	return official.Verify(g.body, g.header)
}

func TestAnEndIsDeliveredOnceAndVerifiedByTheOfficialLibrary(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rc := w.receive(nil)
	s := w.start(anywhere(time.Hour))
	id := w.end(rc.URL + "/hook?of=acme")
	d := w.awaitState(id, webhook.Delivered)

	all := rc.requests()
	if len(all) != 1 {
		t.Fatalf("%d requests", len(all))
	}
	if err := verify(t, keyText, all[0]); err != nil {
		t.Errorf("the official library: %v", err)
	}
	var event struct {
		Type string
		Data struct {
			ID string `json:"job_id"`
		}
	}
	if err := json.Unmarshal(all[0].body, &event); err != nil || event.Type != "job.succeeded" ||
		event.Data.ID != id {
		t.Errorf("body %s (%v)", all[0].body, err)
	}
	if h := all[0].header; h.Get("Content-Type") != "application/json" ||
		h.Get("webhook-id") != d.MessageID || !strings.HasPrefix(d.MessageID, "msg_") ||
		strings.Contains(d.MessageID, ".") {
		t.Errorf("fields %v, webhook-id on record %s", h, d.MessageID)
	}
	if d.Attempts != 1 || d.Type != "job.succeeded" || d.URL != rc.URL+"/hook?of=acme" ||
		d.Client != "acme" || len(d.Log) != 1 || d.Log[0].Status != 204 || d.Log[0].Word != "" ||
		!d.NextAt.IsZero() {
		t.Errorf("on record: %+v", d)
	}
	if left := time.Until(d.ExpiresAt); left < 23*time.Hour || left > 25*time.Hour {
		t.Errorf("it stays on record for %v", left)
	}
	if n := w.rdb.ZCard(t.Context(), jobs.KeyPrefix(w.backend)+"callbacks").Val(); n != 0 {
		t.Errorf("%d in the outbox", n)
	}
	if got := s.attempts(t, "delivered"); got != 1 {
		t.Errorf("metrics count %v", got)
	}
	if strings.Contains(w.log.String(), "of=acme") {
		t.Error("the log shows the URL, which may have a secret in it")
	}
}

func TestADeliveryIsRepeatedUntilItArrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rc := w.receive(statuses(500, 302, 404, 200))
	w.start(anywhere(time.Millisecond, 1200*time.Millisecond, time.Millisecond))
	d := w.awaitState(w.end(rc.URL), webhook.Delivered)
	all := rc.requests()
	if len(all) != 4 || d.Attempts != 4 || len(d.Log) != 4 {
		t.Fatalf("%d requests; on record: %+v", len(all), d)
	}
	for i, g := range all {
		if err := verify(t, keyText, g); err != nil {
			t.Errorf("request %d: %v", i+1, err)
		}
		if g.header.Get("webhook-id") != d.MessageID || string(g.body) != string(all[0].body) {
			t.Errorf("request %d is another message", i+1)
		}
	}
	if all[2].header.Get("webhook-timestamp") == all[1].header.Get("webhook-timestamp") {
		t.Error("an attempt 1.2 s later has the same timestamp")
	}
	if gap := all[2].at.Sub(all[1].at); gap < 1200*time.Millisecond {
		t.Errorf("the third attempt came after %v", gap)
	}
	var seen []int
	for _, a := range d.Log {
		seen = append(seen, a.Status)
	}
	if !slices.Equal(seen, []int{500, 302, 404, 200}) {
		t.Errorf("log %v", seen)
	}
}

func TestADeliveryIsGivenUpAfterTheScheduleAndCanBeMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rc := w.receive(statuses(500, 500, 500, 500, 500, 200))
	s := w.start(anywhere(time.Millisecond, time.Millisecond))
	id := w.end(rc.URL)
	if d := w.awaitState(id, webhook.Failed); d.Attempts != 3 || len(d.Log) != 3 {
		t.Errorf("given up: %+v", d)
	}
	page, next, err := w.outbox.List(t.Context(), w.backend, webhook.Failed, "", 10)
	if err != nil || next != "" || len(page) != 1 || page[0].JobID != id ||
		page[0].GivenUpAt.IsZero() {
		t.Errorf("listed: %+v, %q, %v", page, next, err)
	}
	if err := w.outbox.Redeliver(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	d := w.awaitState(id, webhook.Delivered)
	if d.Attempts != 6 || len(rc.requests()) != 6 ||
		rc.requests()[5].header.Get("webhook-id") != rc.requests()[0].header.Get("webhook-id") {
		t.Errorf("redelivered, with the whole schedule: %+v", d)
	}
	if page, _, err := w.outbox.List(t.Context(), w.backend, webhook.Failed, "", 10); err != nil ||
		len(page) != 0 {
		t.Errorf("still listed: %+v, %v", page, err)
	}
	// A delivery that has arrived can be made again, too.
	if err := w.outbox.Redeliver(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	w.await(id, "it is delivered again", func(d webhook.Delivery) bool {
		return d.State == webhook.Delivered && d.Attempts == 7
	})
	if got := s.attempts(t, "failed"); got != 5 {
		t.Errorf("metrics count %v failed attempts", got)
	}
}

func TestTheLogHasTheLast20Attempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var schedule []time.Duration
	for range webhook.MaxLog + 4 {
		schedule = append(schedule, time.Microsecond)
	}
	rc := w.receive(func(n int, rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(500 + n)
	})
	w.start(anywhere(schedule...))
	d := w.awaitState(w.end(rc.URL), webhook.Failed)
	if d.Attempts != 25 || len(d.Log) != webhook.MaxLog || d.Log[0].Status != 506 ||
		d.Log[19].Status != 525 {
		t.Errorf("%d attempts, %d logged: %+v", d.Attempts, len(d.Log), d.Log)
	}
}

func TestARetryAfterPutsTheNextAttemptOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rc := w.receive(func(n int, rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Retry-After", []string{"2", "9999999"}[min(n, 2)-1])
		rw.WriteHeader(http.StatusTooManyRequests)
	})
	w.start(anywhere(time.Millisecond, time.Millisecond))
	id := w.end(rc.URL)
	d := w.await(id, "it has failed twice", func(d webhook.Delivery) bool {
		return d.Attempts == 2 && time.Until(d.NextAt) > time.Hour
	})
	all := rc.requests()
	if gap := all[1].at.Sub(all[0].at); gap < 2*time.Second {
		t.Errorf("asked to wait 2 s, it came after %v", gap)
	}
	if wait := time.Until(d.NextAt); wait < 23*time.Hour || wait > 27*time.Hour {
		t.Errorf("asked to wait for months, it comes in %v", wait)
	}
	if d.ExpiresAt.Before(d.NextAt.Add(23 * time.Hour)) {
		t.Errorf("the record goes at %v, the attempt comes at %v", d.ExpiresAt, d.NextAt)
	}
}

// A receiver that answers 410 gets no further webhooks of the client to that URL, until an operator
// redelivers one.
func Test410DisablesAReceiver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rc := w.receive(statuses(410, 200))
	other := w.receive(nil)
	s := w.start(anywhere(time.Millisecond))
	first := w.end(rc.URL + "/a")
	if d := w.awaitState(first, webhook.Disabled); d.Attempts != 1 || d.Log[0].Status != 410 {
		t.Errorf("after a 410: %+v", d)
	}
	second := w.end(rc.URL + "/a")
	if d := w.awaitState(second, webhook.Disabled); d.Attempts != 0 {
		t.Errorf("attempted although disabled: %+v", d)
	}
	w.awaitState(w.end(other.URL), webhook.Delivered)
	if n := len(rc.requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
	page, _, err := w.outbox.List(t.Context(), w.backend, webhook.Failed, "", 10)
	if err != nil || len(page) != 2 || page[0].JobID != second || page[1].JobID != first {
		t.Errorf("listed: %+v, %v", page, err)
	}
	if err := w.outbox.Redeliver(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	w.awaitState(second, webhook.Delivered)
	w.awaitState(w.end(rc.URL+"/a"), webhook.Delivered)
	if got := s.attempts(t, "disabled"); got != 1 {
		t.Errorf("metrics count %v", got)
	}
}

// While secrets are rotated receivers may have the old one, the new one or both.
func TestSecretsAreRotatedWhileWebhooksGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	newText := ofBytes(32, 'n')
	rc := w.receive(nil)
	w.start(anywhere(time.Millisecond))
	deliver := func() got {
		t.Helper()
		w.awaitState(w.end(rc.URL), webhook.Delivered)
		all := rc.requests()
		return all[len(all)-1]
	}
	for _, step := range []struct {
		texts   []string
		known   []string
		unknown []string
	}{
		{[]string{keyText}, []string{keyText}, []string{newText}},
		{[]string{newText, keyText}, []string{keyText, newText}, nil},
		{[]string{newText}, []string{newText}, []string{keyText}},
	} {
		var secrets []webhook.Secret
		for _, text := range step.texts {
			secrets = append(secrets, secret(t, text))
		}
		w.clients.set("acme", secrets...)
		g := deliver()
		for _, text := range step.known {
			if err := verify(t, text, g); err != nil {
				t.Errorf("with %d secrets: %v", len(secrets), err)
			}
		}
		for _, text := range step.unknown {
			if verify(t, text, g) == nil {
				t.Error("a secret that isn't in force verifies")
			}
		}
	}
	w.clients.set("acme")
	id := w.end(rc.URL)
	if d := w.awaitState(w.end(rc.URL), webhook.Failed); d.Attempts != 2 ||
		d.Log[0].Word != "no_secret" {
		t.Errorf("without a secret: %+v", d)
	}
	w.awaitState(id, webhook.Failed)
	if n := len(rc.requests()); n != 3 {
		t.Errorf("%d requests: something went unsigned", n)
	}
}

// A process that dies between a job's end and its delivery, or during an attempt, costs time but no
// webhook.
func TestDeliveriesOfAKilledProcessAreMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rc := w.receive(nil)
	early := w.end(rc.URL) // no process delivers yet
	d, err := w.outbox.Read(t.Context(), early)
	if err != nil || d.State != webhook.Pending || d.URL != "" || d.NextAt.IsZero() {
		t.Errorf("before any process delivers: %+v, %v", d, err)
	}
	taken := w.end(rc.URL)
	// A process claims it and dies.
	_, err = webhook.Claim(w.outbox, t.Context(), w.backend, 300*time.Millisecond, 100)
	if err != nil {
		t.Fatal(err)
	}
	w.start(anywhere(time.Hour))
	w.awaitState(early, webhook.Delivered)
	w.awaitState(taken, webhook.Delivered)
	if n := len(rc.requests()); n != 2 {
		t.Errorf("%d requests", n)
	}
}

func TestAMessageThatComesTwiceIsOneAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proceed := make(chan struct{})
	rc := w.receive(func(_ int, rw http.ResponseWriter, _ *http.Request) { <-proceed })
	s := w.start(anywhere(time.Hour))
	id := w.end(rc.URL)
	w.until("the attempt is under way", func() bool { return len(rc.requests()) == 1 })
	score := w.rdb.ZScore(t.Context(), jobs.KeyPrefix(w.backend)+"callbacks", id).Val()
	transport := jobs.NewDeliveries(w.rdb, s.Log)
	for _, claim := range []int64{int64(score) - 1, 1, 0} { // claims that don't hold any more
		if err := transport.Send(t.Context(), []jobs.Delivery{{ID: id, Claim: claim}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := transport.Send(t.Context(),
		[]jobs.Delivery{{ID: "nonsense"}, {ID: jobs.NewID("elsewhere"), Claim: 1}}); err != nil {
		t.Fatal(err)
	}
	w.until("the messages are taken", func() bool {
		return w.rdb.LLen(t.Context(), "asynq:{fb_deliveries}:pending").Val() == 0 &&
			w.rdb.LLen(t.Context(), "asynq:{fb_deliveries}:active").Val() == 1
	})
	close(proceed)
	if d := w.awaitState(id, webhook.Delivered); d.Attempts != 1 || len(rc.requests()) != 1 {
		t.Errorf("%d requests; %+v", len(rc.requests()), d)
	}
}

package adminapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/testforebay"
	"github.com/forebay/forebay/internal/web"
	"github.com/forebay/forebay/internal/webhook"
)

// told are clients that all want to be told at one URL, and their jobs.
type told struct {
	line *leaky.Line
	url  string
}

// End is webhook.Jobs.
func (c told) End(ctx context.Context, id string) (webhook.End, error) {
	look, err := c.line.Look(ctx, id)
	if errors.Is(err, leaky.ErrUnknownJob) {
		return webhook.End{}, webhook.ErrGone
	}
	if err != nil {
		return webhook.End{}, err
	}
	body, err := json.Marshal(jobview.ForClient(look, look.Now))
	return webhook.End{Client: look.Job.Client, URL: look.Job.Callback,
		FinishedAt: look.Standing.FinishedAt, ExpiresAt: look.Standing.ExpiresAt,
		Type: api.EventType(look.Standing.State.Public()), Event: body}, err
}

// Callback is webhook.Clients.
func (c told) Callback(string) (string, []webhook.Secret) {
	s, err := webhook.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		panic(err)
	}
	return c.url, []webhook.Secret{s}
}

// toldWorld is a world whose jobs' ends are told to a receiver that gives these answers in turn,
// and 200 from then on.
func toldWorld(t *testing.T, statuses ...int) *world {
	t.Helper()
	var mu sync.Mutex
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		if len(statuses) > 0 {
			rw.WriteHeader(statuses[0])
			statuses = statuses[1:]
		}
		_, _ = io.WriteString(rw, "what nobody may see")
	}))
	t.Cleanup(receiver.Close)
	clients := told{url: receiver.URL + "/hook"}
	policy := webhook.Policy{HTTP: true,
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Ports: []int{receiver.Listener.Addr().(*net.TCPAddr).Port}, Timeout: 20 * time.Second,
		Schedule: []time.Duration{time.Hour}}
	w := newWorld(t, func(s *setup) {
		fast(s)
		// All backends share the queue of deliveries, so another test's sender could take one with
		// it when it ends.
		s.Redis = redistest.Start(t).Client(t)
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Callbacks, c.Operators.Deliveries = webhook.Rules{Policy: policy, Clients: clients},
				webhook.NewOutbox(w.Redis)
		}
	})
	clients.line = w.Line
	log := slog.New(slog.DiscardHandler)
	sender := webhook.New(webhook.Config{Redis: w.Redis,
		Transport: jobs.NewDeliveries(w.Redis, log), Backends: []string{w.Backend}, Jobs: clients,
		Clients: clients,
		Policy:  policy, Grace: time.Second, Metrics: prometheus.NewRegistry(), Log: log})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sender.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) deliveries(query string) (page api.Deliveries) {
	w.Helper()
	strictly(w, query, w.Want(w.AdminCall("GET", query), 200).Text, &page)
	return page
}

// awaitDelivery waits until the telling of a job's end is in a state after so many attempts.
func (w *world) awaitDelivery(id, state string, attempts int) api.Delivery {
	w.Helper()
	var page api.Deliveries
	w.Eventually(fmt.Sprintf("%s after %d attempts", state, attempts), func() bool {
		page = w.deliveries("jobs/" + id + "/deliveries")
		return len(page.Deliveries) == 1 && page.Deliveries[0].State == state &&
			page.Deliveries[0].Attempts == attempts
	})
	return page.Deliveries[0]
}

func TestAnOperatorSeesWhatBecameOfAWebhookAndSendsItAgain(t *testing.T) {
	t.Parallel()
	w := toldWorld(t, 500, 410)
	id := w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA)), 202)).ID
	if page := w.deliveries("jobs/" + id + "/deliveries"); len(page.Deliveries) != 0 ||
		page.NextCursor != nil {
		t.Errorf("of a job that waits: %+v", page)
	}
	w.Problem(w.AdminCall("POST", "jobs/"+id+"/redeliver"), http.StatusConflict,
		api.CodeNotFinished)
	w.Succeed(id, 200, "text/plain", []byte("done"))
	d := w.awaitDelivery(id, api.DeliveryPending, 1)
	if d.Backend != w.Backend || d.Client != w.ClientA() || !strings.HasSuffix(d.URL, "/hook") ||
		!strings.HasPrefix(d.WebhookID, "msg_") || d.Type != "job.succeeded" ||
		d.NextAttemptAt == nil || time.Until(d.NextAttemptAt.Time) < 50*time.Minute ||
		len(d.Log) != 1 || d.Log[0].Status != 500 || d.Log[0].Error != "" {
		t.Errorf("after a 500: %+v", d)
	}
	if page := w.deliveries("deliveries?state=pending&backend=" +
		w.Backend); len(page.Deliveries) != 1 || page.Deliveries[0].JobID != id {
		t.Errorf("pending: %+v", page)
	}

	var due api.Delivery
	strictly(t, "redeliver",
		w.Want(w.AdminCall("POST", "jobs/"+id+"/redeliver", field("Forebay-Operator", "maria")),
			202).Text, &due)
	if due.JobID != id || due.WebhookID != d.WebhookID {
		t.Errorf("redeliver answers %+v", due)
	}
	w.audited(`msg="webhook redelivered"`, "by=maria", "job_id="+id, "was=pending", "attempts=1")
	w.awaitDelivery(id, api.DeliveryDisabled, 2)
	page := w.deliveries("deliveries")
	if len(page.Deliveries) != 1 || page.Deliveries[0].JobID != id ||
		page.Deliveries[0].GivenUpAt == nil {
		t.Errorf("given up: %+v", page)
	}
	w.Want(w.AdminCall("POST", "jobs/"+id+"/redeliver"), 202)
	if d := w.awaitDelivery(id, api.DeliveryDone, 3); d.NextAttemptAt != nil ||
		d.Log[2].Status != 200 {
		t.Errorf("at last: %+v", d)
	}
	if page := w.deliveries("deliveries?state=failed"); len(page.Deliveries) != 0 {
		t.Errorf("still given up: %+v", page)
	}
	if a := w.AdminCall("GET", "jobs/"+id+"/deliveries"); strings.Contains(string(a.Text),
		"nobody may see") {
		t.Error("what the receiver said is shown")
	}
}

// A job that was redriven has no end to tell before it ends again, whatever was told of the one
// before.
func TestARedrivenJobIsNotToldAgainBeforeItEnds(t *testing.T) {
	t.Parallel()
	w := toldWorld(t)
	id := w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA)), 202)).ID
	w.FailJob(id, jobs.CodeBackendStatus, 500, "text/plain", []byte("no"))
	first := w.awaitDelivery(id, api.DeliveryDone, 1)
	w.Pause()
	w.AdminJob(w.AdminCall("POST", "jobs/"+id+"/redrive"))
	w.Problem(w.AdminCall("POST", "jobs/"+id+"/redeliver"), http.StatusConflict,
		api.CodeNotFinished)
	if page := w.deliveries("jobs/" + id + "/deliveries"); len(page.Deliveries) != 1 ||
		page.Deliveries[0].State != api.DeliveryDone ||
		page.Deliveries[0].WebhookID != first.WebhookID {
		t.Errorf("what was told of its first end: %+v", page)
	}
	if page := w.deliveries("deliveries?state=pending"); len(page.Deliveries) != 0 {
		t.Errorf("pending: %+v", page)
	}
	if strings.Contains(w.Logs.String(), `msg="webhook redelivered"`) {
		t.Error("a change that wasn't made is in the audit")
	}
	w.Want(w.tune(`{"paused":false}`), 200)
	w.Succeed(id, 200, "text/plain", []byte("at last"))
	var d api.Delivery
	w.Eventually("the webhook of its second end is sent", func() bool {
		d = w.awaitDelivery(id, api.DeliveryDone, 1)
		return d.WebhookID != first.WebhookID
	})
	if d.Type != "job.succeeded" {
		t.Errorf("its second end: %+v", d)
	}
	w.Want(w.AdminCall("POST", "jobs/"+id+"/redeliver"), 202)
	w.awaitDelivery(id, api.DeliveryDone, 2)
}

// A delivery that has outlived its job can still be made again.
func TestAPurgedJobsEndCanBeToldAgain(t *testing.T) {
	t.Parallel()
	w := toldWorld(t)
	id := w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA)), 202)).ID
	w.Succeed(id, 200, "text/plain", []byte("done"))
	w.awaitDelivery(id, api.DeliveryDone, 1)
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+id+"?purge=1", "", key(keyA)), 204)
	w.Want(w.AdminCall("POST", "jobs/"+id+"/redeliver"), 202)
	w.awaitDelivery(id, api.DeliveryDone, 2)
}

func TestDeliveriesHaveAnswersForWhatIsAmiss(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operators.Deliveries = webhook.NewOutbox(w.Redis)
		}
	})
	id := w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA)), 202)).ID
	w.Problem(w.AdminCall("POST", "jobs/"+id+"/redeliver"), http.StatusConflict, api.CodeNoCallback)
	for _, unknown := range []string{jobs.NewID(w.Backend), jobs.NewID("elsewhere"), "nonsense"} {
		w.Problem(w.AdminCall("GET", "jobs/"+unknown+"/deliveries"), http.StatusNotFound,
			api.CodeUnknownJob)
		w.Problem(w.AdminCall("POST", "jobs/"+unknown+"/redeliver"), http.StatusNotFound,
			api.CodeUnknownJob)
	}
	w.Problem(w.AdminCall("GET", "deliveries?backend=nope"), http.StatusNotFound,
		api.CodeUnknownBackend)
	for _, query := range []string{"state=delivered", "limit=0", "limit=201", "limit=x", "cursor=!",
		"cursor=ZmFpbGVk", "colour=red"} {
		w.Problem(w.AdminCall("GET", "deliveries?"+query), http.StatusBadRequest,
			api.CodeInvalidRequest)
	}
	for _, score := range []string{"nan", "inf", "-inf", "0x_1p4", "1e999", "x"} {
		for _, state := range []string{"failed", "pending"} {
			cursor := web.Cursor(w.Backend, state, score+" "+id)
			w.Problem(w.AdminCall("GET", "deliveries?state="+state+"&cursor="+cursor),
				http.StatusBadRequest, api.CodeInvalidRequest)
		}
	}
	w.Problem(w.AdminCall("GET", "jobs/"+id+"/deliveries?all=1"), http.StatusBadRequest,
		api.CodeInvalidRequest)

	plain := newWorld(t, nil) // that tells nobody
	job := plain.Job(plain.Want(plain.Submit(plain.Plain, `1`, key(keyA)), 202)).ID
	plain.Problem(plain.AdminCall("GET", "jobs/"+job+"/deliveries"), http.StatusNotFound,
		api.CodeUnknownJob)
	if page := plain.deliveries("deliveries"); len(page.Deliveries) != 0 || page.NextCursor != nil {
		t.Errorf("of nobody: %+v", page)
	}
}

func TestDeliveriesAreListedInPagesOverBackends(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operators.Deliveries = webhook.NewOutbox(w.Redis)
			c.Lines[w.Backend+"-z"] = w.Line // whose jobs have a prefix of their own
		}
	})
	want := map[string]bool{}
	for i, backend := range []string{w.Backend, w.Backend, w.Backend, w.Backend + "-z",
		w.Backend + "-z"} {
		id := jobs.NewID(backend)
		want[id] = true
		if err := w.Redis.ZAdd(t.Context(), jobs.KeyPrefix(backend)+"callbacks",
			redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMicro() + int64(i/2)),
				Member: id}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		w.Redis.Del(context.WithoutCancel(t.Context()), jobs.KeyPrefix(w.Backend)+"callbacks",
			jobs.KeyPrefix(w.Backend+"-z")+"callbacks")
	})
	seen := map[string]bool{}
	cursor := ""
	for pages := 0; pages < 10; pages++ {
		page := w.deliveries("deliveries?state=pending&limit=2" + cursor)
		if len(page.Deliveries) > 2 {
			t.Errorf("a page of %d", len(page.Deliveries))
		}
		for _, d := range page.Deliveries {
			if seen[d.JobID] || !want[d.JobID] || d.URL != "" || d.State != api.DeliveryPending ||
				d.NextAttemptAt == nil {
				t.Errorf("%+v comes twice, or is wrong", d)
			}
			seen[d.JobID] = true
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	if len(seen) != len(want) {
		t.Errorf("%d of %d listed", len(seen), len(want))
	}
}

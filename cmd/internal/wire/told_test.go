package wire_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/store"
)

// What a webhook tells is the job as its client would see it, without its result.
func TestTheEndOfAJobIsToldAsItsClientSeesIt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	type told struct {
		header http.Header
		body   []byte
	}
	heard := make(chan told, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		heard <- told{r.Header, body}
	}))
	t.Cleanup(receiver.Close)

	c, _ := loadRoster(t, "clients:\n"+client("acme",
		"tier: pro, callback: {secrets: ["+firstSecret+"]}"))
	c.Callbacks.HTTP, c.Callbacks.Allow = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	c.Callbacks.Ports = []int{receiver.Listener.Addr().(*net.TCPAddr).Port}
	log := slog.New(slog.DiscardHandler)
	clients, err := wire.NewClients(c, noEnv, prometheus.NewRegistry(), log)
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)
	s, err := store.Open(ctx, store.Config{URL: server.URL()}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lines := wire.Lines(c, s.Client())
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- wire.Webhooks(c, clients, s, lines, prometheus.NewRegistry(),
			log).Run(running)
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	line := lines["b"]
	job := jobs.Job{ID: jobs.NewID("b"), Operation: "o", Client: "acme", Tier: "pro",
		Priority: jobs.Normal, Payload: []byte(`"payload"`), Callback: receiver.URL}
	if place, err := line.Offer(ctx,
		leaky.Offer{Job: job, Weight: 1, MaxAge: time.Hour, Keep: time.Hour}); err != nil ||
		place.Outcome != leaky.Accepted {
		t.Fatal(place, err)
	}
	if outcome, err := line.Cancel(ctx, job.ID); err != nil || outcome != leaky.Canceled {
		t.Fatal(outcome, err)
	}
	var got told
	select {
	case got = <-heard:
	case <-ctx.Done():
		t.Fatal("nothing was told")
	}
	official, err := standardwebhooks.NewWebhook(firstSecret)
	if err != nil {
		t.Fatal(err)
	}
	if err := official.Verify(got.body, got.header); err != nil {
		t.Errorf("the official library says: %v", err)
	}
	var event api.Event
	if err := json.Unmarshal(got.body, &event); err != nil {
		t.Fatal(err)
	}
	j := event.Data
	if event.Type != "job.canceled" || event.Timestamp.IsZero() || j.ID != job.ID ||
		j.Status != api.Canceled || !j.Done || j.Operation != "o" ||
		j.FinishedAt == nil || !j.FinishedAt.Equal(event.Timestamp.Time) ||
		j.Links.Self != "/v1/jobs/"+job.ID {
		t.Errorf("told %s", got.body)
	}
	if len(got.body) > 20_000 {
		t.Errorf("%d bytes", len(got.body))
	}
	redistest.CheckBooks(t, s.Client(), "b")
}

package wire_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/clients"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/store"
)

// A process tells what it decided and what happened to it, and any process of the api shows it.
func TestAProcessTellsWhatHappened(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forebay.yaml")
	write(t, path, fmt.Sprintf(minimal,
		"{name: per-minute, algorithm: sliding-window-counter, limit: 2, window: 1m}", "5/s"))
	c, _, err := wire.Load(path, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	log, metrics := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	callers, err := wire.NewClients(c, noEnv, metrics, log)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Config{URL: redistest.Start(t).URL()}, log)
	if err != nil {
		t.Fatal(err)
	}
	lines, listener := wire.Lines(c, s.Client()), wire.Listen(c, s.Client())
	past := wire.NewHistory("api", c, s, lines, log)
	f, err := wire.NewFront(c, callers, s, lines, listener, past, metrics, log, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		past.Run(ctx, s)
	}()
	t.Cleanup(func() {
		stop()
		<-done
		listener.Close()
		s.Close()
	})
	past.Follow(callers)
	for range 3 { // all processes read the file, and it is one event
		callers.Reloaded(clients.Changes{Clients: 3, Added: 1}, nil)
	}
	callers.Reloaded(clients.Changes{}, errors.New("clients.yaml:3: no"))
	for _, want := range []int{202, 202, 429} {
		w := ask(t, f.Public(), http.MethodPost, "/v1/jobs", `{"operation":"o","payload":1}`)
		if w.Code != want {
			t.Fatalf("%d %s, want %d", w.Code, w.Body, want)
		}
	}
	past.Tallies.Flush(t.Context())
	show := func(path string, into any) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		f.Admin().ServeHTTP(w, r)
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
	}
	var sum api.HistoryPoint
	refused := int64(0)
	for end := time.Now().Add(30 * time.Second); sum.Offered < 3 && time.Now().Before(end); {
		var h api.History
		show("/admin/v1/history?from=-2m&step=1m", &h)
		sum, refused = api.HistoryPoint{}, 0
		for _, p := range h.Backends[0].Points {
			sum.Offered, sum.Accepted = sum.Offered+p.Offered, sum.Accepted+p.Accepted
			refused += p.RejectedBy["per-minute"]
			if p.Line != nil && (p.Line.Rate.Configured != "5/s" || p.Line.Capacity == 0) {
				t.Errorf("the line: %+v", p.Line)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	if sum.Offered != 3 || sum.Accepted != 2 || refused != 1 {
		t.Errorf("offered %d, accepted %d, refused %d", sum.Offered, sum.Accepted, refused)
	}
	var events api.OperationEvents
	for end := time.Now().Add(30 * time.Second); len(events.Events) < 3 && time.Now().Before(end); {
		show("/admin/v1/events", &events)
		time.Sleep(20 * time.Millisecond)
	}
	var types []string
	for _, e := range events.Events {
		types = append(types, e.Type)
	}
	slices.Sort(types)
	if got := fmt.Sprint(types); got != "[clients_refused clients_reloaded process_started]" {
		t.Errorf("events: %s", got)
	}
}

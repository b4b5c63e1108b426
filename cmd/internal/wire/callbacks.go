package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/store"
	"github.com/forebay/forebay/internal/webhook"
	"github.com/forebay/forebay/internal/worker"
)

// Webhooks puts together what tells the ends of jobs. It belongs to where jobs are run: see
// RunBack.
func Webhooks(c *config.Config, clients *Clients, s *store.Store, lines map[string]*leaky.Line,
	metrics prometheus.Registerer, log *slog.Logger) *webhook.Sender {
	return webhook.New(webhook.Config{
		Redis:     s.Client(),
		Transport: jobs.NewDeliveries(s.Executor(), log),
		Backends:  slices.Sorted(maps.Keys(lines)),
		Jobs:      ends(lines),
		Clients:   clients,
		Policy:    c.Callbacks,
		Grace:     c.Shutdown,
		Metrics:   metrics,
		Log:       log,
	})
}

// RunBack drains the lines and tells the ends of jobs until ctx ends, or one of the two can't
// begin. After an error something may be left running.
func RunBack(ctx context.Context, w *worker.Worker, hooks *webhook.Sender) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sender := make(chan error, 1)
	go func() {
		defer cancel()
		sender <- hooks.Run(ctx)
	}()
	err := w.Run(ctx)
	cancel()
	return errors.Join(err, <-sender)
}

// ends finds the ends of jobs in the lines, by their backends' names.
type ends map[string]*leaky.Line

// End implements webhook.Jobs. The event has the job as its client sees it.
func (e ends) End(ctx context.Context, id string) (webhook.End, error) {
	backend, _ := jobs.ParseID(id)
	line := e[backend]
	if line == nil {
		return webhook.End{}, webhook.ErrGone
	}
	look, err := line.Look(ctx, id)
	switch {
	case errors.Is(err, leaky.ErrUnknownJob):
		return webhook.End{}, webhook.ErrGone
	case err != nil:
		return webhook.End{}, err
	case !look.Standing.State.Final():
		return webhook.End{}, webhook.ErrNotEnded
	}
	view := jobview.ForClient(look, look.Now)
	finished := look.Standing.FinishedAt
	body, err := json.Marshal(api.Event{Type: api.EventType(view.Status),
		Timestamp: api.Time{Time: finished}, Data: *view})
	if err != nil {
		return webhook.End{}, fmt.Errorf("webhook of job %s: %w", id, err)
	}
	return webhook.End{Client: look.Job.Client, URL: look.Job.Callback,
		FinishedAt: finished, ExpiresAt: look.Standing.ExpiresAt,
		Type: api.EventType(view.Status), Event: body}, nil
}

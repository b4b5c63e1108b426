package wire

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/clients"
	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/history"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/store"
)

// History is what this process tells of what happens. Safe for concurrent use.
type History struct {
	Process string // this process's name in events
	Tallies *history.Tallies
	Events  *history.Events
}

// NewHistory returns the History of a process of a kind: "api" or "worker". It gets to Redis while
// Run runs.
func NewHistory(kind string, c *config.Config, s *store.Store, lines map[string]*leaky.Line,
	log *slog.Logger) *History {
	process := history.ProcessName(kind, Version())
	tallies := history.New(history.Config{
		Redis:    s.Client(),
		Process:  process,
		Backends: slices.Sorted(maps.Keys(c.Backends)),
		Sample: func(ctx context.Context, backend string) (history.Sample, error) {
			st, err := lines[backend].Status(ctx)
			return sampleOf(st), err
		},
		Log: log,
	})
	return &History{process, tallies, history.NewEvents(s.Client(), tallies.Now, log)}
}

// Run tells what happens until ctx ends, and what is left then.
func (h *History) Run(ctx context.Context, s *store.Store) {
	var all sync.WaitGroup
	all.Go(func() { h.Tallies.Run(ctx) })
	all.Go(func() { h.Events.Run(ctx) })
	all.Go(func() { h.Events.WatchStore(ctx, s) })
	all.Wait()
}

// reloadsApart is the time in which all processes notice a change of the clients file.
const reloadsApart = 10 * time.Second

// Follow has reloads of the clients file recorded. It must be called before the file is followed.
func (h *History) Follow(cs *Clients) {
	cs.Reloaded = func(changes clients.Changes, err error) {
		e := api.OperationEvent{Type: api.EventClientsReloaded, Text: fmt.Sprintf(
			"%d clients: %d added, %d removed, %d changed", changes.Clients, changes.Added,
			changes.Removed, changes.Changed)}
		if err != nil {
			e.Type, e.Text = api.EventClientsRefused, err.Error()
		}
		h.Events.RecordOnce(e, e.Text, reloadsApart)
	}
}

// tally returns what counts the decisions on an operation of the config, for its backend.
func (h *History) tally(c *config.Config) func(operation, decision, reason string) *atomic.Int64 {
	return func(operation, decision, reason string) *atomic.Int64 {
		o, known := c.Operations[operation]
		if !known {
			return nil
		}
		count := history.Rejected(reason)
		switch {
		case decision == api.Accepted && reason == admission.ReasonFresh:
			count = history.Fresh
		case decision == api.Accepted:
			count = history.Accepted
		case decision == api.Degraded:
			count = history.Degraded
		}
		return h.Tallies.Counter(o.Backend, count)
	}
}

// changeTypes are the events' types for changes of how a backend is treated.
var changeTypes = map[leaky.Change]string{leaky.GateClosed: api.EventGateClosed,
	leaky.ProbePassed: api.EventProbePassed, leaky.Lowered: api.EventRateLowered,
	leaky.RaisedToFull: api.EventRateRecovered}

// changed records a change of how a backend is treated.
func (h *History) changed(backend string, change leaky.Change, cause leaky.Sign,
	f leaky.Feedback) {
	e := api.OperationEvent{Type: changeTypes[change], Backend: backend}
	if cause != leaky.Answered {
		e.Reason = string(cause)
	}
	switch change {
	case leaky.GateClosed:
		e.Text = "for " + f.Gate.Round(100*time.Millisecond).String()
	case leaky.Lowered:
		e.Text = fmt.Sprintf("to %.3g of the rate", f.Factor)
	}
	h.Events.Record(e)
}

// lapsed records an override that has ended by itself.
func (h *History) lapsed(backend, setting, was, config string) {
	h.Events.Record(api.OperationEvent{Type: api.EventOverrideEnded, Backend: backend,
		Before: map[string]string{setting: was}, After: map[string]string{setting: config}})
}

// sampleOf is a backend's state as the tallies keep it.
func sampleOf(st leaky.Status) history.Sample {
	s := history.Sample{
		Waiting: st.Waiting, Capacity: int64(st.Capacity), OldestWait: st.OldestWait,
		Configured: st.Configured.Rate.PerSecond(), Effective: st.EffectiveRate,
		Paused: st.Paused, Probing: st.Probing, Cause: string(st.Cause),
		Totals: history.Totals{
			Started: st.Books.Started, Throttled: st.Books.Throttled,
			Succeeded: st.Books.Succeeded,
			// A total never goes down, and a redrive takes one from the books' failed.
			Failed:   st.Books.Failed + st.Books.Redriven,
			Canceled: st.Books.Canceled, Expired: st.Books.Expired,
		},
	}
	if st.Override.Rate != nil {
		s.Override = st.Override.Rate.PerSecond()
	}
	return s
}

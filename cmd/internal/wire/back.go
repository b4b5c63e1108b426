package wire

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/store"
	"github.com/forebay/forebay/internal/worker"
)

// Back puts a worker together. answers takes the good answers that may be served stale later, and
// past the changes of how backends are treated.
func Back(c *config.Config, s *store.Store, answers degrade.Store, lines map[string]*leaky.Line,
	listener worker.Listener, past *History, metrics prometheus.Registerer, log *slog.Logger) (
	*worker.Worker, error) {
	policies := map[string]degrade.Policy{}
	for name, o := range c.Operations {
		policies[name] = o.Policy()
	}
	back := worker.Config{
		Listener: listener,
		Stale:    degrade.NewKeeper(answers, policies),
		Changed:  past.changed,
		Lapsed:   past.lapsed,
		Grace:    c.Shutdown,
		Log:      log,
		Metrics:  metrics,
	}
	for _, name := range slices.Sorted(maps.Keys(c.Backends)) {
		b := c.Backends[name]
		headers := http.Header{}
		for field, value := range b.Headers {
			headers.Set(field, string(value))
		}
		operations := map[string]worker.Operation{}
		for operation, o := range c.Operations {
			if o.Backend == name {
				operations[operation] = worker.Operation{Method: o.Method, Path: o.Path,
					MaxResult: int64(o.MaxResult)}
			}
		}
		back.Backends = append(back.Backends, worker.Backend{
			URL:        b.URL,
			Headers:    headers,
			Timeout:    b.Timeout,
			Retry:      b.Retry.Retry,
			Operations: operations,
			Line:       lines[name],
			Queue:      jobs.NewQueue(s.Executor(), name, log),
		})
	}
	return worker.New(back)
}

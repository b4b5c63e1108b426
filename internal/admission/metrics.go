package admission

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/internal/limits"
)

type metrics struct {
	checks      *prometheus.CounterVec // limit, outcome
	lostRefunds prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_limit_checks_total",
			Help: "What each limit said: spent, though it may have been given back; refused; " +
				"would_refuse, of limits that aren't enforced."}, []string{"limit", "outcome"}),
		lostRefunds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "forebay_refunds_lost_total",
			Help: "Refunds of refused jobs that the store may not have got: " +
				"their limits stay charged until their windows end.",
		}),
	}
	r.MustRegister(m.checks, m.lostRefunds)
	return m
}

// checkCounters count the results of one limit.
type checkCounters struct{ spent, refused prometheus.Counter }

// of returns a limit's counters; they begin at 0.
func (m metrics) of(l limits.Limit) checkCounters {
	refused := "refused"
	if l.Shadow {
		refused = "would_refuse"
	}
	return checkCounters{m.checks.WithLabelValues(l.Name, "spent"),
		m.checks.WithLabelValues(l.Name, refused)}
}

// enforced counts the result of a limit in force for a request.
func (c checkCounters) enforced(allowed, violated bool) {
	switch {
	case violated:
		c.refused.Inc()
	case allowed:
		c.spent.Inc()
	}
}

// shadow counts the result of a shadow limit for a request that was allowed, and reports whether
// the limit would have refused it.
func (c checkCounters) shadow(violated bool) bool {
	if violated {
		c.refused.Inc()
	} else {
		c.spent.Inc()
	}
	return violated
}

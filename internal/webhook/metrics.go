package webhook

import "github.com/prometheus/client_golang/prometheus"

// Values of the label outcome.
const (
	outcomeDelivered = "delivered"
	outcomeFailed    = "failed"
	outcomeDisabled  = "disabled"
	outcomePutOff    = "put_off" // no attempt was made: its host or client has too many under way
)

type metrics struct {
	attempts *prometheus.CounterVec
	duration prometheus.Histogram
	pending  *prometheus.GaugeVec
}

func newMetrics(to prometheus.Registerer, backends []string) *metrics {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forebay_webhook_attempts_total",
			Help: "Attempts to deliver a webhook: delivered (2xx), failed, disabled (410); " +
				"put_off made none, as its host or client had as many under way as it may."},
			[]string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "forebay_webhook_attempt_duration_seconds",
			Help:    "Time that an attempt to deliver a webhook took.",
			Buckets: []float64{.01, .03, .1, .3, 1, 3, 10, 30}}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "forebay_webhooks_pending",
			Help: "Webhooks of a backend that are still to be delivered, over all processes: " +
				"each reports the same number, at most 5 s old."}, []string{"backend"}),
	}
	to.MustRegister(m.attempts, m.duration, m.pending)
	for _, outcome := range []string{outcomeDelivered, outcomeFailed, outcomeDisabled,
		outcomePutOff} {
		m.attempts.WithLabelValues(outcome)
	}
	for _, backend := range backends {
		m.pending.WithLabelValues(backend)
	}
	return m
}

// note counts an attempt.
func (m *metrics) note(to State, out result) {
	outcome := outcomeFailed
	switch to {
	case Delivered:
		outcome = outcomeDelivered
	case Disabled:
		outcome = outcomeDisabled
	}
	m.attempts.WithLabelValues(outcome).Inc()
	if out.took > 0 {
		m.duration.Observe(out.took.Seconds())
	}
}

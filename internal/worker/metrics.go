package worker

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// unknown is the label of operations that this worker's config doesn't have: clients must not be
// able to create labels.
const unknown = "unknown"

// metrics are the worker's series. All of them exist from the start, at 0, so that a rate includes
// the first event.
type metrics struct {
	finished *prometheus.CounterVec   // operation, outcome
	attempts *prometheus.CounterVec   // operation, outcome
	retries  *prometheus.CounterVec   // operation
	calls    *prometheus.HistogramVec // operation
	waits    *prometheus.HistogramVec // backend
	idle     *prometheus.CounterVec   // backend, reason
	returned *prometheus.CounterVec   // backend
	feedback *prometheus.CounterVec   // backend, change
	repairs  *prometheus.CounterVec   // backend, kind
	known    map[string]bool          // operations
}

var finalStates = []jobs.State{jobs.Succeeded, jobs.Failed, jobs.Canceled, jobs.Expired}

var reasons = []string{leaky.OnIdle, leaky.OnRate, leaky.OnConcurrency, leaky.OnPaused,
	leaky.OnQueuePaused, leaky.OnCooldown}

// Calls and waits last from milliseconds up to the bounds of timeouts and lines.
var (
	callBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
	waitBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900,
		3600}
)

func newMetrics(to prometheus.Registerer, backends []Backend) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help,
			Buckets: buckets}, []string{label})
	}
	m := &metrics{
		finished: counter("forebay_jobs_finished_total",
			"Jobs that this worker brought to their final state. A job that ended in the line "+
				"(expired, say) counts as operation unknown.", "operation", "outcome"),
		attempts: counter("forebay_job_attempts_total",
			"Attempts of this worker, by how they ended.", "operation", "outcome"),
		retries: counter("forebay_job_retries_total",
			"Attempts that failed and are followed by another.", "operation"),
		calls: histogram("forebay_call_seconds", "Length of the calls to a backend.",
			callBuckets, "operation"),
		waits: histogram("forebay_line_wait_seconds",
			"From a job's acceptance to its first start.", waitBuckets, "backend"),
		idle: counter("forebay_drain_wait_seconds_total",
			"Time that this worker's dispatcher waited, by what the next job waited on: the "+
				"drain's bottleneck.", "backend", "reason"),
		returned: counter("forebay_jobs_returned_total",
			"Jobs that this worker's dispatcher brought back to the line because their worker "+
				"was lost.", "backend"),
		feedback: counter("forebay_feedback_changes_total",
			"Changes of how the backend is treated, by this worker's attempts: its gate closed, "+
				"its rate lowered or whole again, a probe passed.", "backend", "change"),
		repairs: counter("forebay_reconciler_repairs_total",
			"Repairs by this worker's reconciler of keys that were missing in Redis.", "backend",
			"kind"),
		known: map[string]bool{},
	}
	for _, c := range []prometheus.Collector{m.finished, m.attempts, m.retries, m.calls, m.waits,
		m.idle, m.returned, m.feedback, m.repairs} {
		if err := to.Register(c); err != nil {
			return nil, fmt.Errorf("worker: register metrics: %w", err)
		}
	}
	m.operation(unknown)
	for _, b := range backends {
		name := b.Line.Settings().Backend
		m.waits.WithLabelValues(name)
		m.returned.WithLabelValues(name)
		for _, change := range leaky.Changes {
			m.feedback.WithLabelValues(name, string(change))
		}
		for _, kind := range leaky.RepairKinds {
			m.repairs.WithLabelValues(name, kind)
		}
		for _, reason := range reasons {
			m.idle.WithLabelValues(name, reason)
		}
		for op := range b.Operations {
			m.known[op] = true
			m.operation(op)
		}
	}
	return m, nil
}

// operation creates an operation's series.
func (m *metrics) operation(name string) {
	for _, state := range finalStates {
		m.finished.WithLabelValues(name, string(state))
	}
	for _, word := range attemptWords {
		m.attempts.WithLabelValues(name, word)
	}
	m.retries.WithLabelValues(name)
	m.calls.WithLabelValues(name)
}

func (m *metrics) label(operation string) string {
	if m.known[operation] {
		return operation
	}
	return unknown
}

// attempt counts an attempt that was settled, and the job's end if it has ended.
func (m *metrics) attempt(operation, word string, to jobs.State) {
	operation = m.label(operation)
	m.attempts.WithLabelValues(operation, word).Inc()
	switch {
	case word == wordLost:
	case to.Final():
		m.finished.WithLabelValues(operation, string(to)).Inc()
	case to == jobs.Delayed:
		m.retries.WithLabelValues(operation).Inc()
	}
}

func (m *metrics) call(operation string, took time.Duration) {
	m.calls.WithLabelValues(m.label(operation)).Observe(took.Seconds())
}

// released counts jobs that the line returned or ended by itself.
func (m *metrics) released(backend string, r leaky.Release) {
	m.returned.WithLabelValues(backend).Add(float64(r.Returned))
	for _, e := range r.Ended {
		m.finished.WithLabelValues(unknown, string(e.State)).Inc()
	}
}

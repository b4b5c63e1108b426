package httpapi

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// No metric has a label that a client can choose: routes are templates, methods are a closed list,
// and operations and reasons come from the config. Client names and job ids are never labels.

// unknownOperation is the operation label of requests that name no operation of the config.
const unknownOperation = "unknown"

type metrics struct {
	decisions *prometheus.CounterVec   // operation, decision, reason
	admission *prometheus.HistogramVec // decision
	cut       *prometheus.CounterVec   // reason
	tally     func(operation, decision, reason string) *atomic.Int64
	answers   web.Memo[decisionSeries, decisionMetrics]
}

// newMetrics makes the server's metrics and registers them.
func newMetrics(s *Server) *metrics {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forebay_admission_decisions_total",
			Help: "Decisions on requests for jobs, and on what gateways ask about. " +
				"The reason of accepted is new, fresh, joined, replayed or checked.",
		}, []string{"operation", "decision", "reason"}),
		admission: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "forebay_admission_duration_seconds",
			Help: "From a request for a job to its answer, " +
				"without waits that the client asked for.",
			Buckets: web.FastBuckets(),
		}, []string{"decision"}),
		tally: s.Tally,
	}
	m.cut = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_results_cut_total",
		Help: "Results over 64 KiB that ended early: " +
			"read too slowly (slow), removed meanwhile (gone), or the store failed."},
		[]string{"reason"})
	for _, reason := range []string{cutSlow, cutGone, cutStore} {
		m.cut.WithLabelValues(reason)
	}
	held := func(kind string) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "forebay_held_answers",
			ConstLabels: prometheus.Labels{"kind": kind},
			Help: "Answers that are held back for clients that prefer to wait, " +
				"and streams of a job's states."},
			func() float64 { return float64(s.waits.held(kind)) })
	}
	up := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "forebay_store_up",
		Help: "1 while the store answers."}, func() float64 {
		if s.Store.Healthy() {
			return 1
		}
		return 0
	})
	buffered := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "forebay_http_buffered_bytes",
		Help: "Memory that is reserved for the bodies of requests for jobs; " +
			"http.max_buffered bounds it."}, func() float64 {
		return float64(s.bodies.Held())
	})
	s.Web.Metrics.MustRegister(m.cut, buffered, m.decisions, m.admission,
		held(heldWait), held(heldStream), up, cacheCollector(s.cached))
	return m
}

// preset creates the series that alerts use, so that they begin at 0 and not at their first event.
func (m *metrics) preset(s *Server) {
	refusals := []string{api.CodeInvalidRequest, api.CodeInvalidFields,
		api.CodeInvalidCredentials, api.CodeStore, api.CodeShuttingDown, api.CodeSlowBody,
		api.CodeBusy}
	for _, reason := range refusals {
		m.decisions.WithLabelValues(unknownOperation, api.Rejected, reason)
	}
	m.decisions.WithLabelValues(unknownOperation, api.Rejected, api.CodeUnknownOperation)
	for _, o := range s.Admission.Operations {
		m.decisions.WithLabelValues(o.Name, api.Accepted, admission.ReasonNew)
		m.decisions.WithLabelValues(o.Name, api.Accepted, admission.ReasonReplayed)
		m.decisions.WithLabelValues(o.Name, api.Accepted, admission.ReasonChecked)
		m.decisions.WithLabelValues(o.Name, api.Rejected, api.CodeNotCached)
		if o.Overload.FreshFor > 0 {
			m.decisions.WithLabelValues(o.Name, api.Accepted, admission.ReasonFresh)
		}
		if o.Overload.FreshFor > 0 || o.Overload.StaleFor > 0 {
			m.decisions.WithLabelValues(o.Name, api.Rejected, api.CodeTooManyAnswers)
		}
		if o.Coalesce {
			m.decisions.WithLabelValues(o.Name, api.Accepted, admission.ReasonJoined)
		}
		for _, reason := range unrefused(o.Overload) {
			m.decisions.WithLabelValues(o.Name, api.Degraded, reason)
		}
		reasons := []string{string(leaky.LineFull), string(leaky.ClientShare),
			string(leaky.WaitTooLong), api.CodeStore}
		for tier := range s.Admission.Tiers {
			if o.Open(tier) && s.Admission.Tiers[tier].MaxStored > 0 {
				reasons = append(reasons, string(leaky.StoredFull))
			}
			if o.Open(tier) {
				reasons = append(reasons, s.Admission.Reasons(tier, &o)...)
			}
		}
		for _, reason := range reasons {
			m.decisions.WithLabelValues(o.Name, api.Rejected, reason)
			if degrades(o.Overload) {
				m.decisions.WithLabelValues(o.Name, api.Degraded, reason)
			}
		}
	}
}

// degrades reports whether the policy may have an answer besides the refusal.
func degrades(p degrade.Policy) bool {
	for _, step := range p.Steps {
		switch step.Kind {
		case degrade.Stale:
			if p.StaleFor > 0 {
				return true
			}
		case degrade.Reject:
			return false
		default:
			return true
		}
	}
	return false
}

// unrefused returns the reasons of degraded answers to requests that were not refused.
func unrefused(p degrade.Policy) (reasons []string) {
	if p.Allows(degrade.Wish{}) {
		reasons = append(reasons, admission.ReasonOnlyCached)
		if p.Sick.On {
			reasons = append(reasons, admission.ReasonSick)
		}
	}
	fallback := func(s degrade.Step) bool { return s.Kind == degrade.Operation }
	if slices.ContainsFunc(p.Steps, fallback) {
		reasons = append(reasons, admission.ReasonReplayed)
	}
	return reasons
}

// decided counts a decision, and how long its answer took.
func (m *metrics) decided(c *call, took time.Duration) {
	labels := decisionSeries{c.operation, c.decision, c.reason}
	found := m.answers.Get(labels, func() decisionMetrics {
		operation := labels.operation
		if operation == "" {
			operation = unknownOperation
		}
		made := decisionMetrics{
			decisions: m.decisions.WithLabelValues(operation, labels.decision, labels.reason),
			admission: m.admission.WithLabelValues(labels.decision),
		}
		if m.tally != nil {
			made.tally = m.tally(labels.operation, labels.decision, labels.reason)
		}
		if made.tally == nil {
			made.tally = new(atomic.Int64) // nobody reads it
		}
		return made
	})
	found.decisions.Inc()
	found.tally.Add(1)
	found.admission.Observe(took.Seconds())
}

// decisionSeries are the labels of a decision. They come from closed lists, so the config bounds
// their number.
type decisionSeries struct{ operation, decision, reason string }

// decisionMetrics count the decisions of one series.
type decisionMetrics struct {
	decisions prometheus.Counter
	admission prometheus.Observer
	tally     *atomic.Int64
}

package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"forebay/api"
	"forebay/internal/admission"
	"forebay/internal/leaky"
)

// Metrics have no label that a client can mint: routes are templates, methods a closed list, operations and reasons come from the
// config, and client names and job ids are never there.

// unknownOperation is the operation label of requests that name none of ours.
const unknownOperation = "unknown"

type metrics struct {
	decisions   *prometheus.CounterVec   // operation, decision, reason
	checks      *prometheus.CounterVec   // limit, outcome
	admission   *prometheus.HistogramVec // decision
	requests    *prometheus.CounterVec   // route, method, code
	lostRefunds prometheus.Counter
	duration    *prometheus.HistogramVec // route
}

// newMetrics makes the server's metrics and registers them.
func newMetrics(s *Server) *metrics {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_admission_decisions_total",
			Help: "Decisions on requests for jobs, and on what gateways ask about. The reason of accepted is new, replayed or checked."}, []string{"operation", "decision", "reason"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_limit_checks_total",
			Help: "What each limit said: spent, though it may have been given back; refused; would_refuse, of limits that aren't enforced."}, []string{"limit", "outcome"}),
		admission: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "forebay_admission_duration_seconds",
			Help: "From a request for a job to its answer, without waits that the client asked for.", Buckets: fastBuckets}, []string{"decision"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_http_requests_total",
			Help: "Answers by route, method and status."}, []string{"route", "method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "forebay_http_request_duration_seconds",
			Help: "From a request to its answer, without waits that the client asked for.", Buckets: fastBuckets}, []string{"route"}),
	}
	m.lostRefunds = prometheus.NewCounter(prometheus.CounterOpts{Name: "forebay_refunds_lost_total",
		Help: "Refunds of refused jobs that the store may not have got: their limits stay charged until their windows end."})
	held := func(kind string) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "forebay_held_answers", ConstLabels: prometheus.Labels{"kind": kind},
			Help: "Answers that are held back for clients that prefer to wait, and streams of a job's states."}, func() float64 { return float64(s.waits.held(kind)) })
	}
	up := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "forebay_store_up",
		Help: "1 while the store answers."}, func() float64 {
		if s.Store.Healthy() {
			return 1
		}
		return 0
	})
	s.Metrics.MustRegister(m.lostRefunds, m.decisions, m.checks, m.admission, m.requests, m.duration, held(heldWait), held(heldStream), up, &lineCollector{s.Lines})
	return m
}

// fastBuckets reach from an answer out of memory to the end of the longest wait, in seconds.
var fastBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30}

// preset creates the series that alerts will be written on, so that they begin at 0 and not with their first event.
func (m *metrics) preset(s *Server) {
	refusals := []string{api.CodeInvalidRequest, api.CodeInvalidFields, api.CodeInvalidCredentials, api.CodeStore, api.CodeShuttingDown}
	for _, reason := range refusals {
		m.decisions.WithLabelValues(unknownOperation, api.Rejected, reason)
	}
	m.decisions.WithLabelValues(unknownOperation, api.Rejected, api.CodeUnknownOperation)
	for _, o := range s.Operations {
		m.decisions.WithLabelValues(o.Name, api.Accepted, reasonNew)
		m.decisions.WithLabelValues(o.Name, api.Accepted, reasonReplayed)
		m.decisions.WithLabelValues(o.Name, api.Accepted, reasonChecked)
		reasons := []string{string(leaky.LineFull), string(leaky.ClientShare), string(leaky.WaitTooLong), api.CodeStore}
		for tier := range s.Tiers {
			if o.may(tier) {
				reasons = append(reasons, s.planner.reasons(tier, &o)...)
			}
		}
		for _, reason := range reasons {
			m.decisions.WithLabelValues(o.Name, api.Rejected, reason)
			if o.Overload.StaleFor > 0 {
				m.decisions.WithLabelValues(o.Name, api.Degraded, reason)
			}
		}
	}
}

// checkCounters count what one limit said.
type checkCounters struct{ spent, refused prometheus.Counter }

// checksOf are a limit's counters; they begin at 0.
func (m *metrics) checksOf(l admission.Limit) checkCounters {
	refused := "refused"
	if l.Shadow {
		refused = "would_refuse"
	}
	return checkCounters{m.checks.WithLabelValues(l.Name, "spent"), m.checks.WithLabelValues(l.Name, refused)}
}

// enforced counts what a limit in force said to a request.
func (c checkCounters) enforced(allowed, violated bool) {
	switch {
	case violated:
		c.refused.Inc()
	case allowed:
		c.spent.Inc()
	}
}

// shadow counts what a shadow limit said to a request that was allowed, and reports whether it would have refused it.
func (c checkCounters) shadow(violated bool) bool {
	if violated {
		c.refused.Inc()
	} else {
		c.spent.Inc()
	}
	return violated
}

// answered counts one call.
func (m *metrics) answered(c *call) {
	took := time.Since(c.began)
	m.requests.WithLabelValues(c.route, methodLabel(c.r.Method), strconv.Itoa(c.status)).Inc()
	m.duration.WithLabelValues(c.route).Observe((took - c.held).Seconds())
	if c.decision == "" {
		return
	}
	operation := c.operation
	if operation == "" {
		operation = unknownOperation
	}
	m.decisions.WithLabelValues(operation, c.decision, c.reason).Inc()
	m.admission.WithLabelValues(c.decision).Observe((took - c.held).Seconds())
}

func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete:
		return method
	}
	return "other"
}

// lineCollector reads each backend's line when metrics are scraped.
type lineCollector struct{ lines map[string]Line }

// scrapeTime bounds what a scrape may wait for Redis: a scraper gives up after some seconds, and half a metrics page is better than none.
const scrapeTime = 500 * time.Millisecond

var (
	lineDepth    = lineMetric("line_depth", "Jobs that wait in the line.")
	lineCapacity = lineMetric("line_capacity", "Jobs that may wait, those in backoff included.")
	lineOldest   = lineMetric("line_oldest_wait_seconds", "Age of the job that is next.")
	jobsDelayed  = lineMetric("jobs_delayed", "Jobs that wait for a retry.")
	jobsInFlight = lineMetric("jobs_inflight", "Jobs on their way to the backend, or there.")
	concurrency  = lineMetric("backend_concurrency", "Jobs that may be in flight.")
	paused       = lineMetric("backend_paused", "1 while the drain is paused.")
	gateUntil    = lineMetric("backend_gate_until_timestamp_seconds", "Until when the backend asked for rest; 0: it didn't.")
	callTime     = lineMetric("backend_call_seconds", "Smoothed length of a call; 0: there was none.")
	drainRate    = lineMetric("drain_rate", "Slots per second; +Inf is unlimited. Override is absent while there is none; effective is what feedback leaves.", "kind")
	rateFactor   = lineMetric("effective_rate_factor", "What the backend's trouble leaves of its rate; 1: all of it.")
	accepted     = lineMetric("backend_jobs_accepted_total", "Jobs that got a place in the line.")
	finished     = lineMetric("backend_jobs_finished_total", "Jobs by how they ended, over all workers. One that failed and was redriven counts each time that it ends.", "outcome")
	redriven     = lineMetric("backend_jobs_redriven_total", "Failed jobs that were put back into the line, each time.")
	lost         = lineMetric("backend_jobs_lost", "Jobs that the store has lost, less those that were found again.")
	trouble      = lineMetric("backend_trouble", "1 for the trouble that lowered the effective rate, while it is lowered.", "cause")
	probing      = lineMetric("backend_probing", "1 while one call tries whether the backend is well again.")
	started      = lineMetric("backend_calls_total", "Calls begun.")
	throttled    = lineMetric("backend_calls_throttled_total", "Calls that the backend answered with 429 or 503.")
)

func lineMetric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("forebay_"+name, help, append([]string{"backend"}, labels...), nil)
}

// Describe is part of prometheus.Collector.
func (l *lineCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{lineDepth, lineCapacity, lineOldest, jobsDelayed, jobsInFlight, concurrency, paused, gateUntil,
		callTime, drainRate, rateFactor, trouble, probing, accepted, finished, redriven, lost, started, throttled} {
		out <- d
	}
}

// Collect is part of prometheus.Collector. A backend whose line can't be read within scrapeTime is left out: see forebay_store_up.
func (l *lineCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	var all sync.WaitGroup
	for name, line := range l.lines {
		all.Go(func() {
			if st, err := line.Status(ctx); err == nil {
				collect(out, name, st)
			}
		})
	}
	all.Wait()
}

func collect(out chan<- prometheus.Metric, backend string, st leaky.Status) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{backend}, labels...)...)
	}
	count := func(d *prometheus.Desc, value int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), append([]string{backend}, labels...)...)
	}
	gauge(lineDepth, float64(st.Waiting))
	gauge(lineCapacity, float64(st.Capacity))
	gauge(lineOldest, st.OldestWait.Seconds())
	gauge(jobsDelayed, float64(st.Delayed))
	gauge(jobsInFlight, float64(st.InFlight))
	gauge(concurrency, float64(st.Concurrency))
	gauge(paused, map[bool]float64{true: 1}[st.Paused])
	gauge(gateUntil, seconds(st.GateUntil))
	gauge(callTime, st.CallTime.Seconds())
	gauge(drainRate, st.Configured.Rate.PerSecond(), "configured")
	gauge(drainRate, st.EffectiveRate, "effective")
	gauge(rateFactor, st.Factor)
	for _, cause := range []leaky.Sign{leaky.Throttled, leaky.Timeout, leaky.Unreachable} {
		gauge(trouble, map[bool]float64{true: 1}[st.Cause == cause], string(cause))
	}
	gauge(probing, map[bool]float64{true: 1}[st.Probing])
	if st.Override.Rate != nil {
		gauge(drainRate, st.Override.Rate.PerSecond(), "override")
	}
	b := st.Books
	count(accepted, b.Accepted)
	count(finished, b.Succeeded, api.Succeeded)
	count(finished, b.Failed+b.Redriven, api.Failed) // a counter never goes down, and a redrive takes one from the books' failed
	count(finished, b.Canceled, api.Canceled)
	count(finished, b.Expired, api.Expired)
	count(redriven, b.Redriven)
	gauge(lost, float64(b.Lost))
	count(started, b.Started)
	count(throttled, b.Throttled)
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}

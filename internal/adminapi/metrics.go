package adminapi

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/leaky"
)

// lineCollector reads each backend's line when metrics are scraped.
type lineCollector struct{ lines map[string]Line }

// scrapeTime bounds how long a scrape waits for Redis: a scraper gives up after some seconds, and
// half a metrics page is better than none.
const scrapeTime = 500 * time.Millisecond

var (
	lineDepth    = lineMetric("line_depth", "Jobs that wait in the line.")
	lineCapacity = lineMetric("line_capacity", "Jobs that may wait, those in backoff included.")
	lineOldest   = lineMetric("line_oldest_wait_seconds", "Age of the job that is next.")
	jobsDelayed  = lineMetric("jobs_delayed", "Jobs that wait for a retry.")
	jobsInFlight = lineMetric("jobs_inflight", "Jobs on their way to the backend, or there.")
	concurrency  = lineMetric("backend_concurrency", "Jobs that may be in flight.")
	paused       = lineMetric("backend_paused",
		"1 while the drain is paused, or its asynq queue is.")
	gateUntil = lineMetric("backend_gate_until_timestamp_seconds",
		"Until when the backend asked for rest; 0: it didn't.")
	callTime = lineMetric("backend_call_seconds",
		"Smoothed length of a call; 0: there was none.")
	drainRate = lineMetric("drain_rate",
		"Slots per second; +Inf is unlimited. Override is absent while there is none; "+
			"effective is what feedback leaves.", "kind")
	rateFactor = lineMetric("effective_rate_factor",
		"What the backend's trouble leaves of its rate; 1: all of it.")
	accepted = lineMetric("backend_jobs_accepted_total", "Jobs that got a place in the line.")
	finished = lineMetric("backend_jobs_finished_total",
		"Jobs by how they ended, over all workers. "+
			"One that failed and was redriven counts each time that it ends.", "outcome")
	redriven = lineMetric("backend_jobs_redriven_total",
		"Failed jobs that were put back into the line, each time.")
	lost = lineMetric("backend_jobs_lost",
		"Jobs that the store has lost, less those that were found again.")
	trouble = lineMetric("backend_trouble",
		"1 for the trouble that lowered the effective rate, while it is lowered.", "cause")
	probing = lineMetric("backend_probing",
		"1 while one call tries whether the backend is well again.")
	started   = lineMetric("backend_calls_total", "Calls begun.")
	throttled = lineMetric("backend_calls_throttled_total",
		"Calls that the backend answered with 429 or 503.")
)

func lineMetric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("forebay_"+name, help, append([]string{"backend"}, labels...), nil)
}

// Describe is part of prometheus.Collector.
func (l *lineCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{lineDepth, lineCapacity, lineOldest, jobsDelayed,
		jobsInFlight, concurrency, paused, gateUntil, callTime, drainRate, rateFactor, trouble,
		probing, accepted, finished, redriven, lost, started, throttled} {
		out <- d
	}
}

// Collect is part of prometheus.Collector. A backend whose line can't be read within scrapeTime is
// left out: see forebay_store_up.
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
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value,
			append([]string{backend}, labels...)...)
	}
	count := func(d *prometheus.Desc, value int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value),
			append([]string{backend}, labels...)...)
	}
	gauge(lineDepth, float64(st.Waiting))
	gauge(lineCapacity, float64(st.Capacity))
	gauge(lineOldest, st.OldestWait.Seconds())
	gauge(jobsDelayed, float64(st.Delayed))
	gauge(jobsInFlight, float64(st.InFlight))
	gauge(concurrency, float64(st.Concurrency))
	gauge(paused, map[bool]float64{true: 1}[st.Paused || st.WaitingOn == leaky.OnQueuePaused])
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
	// A counter never goes down, and a redrive takes one from the books' failed.
	count(finished, b.Failed+b.Redriven, api.Failed)
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

package httpapi

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// cacheCounts counts the stored answers of one operation that this process has served since its
// start. The zero value counts none. Safe for concurrent use.
type cacheCounts struct {
	hits   atomic.Int64 // fresh
	stale  atomic.Int64
	misses atomic.Int64 // requests for which none could be served
	bytes  atomic.Int64 // of the bodies served
	oldest oldest
}

// hit counts a fresh answer.
func (c *cacheCounts) hit(size int) {
	c.hits.Add(1)
	c.bytes.Add(int64(size))
}

// old counts a stale answer.
func (c *cacheCounts) old(size int, age time.Duration, now time.Time) {
	c.stale.Add(1)
	c.bytes.Add(int64(size))
	c.oldest.note(age, now)
}

// The oldest age covers the last 5 minutes, in steps of 10 s: a scraper comes at least once a
// minute.
const (
	oldestStep  = 10 * time.Second
	oldestSteps = 30
)

// oldest is the oldest age of the last 5 minutes. The zero value has seen none. Safe for concurrent
// use.
type oldest struct {
	mu sync.Mutex
	// Guarded by mu. Each step has its oldest age, at its number modulo oldestSteps.
	steps [oldestSteps]struct {
		number int64
		age    time.Duration
	}
}

func (o *oldest) note(age time.Duration, now time.Time) {
	n := now.UnixNano() / int64(oldestStep)
	o.mu.Lock()
	defer o.mu.Unlock()
	step := &o.steps[n%oldestSteps]
	if step.number != n {
		step.number, step.age = n, 0
	}
	step.age = max(step.age, age)
}

// age returns the oldest age, or 0 if none was noted.
func (o *oldest) age(now time.Time) (age time.Duration) {
	n := now.UnixNano() / int64(oldestStep)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, step := range o.steps {
		if step.number > n-oldestSteps && step.number <= n {
			age = max(age, step.age)
		}
	}
	return age
}

// cacheCollector shows the counts by operation when metrics are scraped.
type cacheCollector map[string]*cacheCounts

var (
	cacheRequests = prometheus.NewDesc("forebay_cache_requests_total",
		"Requests for which a stored answer was looked for: "+
			"a fresh one was served (hit), a stale one, or none (miss).",
		[]string{"operation", "result"}, nil)
	cacheBytes = prometheus.NewDesc("forebay_cache_served_bytes_total",
		"Bytes of the bodies of stored answers that were served.", []string{"operation"}, nil)
	oldestServed = prometheus.NewDesc("forebay_degraded_oldest_age_seconds",
		"Age of the oldest answer that was served stale within the last 5 minutes; "+
			"0: there was none.", []string{"operation"}, nil)
)

// Describe is part of prometheus.Collector.
func (c cacheCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{cacheRequests, cacheBytes, oldestServed} {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (c cacheCollector) Collect(out chan<- prometheus.Metric) {
	now := time.Now()
	for operation, counts := range c {
		results := map[string]int64{"hit": counts.hits.Load(), "stale": counts.stale.Load(),
			"miss": counts.misses.Load()}
		for result, n := range results {
			out <- prometheus.MustNewConstMetric(cacheRequests, prometheus.CounterValue,
				float64(n), operation, result)
		}
		out <- prometheus.MustNewConstMetric(cacheBytes, prometheus.CounterValue,
			float64(counts.bytes.Load()), operation)
		out <- prometheus.MustNewConstMetric(oldestServed, prometheus.GaugeValue,
			counts.oldest.age(now).Seconds(), operation)
	}
}

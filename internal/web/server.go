package web

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"
)

// Server is what all listeners of a process share: its log, its metrics of requests, and whether it
// is about to stop (Leave). Safe for concurrent use.
type Server struct {
	Log     *slog.Logger
	Metrics *prometheus.Registry // takes all metrics, and is what GET /metrics shows
	// StoreLog limits the log lines about a store that fails: during an outage every request would
	// log the same.
	StoreLog rate.Sometimes
	// AnswerLog limits the log lines about single answers to 100 a second, so that a flood doesn't
	// fill the disk.
	AnswerLog *rate.Limiter

	leaving  atomic.Bool
	requests *prometheus.CounterVec   // route, method, code
	duration *prometheus.HistogramVec // route
	answers  Memo[series, *answerMetrics]
}

// maxLogged is how many lines a second AnswerLog allows.
const maxLogged = 100

// NewServer returns a Server. It registers its metrics with metrics.
func NewServer(metrics *prometheus.Registry, log *slog.Logger) *Server {
	s := &Server{Log: log, Metrics: metrics,
		StoreLog:  rate.Sometimes{Interval: time.Second},
		AnswerLog: rate.NewLimiter(maxLogged, maxLogged),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forebay_http_requests_total",
			Help: "Answers by route, method and status.",
		}, []string{"route", "method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "forebay_http_request_duration_seconds",
			Help:    "From a request to its answer, without waits that the client asked for.",
			Buckets: FastBuckets(),
		}, []string{"route"}),
	}
	metrics.MustRegister(s.requests, s.duration)
	return s
}

// Leave makes every answer close its connection from now on, so that clients connect to other
// processes.
func (s *Server) Leave() { s.leaving.Store(true) }

// Leaving reports whether Leave was called.
func (s *Server) Leaving() bool { return s.leaving.Load() }

// Exposition returns a handler that answers with all metrics, in Prometheus's text format.
func (s *Server) Exposition() http.Handler {
	return promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{ErrorLog: promErrors{s.Log}})
}

type promErrors struct{ log *slog.Logger }

func (p promErrors) Println(v ...any) {
	for _, one := range v {
		if err, ok := one.(error); ok && !errors.Is(err, http.ErrAbortHandler) {
			p.log.Warn("metrics", "error", err)
		}
	}
}

// FastBuckets returns the buckets of a histogram of answers' times in seconds, from that of an
// answer from memory to that of the longest wait.
func FastBuckets() []float64 {
	return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30}
}

// series are the labels of an answer. They come from closed lists: routes are templates.
type series struct {
	route, method string
	status        int
}

// answerMetrics count the answers of one series.
type answerMetrics struct {
	requests prometheus.Counter
	duration prometheus.Observer
}

// answered counts one call.
func (s *Server) answered(c *Call, took time.Duration) {
	labels := series{c.Route, methodLabel(c.R.Method), c.Status}
	found := s.answers.Get(labels, func() *answerMetrics {
		code := strconv.Itoa(labels.status)
		return &answerMetrics{s.requests.WithLabelValues(labels.route, labels.method, code),
			s.duration.WithLabelValues(labels.route)}
	})
	found.requests.Inc()
	found.duration.Observe(took.Seconds())
}

func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete:
		return method
	}
	return "other"
}

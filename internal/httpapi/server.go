package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"forebay/internal/admission"
	"forebay/internal/cache"
	"forebay/internal/degrade"
	"forebay/internal/identity"
	"forebay/internal/leaky"
)

// Identifier says who asks. On an error the Client still has its Address, if that is known.
type Identifier interface {
	Identify(r *http.Request) (identity.Client, error)
}

// Limiter says whether a request may enter. Decide spends all or nothing, Peek nothing, Refund gives back what an
// allowed verdict spent.
type Limiter interface {
	Decide(context.Context, admission.Request) (admission.Verdict, error)
	Peek(context.Context, admission.Request) (admission.Verdict, error)
	Refund(context.Context, admission.Verdict) error
}

// Line is one backend's line, its jobs and its drain. Each method is atomic. Offer is idempotent by job id.
type Line interface {
	Offer(context.Context, leaky.Offer) (leaky.Place, error)
	Look(ctx context.Context, id string) (leaky.Look, error)
	Cancel(ctx context.Context, id string) (leaky.CancelOutcome, error)
	Result(ctx context.Context, id string) ([]byte, error)
	Tune(ctx context.Context, o leaky.Override, by string) error
	ResetTuning(ctx context.Context, by string) error
	Status(context.Context) (leaky.Status, error)
}

// Finals tells when jobs end. Its word may get lost: whoever waits asks now and then.
type Finals interface {
	Done(id string) (done <-chan struct{}, forget func())
}

// Degrader finds the last good answer to the same request, where one may be served.
type Degrader interface {
	Stale(ctx context.Context, p degrade.Policy, operation, client, tier string, payload []byte, w degrade.Wish) (cache.Answer, bool, error)
}

// Store is what the front path knows of its connection to Redis.
type Store interface {
	Healthy() bool      // false: a call would fail, or hang
	Embedded() bool     // in memory: nothing is kept
	Warnings() []string // what the operator should mend
}

// Tier is a set of limits and a weight.
type Tier struct {
	Weight float64 // in the line; > 0
	Limits []*admission.Rule
}

// Operation is one expensive thing that clients may request.
type Operation struct {
	Name     string
	Backend  string
	Tiers    []string // who may; empty: all
	Cost     int64    // what one request takes of each limit; ≥ 1
	Limits   []*admission.Rule
	Overload degrade.Policy
	Keep     time.Duration // how long a finished job and its result are remembered
	MaxAge   time.Duration // how long a job may live before it must have ended; its backend's
}

// Config is what a Server is put together from. It was checked: every name in it that stands for something else in it is there, and
// the limits that meet in one request have different names.
type Config struct {
	Identity   Identifier
	Limiter    Limiter
	Degrader   Degrader
	Store      Store
	Finals     Finals
	Lines      map[string]Line // by backend
	Tiers      map[string]Tier
	Operations []Operation
	Limits     []*admission.Rule // of every caller

	MaxBody    int64         // bytes of a POST's body
	Legacy     LegacyHeaders // "": Epoch
	AdminToken string        // "": the admin API asks for none, and must not be reachable from elsewhere

	Metrics *prometheus.Registry // takes the metrics, and is what GET /metrics shows
	Log     *slog.Logger
}

// Server answers both listeners. Safe for concurrent use.
type Server struct {
	Config
	operations  map[string]*Operation
	plans       map[planKey]*plan
	addresses   *plan // the limits that count addresses: all that a failed authentication spends
	metrics     *metrics
	storeLog    sometimes
	decisionLog atMost
	waiters     chan struct{} // a place for each answer that is held back

	draining  chan struct{} // closed by Drain
	drainOnce sync.Once
}

// storeTime bounds what one request may wait for the store; the rest of the second in which every answer comes is for a stale
// answer (staleTime) and the way there and back.
const (
	storeTime = 600 * time.Millisecond
	staleTime = 150 * time.Millisecond
)

// maxWaiters bounds the answers that are held back at one time. Each takes about 20 KiB and, every pollFinal, a look at its job.
const maxWaiters = 10_000

// New returns a Server. It registers its metrics with c.Metrics.
func New(c Config) *Server {
	s := &Server{
		Config:     c,
		operations: make(map[string]*Operation, len(c.Operations)),
		waiters:    make(chan struct{}, maxWaiters),
		draining:   make(chan struct{}),
	}
	for i := range c.Operations {
		s.operations[c.Operations[i].Name] = &c.Operations[i]
	}
	s.plans, s.addresses = plans(c)
	s.metrics = newMetrics(s)
	return s
}

// Drain makes the server shut down in good order: from now on it admits no job, /readyz says so, and answers that are held
// back are given. What is asked about jobs is still answered. It may be called more than once.
func (s *Server) Drain() { s.drainOnce.Do(func() { close(s.draining) }) }

func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// Public is the handler of the public listener.
func (s *Server) Public() http.Handler {
	return s.router(
		route{path: "/v1/jobs", admission: true, handlers: map[string]handler{"POST": s.submit}},
		route{path: "/v1/jobs/{id}", handlers: map[string]handler{"GET": s.identified(s.status), "DELETE": s.identified(s.cancel)}},
		route{path: "/v1/jobs/{id}/result", handlers: map[string]handler{"GET": s.identified(s.result)}},
		route{path: "/v1/rate-limits", handlers: map[string]handler{"GET": s.identified(s.rateLimits)}},
		route{path: "/openapi.yaml", handlers: map[string]handler{"GET": s.openAPI}},
		route{path: "/livez", handlers: map[string]handler{"GET": s.livez}},
		route{path: "/readyz", handlers: map[string]handler{"GET": s.readyz}},
	)
}

// Admin is the handler of the admin listener.
func (s *Server) Admin() http.Handler {
	return s.router(
		route{path: "/admin/v1/backends", handlers: map[string]handler{"GET": s.operator(s.listBackends)}},
		route{path: "/admin/v1/backends/{name}", handlers: map[string]handler{"GET": s.operator(s.getBackend), "PATCH": s.operator(s.tuneBackend)}},
		route{path: "/admin/v1/backends/{name}/override", handlers: map[string]handler{"DELETE": s.operator(s.resetBackend)}},
		route{path: "/metrics", handlers: map[string]handler{"GET": s.operator(s.serveMetrics())}},
		route{path: "/livez", handlers: map[string]handler{"GET": s.livez}},
		route{path: "/readyz", handlers: map[string]handler{"GET": s.readyz}},
	)
}

// Timeouts of a listener. Reading is bounded so that slow senders hold no connection; writing takes maxWait, storeTime twice, and
// leaves the rest for a client that reads a large result slowly.
const (
	headerTime = 5 * time.Second
	readTime   = 30 * time.Second
	writeTime  = 90 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 16 << 10
)

// NewHTTPServer returns an http.Server for one of the handlers, with every timeout and bound set.
func NewHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // bad handshakes and the like: the callers' business
	}
}

// may reports whether a tier may request the operation.
func (o *Operation) may(tier string) bool { return len(o.Tiers) == 0 || slices.Contains(o.Tiers, tier) }

// allowed are the names of the operations that a tier may request, sorted.
func (s *Server) allowed(tier string) []string {
	var names []string
	for name, o := range s.operations {
		if o.may(tier) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// Identifier says who asks. On an error the Client still has its Address, if that is known.
type Identifier interface {
	Identify(r *http.Request) (identity.Client, error)
	FromProxy(r *http.Request) bool // r comes from a trusted proxy
}

// Line is one backend's line, its jobs and its drain. Each method is atomic.
type Line interface {
	Purge(ctx context.Context, id string) (leaky.PurgeOutcome, error)
	Mine(context.Context, leaky.MineFilter) (leaky.MinePage, error)
	Look(ctx context.Context, id string) (leaky.Look, error)
	Cancel(ctx context.Context, id string) (leaky.CancelOutcome, error)
	Result(ctx context.Context, id string) ([]byte, error)
	ResultPart(ctx context.Context, id string, from, n int64) ([]byte, error)
	Payload(ctx context.Context, id string) ([]byte, error)
	Tune(ctx context.Context, o leaky.Override, by string) error
	ResetTuning(ctx context.Context, by string) error
	Status(context.Context) (leaky.Status, error)
	List(context.Context, leaky.ListFilter) (leaky.Page, error)
	Redrive(ctx context.Context, id string) (leaky.Outcome, error)
	RedriveAll(ctx context.Context, f leaky.FailedFilter, max int) (leaky.RedriveResult, error)
	CheckBooks(context.Context) (leaky.Report, error)
}

// Finals tells when jobs move on their way to their ends. Watch's channel has a value when one of the jobs has moved, or may have: look
// after Watch and after each value, and nothing is missed. forget must be called once nobody waits any more.
type Finals interface {
	Watch(ids ...string) (moved <-chan struct{}, forget func())
}

// Answers are the last good answers to requests. Warm has the one of a key in this process's
// memory, so that it is there while the store is unavailable; Purge removes it for good, or says
// that it may be there still.
type Answers interface {
	Warm(ctx context.Context, key string)
	Purge(ctx context.Context, p degrade.Policy, operation, key, client string) error
}

// Store is what the front path knows of its connection to Redis.
type Store interface {
	Healthy() bool      // false: a call would fail, or hang
	Writable() bool     // false: it can be read, and takes no job
	Embedded() bool     // in memory: nothing is kept
	Warnings() []string // what the operator should mend
	// Unavailable's channel is closed while the store isn't healthy. After a recovery, a new channel
	// is returned.
	Unavailable() <-chan struct{}
}

// Server answers both listeners. Safe for concurrent use.
type Server struct {
	Config
	cached      map[string]*cacheCounts // by operation
	operators   *Operators
	bodies      bodies
	unread      *unread
	sites       *http.CrossOriginProtection
	metrics     *metrics
	storeLog    sometimes
	decisionLog atMost
	waits       *waits        // the answers that are held back
	warming     chan struct{} // a place for each answer that is being taken into memory
	warmed      recently      // jobs whose answers were
	reading     reading
	parsing     chan struct{}                 // a place for each large body that is being parsed
	redriveTime time.Duration                 // maxRedriveTime, but in tests
	beat, life  time.Duration                 // heartbeat and streamLife, but in tests
	patience    func(bytes int) time.Duration // slowTime, but in tests

	leaving   atomic.Bool   // set by Leave
	refusing  atomic.Bool   // set by Refuse
	draining  chan struct{} // closed by Drain
	drainOnce sync.Once
}

// storeTime bounds what one request may wait for the store; the rest of the second in which every answer comes is for a stale
// answer (staleTime) and the way there and back.
const (
	storeTime = 600 * time.Millisecond
	staleTime = 150 * time.Millisecond
)

// maxWarming bounds the answers that are being taken into memory at one time, each of which has its job's payload and itself read. Beyond that they
// are let go: the next one like them will do.
const maxWarming = 16

// New returns a Server. It registers its metrics with c.Metrics.
func New(c Config) *Server {
	if c.Audit == nil {
		c.Audit = c.Log
	}
	s := &Server{
		Config:      c,
		cached:      make(map[string]*cacheCounts, len(c.Admission.Operations)),
		waits:       newWaits(maxHeld),
		warming:     make(chan struct{}, maxWarming),
		parsing:     make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		draining:    make(chan struct{}),
		sites:       http.NewCrossOriginProtection(),
		redriveTime: maxRedriveTime,
		beat:        heartbeat,
		life:        streamLife,
		patience:    slowTime,
		unread:      newUnread(unreadBounds(c.MaxBuffered), c.Metrics, c.Log),
	}
	for _, o := range c.Admission.Operations {
		s.cached[o.Name] = &cacheCounts{}
	}
	s.bodies.max = c.MaxBuffered
	s.metrics = newMetrics(s)
	s.operators = NewOperators(c.AdminToken, s.addressOf, c.Metrics, c.Log)
	s.metrics.preset(s)
	return s
}

// Leave begins a shutdown that clients don't notice: from now on /readyz is red and each answer
// closes its connection, so that all of them begin anew, elsewhere. All else goes on.
func (s *Server) Leave() {
	s.leaving.Store(true)
	s.Admission.StopRefreshing()
}

// Refuse has the server admit no more jobs: they would wait until the next process is there. What
// is asked about jobs and limits is still answered, gateways' checks too. It implies Leave.
func (s *Server) Refuse() {
	s.Leave()
	s.refusing.Store(true)
}

// Drain has answers that are held back be given, and streams end; none is held any more. It implies
// Leave, and may be called more than once.
func (s *Server) Drain() {
	s.Leave()
	s.drainOnce.Do(func() { close(s.draining) })
}

// Public is the handler of the public listener.
func (s *Server) Public() http.Handler {
	return s.router(
		route{path: "/v1/jobs", callers: true, admission: true, handlers: map[string]handler{"POST": s.submit, "GET": undecided(s.caller(s.listOwn))}},
		route{path: "/v1/jobs/{id}", callers: true, handlers: map[string]handler{"GET": s.identified(s.status), "DELETE": s.identified(s.remove)}},
		route{path: "/v1/jobs/{id}/result", callers: true, handlers: map[string]handler{"GET": s.identified(s.result)}},
		route{path: "/v1/rate-limits", callers: true, handlers: map[string]handler{"GET": s.caller(s.rateLimits)}},
		route{path: "/v1/operations", callers: true, handlers: map[string]handler{"GET": s.caller(s.operationsList)}},
		route{path: "/v1/check", callers: true, admission: true, handlers: map[string]handler{"GET": s.check}},
		route{path: "/v1/check/{path}", callers: true, admission: true, handlers: map[string]handler{anyMethod: s.check}},
		route{path: "/docs", callers: true, handlers: map[string]handler{"GET": s.docs}},
		route{path: "/openapi.yaml", handlers: map[string]handler{"GET": s.openAPI}},
		route{path: "/livez", handlers: map[string]handler{"GET": s.livez}},
		route{path: "/readyz", handlers: map[string]handler{"GET": s.publicReadyz}},
	)
}

// Admin is the handler of the admin listener.
func (s *Server) Admin() http.Handler {
	return s.router(append(s.cacheRoutes(),
		route{path: "/admin/v1/backends", handlers: map[string]handler{"GET": s.operator(noQuery(s.listBackends))}},
		route{path: "/admin/v1/backends/{name}", handlers: map[string]handler{"GET": s.operator(noQuery(s.getBackend)), "PATCH": s.operator(noQuery(s.tuneBackend))}},
		route{path: "/admin/v1/backends/{name}/override", handlers: map[string]handler{"DELETE": s.operator(noQuery(s.resetBackend))}},
		route{path: "/admin/v1/backends/{name}/books", handlers: map[string]handler{"GET": s.operator(noQuery(s.books))}},
		route{path: "/admin/v1/backends/{name}/redrive", handlers: map[string]handler{"POST": s.operator(noQuery(s.redriveMany))}},
		route{path: "/admin/v1/jobs", handlers: map[string]handler{"GET": s.operator(s.listJobs)}},
		route{path: "/admin/v1/jobs/{id}", handlers: map[string]handler{"GET": s.operator(noQuery(s.getAnyJob)), "DELETE": s.operator(noQuery(s.cancelAnyJob))}},
		route{path: "/admin/v1/jobs/{id}/redrive", handlers: map[string]handler{"POST": s.operator(noQuery(s.redriveJob))}},
		route{path: "/admin/v1/jobs/{id}/deliveries", handlers: map[string]handler{"GET": s.operator(noQuery(s.deliveriesOf))}},
		route{path: "/admin/v1/jobs/{id}/redeliver", handlers: map[string]handler{"POST": s.operator(noQuery(s.redeliver))}},
		route{path: "/admin/v1/deliveries", handlers: map[string]handler{"GET": s.operator(s.listDeliveries)}},
		route{path: "/admin/v1/shadow-limits", handlers: map[string]handler{"GET": s.operator(s.shadowLimits)}},
		route{path: "/metrics", handlers: map[string]handler{"GET": s.operator(s.serveMetrics())}},
		route{path: "/livez", handlers: map[string]handler{"GET": s.livez}},
		route{path: "/readyz", handlers: map[string]handler{"GET": s.readyz}},
	)...)
}

// Timeouts of a listener. Reading is bounded so that slow senders hold no connection. Writing takes
// maxWait, storeTime twice, and leaves the rest for a client that reads slowly an answer that is in
// memory whole; a result that is sent in pieces has slowTime for each.
const (
	headerTime = 5 * time.Second
	readTime   = 30 * time.Second
	writeTime  = 90 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 16 << 10
)

// NewHTTPServer returns an http.Server for a handler, with every timeout and bound set.
func NewHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           closingAfterTransfer(h),
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		// net/http would answer OPTIONS * by itself, past the handler.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug), // bad handshakes and the like: the callers' business
	}
}

// closingAfterTransfer has h answer, and no connection outlive a request with Transfer-Encoding. Where Content-Length
// stood beside it, which net/http doesn't tell, two readers may differ on where the next request begins (RFC 9112, 6.1).
func closingAfterTransfer(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header()["Connection"] = closing
		}
		h.ServeHTTP(w, r)
	})
}

// lineOf is the line of a job's backend.
func (s *Server) lineOf(id string) Line {
	backend, _ := jobs.ParseID(id)
	return s.Lines[backend]
}

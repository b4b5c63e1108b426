package httpapi

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
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
	Purge(ctx context.Context, p degrade.Policy, key, client string) error
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
	bodies      web.Bodies
	unread      *unread
	sites       *http.CrossOriginProtection
	metrics     *metrics
	waits       *waits        // the answers that are held back
	warming     chan struct{} // a place for each answer that is being taken into memory
	warmed      recently      // jobs whose answers were
	reading     reading
	parsing     chan struct{}                 // a place for each large body that is being parsed
	redriveTime time.Duration                 // maxRedriveTime, but in tests
	beat, life  time.Duration                 // heartbeat and streamLife, but in tests
	patience    func(bytes int) time.Duration // slowTime, but in tests

	refusing  atomic.Bool   // set by Refuse
	draining  chan struct{} // closed by Drain
	drainOnce sync.Once
}

// maxWarming bounds the answers that are being taken into memory at one time, each of which has its job's payload and itself read. Beyond that they
// are let go: the next one like them will do.
const maxWarming = 16

// New returns a Server. It registers its metrics with those of c.Web.
func New(c Config) *Server {
	if c.Audit == nil {
		c.Audit = c.Web.Log
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
		patience:    web.SlowTime,
		unread:      newUnread(unreadBounds(c.MaxBuffered), c.Web.Metrics, c.Web.Log),
	}
	for _, o := range c.Admission.Operations {
		s.cached[o.Name] = &cacheCounts{}
	}
	s.bodies.Max = c.MaxBuffered
	s.metrics = newMetrics(s)
	s.operators = NewOperators(c.AdminToken, s.addressOf, c.Web.Metrics, c.Web.Log)
	s.metrics.preset(s)
	return s
}

// Leave begins a shutdown that clients don't notice: from now on /readyz is red and each answer
// closes its connection, so that all of them begin anew, elsewhere. The rest goes on.
func (s *Server) Leave() {
	s.Web.Leave()
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
	return web.Router(s.Web, s.begin,
		s.callers("/v1/jobs", methods{"POST": deciding(s.submit), "GET": s.caller(s.listOwn)}),
		s.callers("/v1/jobs/{id}", methods{"GET": s.identified(s.status), "DELETE": s.identified(s.remove)}),
		s.callers("/v1/jobs/{id}/result", methods{"GET": s.identified(s.result)}),
		s.callers("/v1/rate-limits", methods{"GET": s.caller(s.rateLimits)}),
		s.callers("/v1/operations", methods{"GET": s.caller(s.operationsList)}),
		s.callers("/v1/check", methods{"GET": deciding(s.check)}),
		s.callers("/v1/check/{path}", methods{web.AnyMethod: deciding(s.check)}),
		s.callers("/docs", methods{"GET": s.docs}),
		route{Path: "/openapi.yaml", Handlers: methods{"GET": s.openAPI}},
		route{Path: "/livez", Handlers: methods{"GET": livez}},
		route{Path: "/readyz", Handlers: methods{"GET": s.publicReadyz}},
	)
}

type (
	handler = web.Handler[*call]
	route   = web.Route[*call]
	methods = map[string]handler
)

func (s *Server) begin() *call { return &call{s: s} }

// callers is a route for callers that say who they are: the answer to a method that it doesn't have
// speaks of their limits too.
func (s *Server) callers(path string, handlers methods) route {
	return route{Path: path, Handlers: handlers, Unhandled: func(c *call) {
		if client, err := s.Identity.Identify(c.R); err == nil {
			c.identify(client)
		}
	}}
}

func livez(c *call) error { return web.Livez(&c.Call) }

// Admin is the handler of the admin listener.
func (s *Server) Admin() http.Handler {
	return web.Router(s.Web, s.begin, append(s.cacheRoutes(),
		route{Path: "/admin/v1/backends", Handlers: methods{"GET": s.operator(web.NoQuery(s.listBackends))}},
		route{Path: "/admin/v1/backends/{name}", Handlers: methods{"GET": s.operator(web.NoQuery(s.getBackend)), "PATCH": s.operator(web.NoQuery(s.tuneBackend))}},
		route{Path: "/admin/v1/backends/{name}/override", Handlers: methods{"DELETE": s.operator(web.NoQuery(s.resetBackend))}},
		route{Path: "/admin/v1/backends/{name}/books", Handlers: methods{"GET": s.operator(web.NoQuery(s.books))}},
		route{Path: "/admin/v1/backends/{name}/redrive", Handlers: methods{"POST": s.operator(web.NoQuery(s.redriveMany))}},
		route{Path: "/admin/v1/jobs", Handlers: methods{"GET": s.operator(s.listJobs)}},
		route{Path: "/admin/v1/jobs/{id}", Handlers: methods{"GET": s.operator(web.NoQuery(s.getAnyJob)), "DELETE": s.operator(web.NoQuery(s.cancelAnyJob))}},
		route{Path: "/admin/v1/jobs/{id}/redrive", Handlers: methods{"POST": s.operator(web.NoQuery(s.redriveJob))}},
		route{Path: "/admin/v1/jobs/{id}/deliveries", Handlers: methods{"GET": s.operator(web.NoQuery(s.deliveriesOf))}},
		route{Path: "/admin/v1/jobs/{id}/redeliver", Handlers: methods{"POST": s.operator(web.NoQuery(s.redeliver))}},
		route{Path: "/admin/v1/deliveries", Handlers: methods{"GET": s.operator(s.listDeliveries)}},
		route{Path: "/admin/v1/shadow-limits", Handlers: methods{"GET": s.operator(s.shadowLimits)}},
		route{Path: "/metrics", Handlers: methods{"GET": s.operator(s.showMetrics())}},
		route{Path: "/livez", Handlers: methods{"GET": livez}},
		route{Path: "/readyz", Handlers: methods{"GET": s.readyz}},
	)...)
}

// lineOf is the line of a job's backend.
func (s *Server) lineOf(id string) Line {
	backend, _ := jobs.ParseID(id)
	return s.Lines[backend]
}

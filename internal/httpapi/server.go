package httpapi

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// Identifier names a request's client. On an error the Client still has its Address, if that is
// known.
type Identifier interface {
	Identify(r *http.Request) (identity.Client, error)
	FromProxy(r *http.Request) bool // r comes from a trusted proxy
}

// Line is one backend's line as its clients use it. Each method is atomic.
type Line interface {
	Jobs
	Payloads
}

// Jobs are a line's jobs.
type Jobs interface {
	Look(ctx context.Context, id string) (leaky.Look, error)
	Explain(ctx context.Context, id string) (leaky.Explanation, error)
	Mine(context.Context, leaky.MineFilter) (leaky.MinePage, error)
	Cancel(ctx context.Context, id string) (leaky.CancelOutcome, error)
	Purge(ctx context.Context, id string) (leaky.PurgeOutcome, error)
}

// Payloads are the payloads and the results of a line's jobs.
type Payloads interface {
	Payload(ctx context.Context, id string) ([]byte, error)
	Result(ctx context.Context, id string) ([]byte, error)
	ResultPart(ctx context.Context, id string, from, n int64) ([]byte, error)
}

// Finals notifies of jobs' moves. Watch's channel has a value when one of the jobs has moved, or
// may have. A caller that looks after Watch and after each value misses nothing. forget must be
// called when the watch ends.
type Finals interface {
	Watch(ids ...string) (moved <-chan struct{}, forget func())
}

// Answers are the last good answers to requests. Warm loads a key's answer into this process's
// memory, so that it can be served while the store is unavailable. Purge removes it for good; after
// an error, it may still be there.
type Answers interface {
	Warm(ctx context.Context, key string)
	Purge(ctx context.Context, p degrade.Policy, key, client string) error
}

// Store is the state of this process's connection to Redis.
type Store interface {
	Healthy() bool  // false: a call would fail, or hang
	Writable() bool // false: it can be read, and takes no job
	// Unavailable's channel is closed while the store isn't healthy. After a recovery, a new
	// channel is returned.
	Unavailable() <-chan struct{}
}

// Server answers the public listener. Safe for concurrent use.
type Server struct {
	Config
	cached     map[string]*cacheCounts // by operation
	bodies     web.Bodies
	unread     *unread
	sites      *http.CrossOriginProtection
	metrics    *metrics
	waits      *waits        // the answers that are held back
	warming    chan struct{} // has a value for each answer that is being loaded into memory
	warmed     recently      // jobs whose answers were
	lists      web.Turns
	parsing    chan struct{}                 // has a value for each large body that is being parsed
	beat, life time.Duration                 // web.Heartbeat and web.StreamLife, except in tests
	patience   func(bytes int) time.Duration // web.SlowTime, except in tests

	refusing  atomic.Bool   // set by Refuse
	draining  chan struct{} // closed by Drain
	drainOnce sync.Once
}

// maxWarming bounds the answers that are being loaded into memory at one time. Each load reads the
// job's payload and the answer. Further loads are skipped: a later request will load the answer.
const maxWarming = 16

// New returns a Server. It registers its metrics with those of c.Web.
func New(c Config) *Server {
	s := &Server{
		Config:   c,
		cached:   make(map[string]*cacheCounts, len(c.Admission.Operations)),
		waits:    newWaits(maxHeld),
		warming:  make(chan struct{}, maxWarming),
		parsing:  make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		draining: make(chan struct{}),
		sites:    http.NewCrossOriginProtection(),
		beat:     web.Heartbeat,
		life:     web.StreamLife,
		patience: web.SlowTime,
		unread:   newUnread(unreadBounds(c.MaxBuffered), c.Web.Metrics, c.Web.Log),
	}
	for _, o := range c.Admission.Operations {
		s.cached[o.Name] = &cacheCounts{}
	}
	s.bodies.Max = c.MaxBuffered
	s.metrics = newMetrics(s)
	s.metrics.preset(s)
	return s
}

// Leave begins a shutdown that clients don't notice: from now on /readyz reports not ready, and
// each answer closes its connection, so that clients connect to other processes. Requests are still
// answered.
func (s *Server) Leave() {
	s.Web.Leave()
	s.Admission.StopRefreshing()
}

// Refuse makes the server admit no more jobs, which would wait until the next process starts.
// Requests about jobs and limits are still answered, and so are gateways' checks. It implies Leave.
func (s *Server) Refuse() {
	s.Leave()
	s.refusing.Store(true)
}

// Drain answers the requests that are held back, ends streams, and lets no more be held. It implies
// Leave, and may be called more than once.
func (s *Server) Drain() {
	s.Leave()
	s.drainOnce.Do(func() { close(s.draining) })
}

// Public returns the handler of the public listener.
func (s *Server) Public() http.Handler {
	return web.Router(s.Web, s.begin,
		s.callers("/v1/jobs", methods{"POST": deciding(s.submit), "GET": s.caller(s.listOwn)}),
		s.callers("/v1/jobs/{id}", methods{"GET": s.identified(s.status),
			"DELETE": s.identified(s.remove)}),
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

// callers returns a route for identified callers: the answer to a method that the route doesn't
// have also describes their limits.
func (s *Server) callers(path string, handlers methods) route {
	return route{Path: path, Handlers: handlers, Unhandled: func(c *call) {
		if client, err := s.Identity.Identify(c.R); err == nil {
			c.identify(client)
		}
	}}
}

func livez(c *call) error { return web.Livez(&c.Call) }

// Served returns counts of the stored answers of an operation that the process has served since its
// start. The fields about the store's content are 0.
func (s *Server) Served(operation string) api.CachedOperation {
	n := s.cached[operation]
	if n == nil {
		return api.CachedOperation{}
	}
	return api.CachedOperation{Hits: n.hits.Load(), Stale: n.stale.Load(), Misses: n.misses.Load(),
		ServedBytes: n.bytes.Load()}
}

// AddressOf returns the address by which limits count a request's sender, or "" if it isn't known.
func (s *Server) AddressOf(r *http.Request) string {
	client, _ := s.Identity.Identify(r) // an error still has the address
	return client.Address
}

// lineOf returns the line of a job's backend.
func (s *Server) lineOf(id string) Line {
	backend, _ := jobs.ParseID(id)
	return s.Lines[backend]
}

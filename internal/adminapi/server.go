package adminapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/shadows"
	"github.com/forebay/forebay/internal/web"
	"github.com/forebay/forebay/internal/webhook"
)

// Config has the parts of a Server. It was checked before: every name in it is known.
type Config struct {
	Front Front
	Lines map[string]Line // by backend
	Store Store
	// Operations are the policies by which the answers of each operation are stored, by its name.
	Operations map[string]degrade.Policy

	Stored     Stored     // nil: operators can't look at stored answers
	Deliveries Deliveries // nil: operators can't look at webhooks' deliveries
	Shadows    Shadows    // nil: no books on shadow limits are kept
	Tallies    Tallies    // nil: there is no history
	Events     Events     // nil: no events are kept
	Running    api.RunningConfig
	// Workers counts the worker processes that live; nil: it isn't known.
	Workers func(context.Context) (int, error)

	// Token is the operators'; "": they need none, and the listener must not be reachable from
	// elsewhere.
	Token string
	Web   *web.Server // speaks HTTP, logs, and takes the metrics
	// Audit takes changes that operators make, whatever else is logged; nil: Web's log.
	Audit *slog.Logger
}

// Front is the public server of the same process, as operators see it.
type Front interface {
	// NotReady is why the process should get no requests; nil: it should get them. withStore
	// requires the store too.
	NotReady(withStore bool) error
	// Served counts the stored answers of an operation that the process has served since it began.
	// The fields about the store's content are 0.
	Served(operation string) api.CachedOperation
	// AddressOf is the address that limits count a request's sender under; "": it isn't known.
	AddressOf(r *http.Request) string
}

// Line is one backend's line as operators use it. Each method is atomic.
type Line interface {
	Drain
	Reader
	Changer
}

// Drain is the drain of a line.
type Drain interface {
	Status(context.Context) (leaky.Status, error)
	Retune(context.Context, leaky.Tuning) error
	Dues(context.Context) (leaky.Dues, error)
	CheckBooks(context.Context) (leaky.Report, error)
}

// Reader reads the jobs of a line.
type Reader interface {
	Look(ctx context.Context, id string) (leaky.Look, error)
	Explain(ctx context.Context, id string) (leaky.Explanation, error)
	List(context.Context, leaky.ListFilter) (leaky.Page, error)
	Result(ctx context.Context, id string) ([]byte, error)
}

// Changer changes the jobs of a line.
type Changer interface {
	Cancel(ctx context.Context, id string) (leaky.CancelOutcome, error)
	Redrive(ctx context.Context, id string) (leaky.Outcome, error)
	RedriveAll(ctx context.Context, f leaky.FailedFilter, max int) (leaky.RedriveResult, error)
	PreviewRedrive(ctx context.Context, f leaky.FailedFilter, max int) (leaky.Preview, error)
	RedrivePreviewed(ctx context.Context, token string) (leaky.RedriveResult, error)
	HasPreview(ctx context.Context, token string) (bool, error)
}

// Store is the connection to Redis.
type Store interface {
	Healthy() bool      // false: a call would fail, or hang
	Since() time.Time   // when it last became Healthy, or ceased to be
	Writable() bool     // false: it can be read, and takes no job
	Embedded() bool     // in memory: nothing is kept
	Warnings() []string // problems that an operator should mend
}

// Stored are the stored answers of package cache.
type Stored interface {
	Holding(ctx context.Context, operation string) (cache.Holding, error)
	Inspect(ctx context.Context, key string) (cache.Entry, bool, error)
	Purge(ctx context.Context, f cache.Filter) (removed int, err error)
}

// Shadows are the books on clients that shadow limits would have refused.
type Shadows interface {
	Top(context.Context) ([]shadows.Count, error) // of the last 24 h, the largest counts first
}

// Deliveries are the webhooks' deliveries in a webhook.Outbox.
type Deliveries interface {
	Read(ctx context.Context, id string) (webhook.Delivery, error)
	Redeliver(ctx context.Context, id string) error
	List(ctx context.Context, backend string, state webhook.State, cursor string, limit int) (
		page []webhook.Delivery, next string, err error)
}

// Server answers the admin listener. Safe for concurrent use.
type Server struct {
	Config
	*outlook
	operators   *Operators
	lists       web.Turns
	streams     atomic.Int64
	redriveTime time.Duration // maxRedriveTime, except in tests
	// web.Heartbeat and web.StreamLife, except in tests
	beat, life time.Duration
}

// New returns a Server. It registers its metrics with those of c.Web.
func New(c Config) *Server {
	if c.Audit == nil {
		c.Audit = c.Web.Log
	}
	c.Web.Metrics.MustRegister(&lineCollector{c.Lines})
	return &Server{
		Config:      c,
		outlook:     newOutlook(c),
		operators:   NewOperators(c.Token, c.Front.AddressOf, c.Web.Metrics, c.Web.Log),
		redriveTime: maxRedriveTime,
		beat:        web.Heartbeat,
		life:        web.StreamLife,
	}
}

type (
	handler = web.Handler[*web.Call]
	route   = web.Route[*web.Call]
	methods = map[string]handler
)

// Handler is the handler of the admin listener.
func (s *Server) Handler() http.Handler {
	begin := func() *web.Call { return new(web.Call) }
	return web.Router(s.Web, begin, s.routes()...)
}

// routes are all calls of the admin listener.
func (s *Server) routes() []route {
	return append(s.cacheRoutes(),
		s.route("/admin/v1/backends", methods{"GET": s.listBackends}),
		s.route("/admin/v1/backends/{name}", methods{"GET": s.getBackend, "PATCH": s.tuneBackend}),
		s.route("/admin/v1/backends/{name}/override", methods{"DELETE": s.resetBackend}),
		s.route("/admin/v1/backends/{name}/books", methods{"GET": s.books}),
		s.routeWithQuery("/admin/v1/backends/{name}/forecast", s.forecast),
		s.route("/admin/v1/backends/{name}/redrive", methods{"POST": s.redriveMany}),
		s.routeWithQuery("/admin/v1/jobs", s.listJobs),
		s.route("/admin/v1/jobs/{id}", methods{"GET": s.getAnyJob, "DELETE": s.cancelAnyJob}),
		s.routeWithQuery("/admin/v1/jobs/{id}/explain", s.explain),
		s.route("/admin/v1/jobs/{id}/redrive", methods{"POST": s.redriveJob}),
		s.route("/admin/v1/jobs/{id}/deliveries", methods{"GET": s.deliveriesOf}),
		s.route("/admin/v1/jobs/{id}/redeliver", methods{"POST": s.redeliver}),
		s.routeWithQuery("/admin/v1/deliveries", s.listDeliveries),
		s.routeWithQuery("/admin/v1/shadow-limits", s.shadowLimits),
		s.routeWithQuery("/admin/v1/history", s.history),
		s.routeWithQuery("/admin/v1/events", s.events),
		s.routeWithQuery("/admin/v1/health", s.health),
		s.routeWithQuery("/admin/v1/config", s.config),
		s.route("/admin/v1/openapi.yaml", methods{"GET": s.openAPI}),
		s.routeWithQuery("/metrics", s.showMetrics()),
		route{Path: "/livez", Handlers: methods{"GET": web.Livez}},
		route{Path: "/readyz", Handlers: methods{"GET": s.readyz}},
	)
}

// openAPI answers GET /admin/v1/openapi.yaml.
func (s *Server) openAPI(c *web.Call) error {
	c.Bytes(http.StatusOK, "application/yaml", api.AdminOpenAPI)
	return nil
}

// route is a route for operators, without a query.
func (s *Server) route(path string, handlers methods) route {
	for method, h := range handlers {
		handlers[method] = s.operator(web.NoQuery(h))
	}
	return route{Path: path, Handlers: handlers}
}

// routeWithQuery is a route for operators whose GET takes a query.
func (s *Server) routeWithQuery(path string, get handler) route {
	return route{Path: path, Handlers: methods{"GET": s.operator(get)}}
}

// readyz answers GET /readyz of operators.
func (s *Server) readyz(c *web.Call) error {
	if err := s.Front.NotReady(web.WithStore(c.R)); err != nil {
		return err
	}
	answer := api.Health{Status: "ready", Store: "redis", Warnings: s.Store.Warnings()}
	switch {
	case !s.Store.Healthy():
		answer.Warnings = append(answer.Warnings, "The store is lost: no job can be taken.")
	case s.Store.Embedded():
		answer.Store = "embedded"
	}
	c.W.Header()["Cache-Control"] = web.NoStore
	return c.JSON(http.StatusOK, answer)
}

// listTurn waits until no other list of operators is under way.
func (s *Server) listTurn(c *web.Call) (leave func(), err error) {
	const operators = "" // they share one turn
	leave, err = s.lists.Take(c, operators)
	if p, ok := errors.AsType[*api.Problem](err); ok && s.Web.AnswerLog.AllowN(c.Began, 1) {
		s.Web.Log.LogAttrs(c.Ctx, slog.LevelInfo, "list refused", slog.String("code", p.Code),
			slog.String("reason", p.Reason), slog.String("client", ""),
			slog.String("request_id", c.RequestID))
	}
	return leave, err
}

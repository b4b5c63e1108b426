// Package testforebay gives tests a server with backends and clients over real Redis. Tests only.
package testforebay

import (
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/adminapi"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/web"
)

// World is a whole front path over real Redis: one backend, its line, two clients of tier pro with
// keys, and callers of tier free without, which X-Forwarded-For tells apart. A test drains the line
// by hand.
type World struct {
	testing.TB
	Redis  redis.UniversalClient
	Config Config // of the servers that Serve starts from now on
	Server *httpapi.Server
	// Operators is the server of the admin listener.
	Operators *adminapi.Server
	URL       string // of the public listener
	Admin     string // of the admin listener
	// Client calls the listeners. All of its answers are held against its contract; see Unchecked.
	Client *http.Client
	Line   *leaky.Line
	Finals *leaky.Listener
	Cache  *cache.Cache
	Store  *StoreState
	Logs   *Buffer // of all servers, from level debug

	Backend string
	// Names of operations, of both tiers: Report's stale answers are for each client, Shared's for
	// all, and Plain has none.
	Report, Shared, Plain string
	Inner                 string // as Plain, of tier pro alone
}

// API keys of the two clients.
const (
	KeyA = "fb_test_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1"
	KeyB = "fb_test_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2"
)

// Setup is what a test may change of its World.
type Setup struct {
	Redis   redis.UniversalClient // nil: the test binary's own
	Line    leaky.Settings
	Pro     []limits.Limit // of tier pro
	Free    []limits.Limit // of tier free
	Global  []limits.Limit
	Report  []limits.Limit  // of operation Report
	Cost    admission.Cost  // of every operation
	Grace   admission.Grace // of tier pro
	Legacy  httpapi.LegacyHeaders
	Token   string                                    // the operators'; "": they need none
	Limiter func(admission.Limiter) admission.Limiter // nil: it stays as it is
	Wrap    func(Line) Line                           // nil: the line stays as it is
	// the last to change something; may be nil
	Adjust      func(*World, *Config)
	NoAnonymous bool // callers need a key
}

// Config is what the servers of a World are made of. Its own fields go before those of its parts.
type Config struct {
	Store   Store
	Lines   map[string]Line // by backend
	Answers Answers

	Enter     admission.Config
	Operators adminapi.Config
	httpapi.Config
}

// Store is a connection to Redis as all parts use it.
type Store interface {
	httpapi.Store
	adminapi.Store
}

// Line is a line as all parts use it.
type Line interface {
	httpapi.Line
	adminapi.Line
	admission.Line
}

// Answers are stored answers as all parts use them.
type Answers interface {
	httpapi.Answers
	admission.Answers
}

// Operation is an operation of the config, by name.
func (c *Config) Operation(name string) *admission.Operation {
	i := slices.IndexFunc(c.Enter.Operations,
		func(o admission.Operation) bool { return o.Name == name })
	return &c.Enter.Operations[i]
}

// New starts a World, which ends with its test. Then the books of its backend are checked. adjust
// may be nil.
func New(t testing.TB, adjust func(*Setup)) *World {
	t.Helper()
	w := &World{TB: t, Store: &StoreState{}, Logs: &Buffer{}, Backend: redistest.Name(t, "b"),
		Report: redistest.Name(t, "report"), Shared: redistest.Name(t, "shared"),
		Plain: redistest.Name(t, "plain"), Inner: redistest.Name(t, "inner")}
	su := Setup{Cost: admission.Cost{Fixed: 1}, Line: leaky.Settings{
		Backend:    w.Backend,
		Drain:      leaky.Drain{Rate: MustRate(t, "10/s"), Burst: 1, Concurrency: 10},
		Room:       leaky.Room{Capacity: 1000, MaxWait: time.Hour, ClientShare: 1},
		Attempts:   3,
		Feedback:   true,
		KeepFailed: 7 * 24 * time.Hour,
	}}
	if adjust != nil {
		adjust(&su)
	}
	if w.Redis = su.Redis; w.Redis == nil {
		w.Redis = redistest.Client(t)
	}
	w.Line = leaky.New(w.Redis, su.Line).Limited(limits.Script{})
	w.Cache, w.Finals = cache.New(w.Redis), leaky.Listen(w.Redis, []string{w.Backend})
	t.Cleanup(func() {
		w.Finals.Close()
		redistest.CheckBooks(t, w.Redis, w.Backend)
	})
	w.Config = w.config(su)
	if su.Limiter != nil {
		w.Config.Enter.Limiter = su.Limiter(w.Config.Enter.Limiter)
	}
	if su.Wrap != nil {
		w.Config.Lines[w.Backend] = su.Wrap(w.Line)
	}
	if su.Adjust != nil {
		su.Adjust(w, &w.Config)
	}
	w.Client = &http.Client{
		Transport: contract{t, &http.Transport{MaxIdleConnsPerHost: 64}},
		Timeout:   40 * time.Second,
		CheckRedirect: func(*http.Request,
			[]*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	w.Server, w.Operators = w.Process()
	w.URL, w.Admin = w.listen(w.Server.Public()), w.listen(w.Operators.Handler())
	return w
}

func (w *World) config(su Setup) Config {
	operation := func(name, share string, own []limits.Limit, tiers ...string) admission.Operation {
		o := admission.Operation{Name: name, Backend: w.Backend, Tiers: tiers, Cost: su.Cost,
			Limits: w.Limits("operation", own), Keep: time.Hour, MaxAge: 24 * time.Hour}
		if share != "" {
			o.Overload = degrade.Policy{StaleFor: time.Hour, Share: share,
				Steps: []degrade.Step{{Kind: degrade.Stale}, {Kind: degrade.Reject}}}
		}
		return o
	}
	client := func(name, key string) identity.Registered {
		return identity.Registered{Name: redistest.Name(w, name), Tier: "pro",
			Keys: []identity.Digest{sha256.Sum256([]byte(key))}}
	}
	callers := identity.Config{Anonymous: "free",
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Clients:        []identity.Registered{client("a", KeyA), client("b", KeyB)}}
	if su.NoAnonymous {
		callers.Anonymous = ""
	}
	return Config{
		Store:   w.Store,
		Lines:   map[string]Line{w.Backend: w.Line},
		Answers: degrade.New(w.Cache),
		Enter: admission.Config{
			Rules: admission.Rules{
				Tiers: map[string]admission.Tier{
					"free": {Weight: 1, Limits: w.Limits("free", su.Free)},
					"pro":  {Weight: 2, Limits: w.Limits("pro", su.Pro), Grace: su.Grace},
				},
				Operations: []admission.Operation{
					operation(w.Report, degrade.ShareClient, su.Report),
					operation(w.Shared, degrade.ShareAll, nil),
					operation(w.Plain, "", nil),
					operation(w.Inner, "", nil, "pro"),
				},
				Limits: w.Limits("global", su.Global),
			},
			Parts: admission.Parts{
				Limiter: limits.New(w.Redis, false),
				Secret:  jobs.NewSecret(w.Redis),
			},
			Policy: httpapi.LastingPolicy,
		},
		Config: httpapi.Config{
			Identity: identity.New(callers),
			Finals:   w.Finals,
			Requests: httpapi.Requests{MaxBody: 64 << 10, Legacy: su.Legacy},
		},
		Operators: adminapi.Config{Stored: w.Cache, Token: su.Token},
	}
}

// Process is one more process on the World's Redis.
func (w *World) Process() (*httpapi.Server, *adminapi.Server) {
	w.Helper()
	c := w.Config
	log := slog.New(slog.NewTextHandler(w.Logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	front, enter, operators := c.Config, c.Enter, c.Operators
	front.Web = web.NewServer(prometheus.NewRegistry(), log)
	enter.Metrics, enter.Log, operators.Web = front.Web.Metrics, log, front.Web
	front.Store, enter.Store, operators.Store = c.Store, c.Store, c.Store
	front.Answers, enter.Answers = c.Answers, c.Answers
	front.Lines, enter.Lines = map[string]httpapi.Line{}, map[string]admission.Line{}
	operators.Lines = map[string]adminapi.Line{}
	for name, line := range c.Lines {
		front.Lines[name], enter.Lines[name], operators.Lines[name] = line, line, line
	}
	operators.Operations = map[string]degrade.Policy{}
	for _, o := range enter.Operations {
		operators.Operations[o.Name] = o.Overload
	}
	front.Admission = admission.New(enter)
	s := httpapi.New(front)
	operators.Front = s
	return s, adminapi.New(operators)
}

// Serve starts the listeners of one more process.
func (w *World) Serve() (s *httpapi.Server, public, admin string) {
	w.Helper()
	s, operators := w.Process()
	return s, w.listen(s.Public()), w.listen(operators.Handler())
}

func (w *World) listen(h http.Handler) (url string) {
	server := httptest.NewServer(h)
	w.Cleanup(server.Close)
	return server.URL
}

// Limits are limits of the test's own: the owner is part of their keys in Redis.
func (w *World) Limits(owner string, given []limits.Limit) []admission.Limit {
	w.Helper()
	var out []admission.Limit
	for _, l := range given {
		out = append(out, admission.Limit{Rule: w.Rule(owner, l)})
	}
	return out
}

// Rule is a limit of the test's own, of all requests.
func (w *World) Rule(owner string, l limits.Limit) *limits.Rule {
	w.Helper()
	l.Owner = w.Backend + ":" + owner
	r, err := limits.Compile(l)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// PerClient is a limit of n per window.
func PerClient(name string, n int64, window time.Duration) limits.Limit {
	return limits.Limit{Name: name, Algorithm: limits.SlidingWindowCounter, Per: limits.PerClient,
		Amount: n, Window: window}
}

// ClientA is the id of KeyA's client.
func (w *World) ClientA() string {
	w.Helper()
	r, err := http.NewRequest("GET", w.URL, nil)
	if err != nil {
		w.Fatal(err)
	}
	r.RemoteAddr = "127.0.0.1:1"
	r.Header.Set("X-API-Key", KeyA)
	c, err := w.Config.Identity.Identify(r)
	if err != nil {
		w.Fatal(err)
	}
	return c.ID
}

package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
)

// world is a whole front path over real Redis: one backend, its line, two keyed clients of tier pro, and anonymous ones of tier free, told apart by
// X-Forwarded-For. A test drains the line by hand.
type world struct {
	testing.TB
	rdb     redis.UniversalClient
	config  Config
	server  *Server
	url     string // of the public listener
	admin   string // of the admin listener
	client  *http.Client
	line    *leaky.Line
	finals  *leaky.Listener
	cache   *cache.Cache
	store   *storeState
	log     *lockedBuffer
	backend string
	// Operations of tier free and pro: report has stale answers for its client, shared for all, plain has none; inner is pro's alone.
	report, shared, plain, inner string
}

// Keys of the two clients.
const (
	keyA = "fb_test_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1"
	keyB = "fb_test_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2"
)

// setup is what a test may change of its world.
type setup struct {
	rdb     redis.UniversalClient
	line    leaky.Settings
	pro     []limits.Limit
	free    []limits.Limit
	global  []limits.Limit
	report  []limits.Limit // of operation report
	cost    Cost           // of every operation; zero: 1
	grace   Grace
	legacy  LegacyHeaders
	token   string
	limiter func(Limiter) Limiter
	adjust  func(*world, *Config) // last of all
	wrap    func(Line) Line
	noAnon  bool
}

func newWorld(t testing.TB, adjust func(*setup)) *world {
	t.Helper()
	w := &world{TB: t, store: &storeState{}, log: &lockedBuffer{}, backend: redistest.Name(t, "b"),
		report: redistest.Name(t, "report"), shared: redistest.Name(t, "shared"), plain: redistest.Name(t, "plain"), inner: redistest.Name(t, "inner")}
	rate, err := leaky.ParseRate("10/s")
	if err != nil {
		t.Fatal(err)
	}
	su := setup{cost: Cost{Fixed: 1}, line: leaky.Settings{Backend: w.backend, Rate: rate, Burst: 1, Concurrency: 10, Capacity: 1000,
		MaxWait: time.Hour, ClientShare: 1, Attempts: 3, Feedback: true, KeepFailed: 7 * 24 * time.Hour}}
	if adjust != nil {
		adjust(&su)
	}
	if w.rdb = su.rdb; w.rdb == nil {
		w.rdb = redistest.Client(t)
	}
	w.line, w.cache, w.finals = leaky.New(w.rdb, su.line).Limited(limits.Script{}), cache.New(w.rdb), leaky.Listen(w.rdb, []string{w.backend})
	t.Cleanup(func() {
		w.finals.Close()
		redistest.CheckBooks(t, w.rdb, w.backend)
	})

	operation := func(name, share string, own []limits.Limit, tiers ...string) Operation {
		o := Operation{Name: name, Backend: w.backend, Tiers: tiers, Cost: su.cost, Limits: w.limits("operation", own), Keep: time.Hour, MaxAge: 24 * time.Hour}
		if share != "" {
			o.Overload = degrade.Policy{Steps: []degrade.Step{{Kind: degrade.Stale}, {Kind: degrade.Reject}}, StaleFor: time.Hour, Share: share}
		}
		return o
	}
	anonymous := "free"
	if su.noAnon {
		anonymous = ""
	}
	w.config = Config{
		Identity: identity.New(identity.Config{Anonymous: anonymous,
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			Clients: []identity.Registered{
				{Name: redistest.Name(t, "a"), Tier: "pro", Keys: []identity.Digest{sha256.Sum256([]byte(keyA))}},
				{Name: redistest.Name(t, "b"), Tier: "pro", Keys: []identity.Digest{sha256.Sum256([]byte(keyB))}},
			}}),
		Limiter:  limits.New(w.rdb, false),
		Degrader: degrade.New(w.cache),
		Stored:   w.cache,
		Store:    w.store,
		Secret:   jobs.NewSecret(w.rdb),
		Finals:   w.finals,
		Lines:    map[string]Line{w.backend: w.line},
		Tiers: map[string]Tier{
			"free": {Weight: 1, Limits: w.limits("free", su.free)},
			"pro":  {Weight: 2, Limits: w.limits("pro", su.pro), Grace: su.grace},
		},
		Operations: []Operation{
			operation(w.report, degrade.ShareClient, su.report),
			operation(w.shared, degrade.ShareAll, nil),
			operation(w.plain, "", nil),
			operation(w.inner, "", nil, "pro"),
		},
		Limits:     w.limits("global", su.global),
		MaxBody:    64 << 10,
		Legacy:     su.legacy,
		AdminToken: su.token,
	}
	if su.limiter != nil {
		w.config.Limiter = su.limiter(w.config.Limiter)
	}
	if su.wrap != nil {
		w.config.Lines[w.backend] = su.wrap(w.line)
	}
	if su.adjust != nil {
		su.adjust(w, &w.config)
	}
	w.client = &http.Client{Transport: contract{t, &http.Transport{MaxIdleConnsPerHost: 64}}, Timeout: 40 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	w.server, w.url, w.admin = w.serve()
	return w
}

// serve starts one process's listeners on the world's Redis: a replica of those there are.
func (w *world) serve() (s *Server, public, admin string) {
	w.Helper()
	c := w.config
	c.Metrics, c.Log = prometheus.NewRegistry(), slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s = New(c)
	front, back := httptest.NewServer(s.Public()), httptest.NewServer(s.Admin())
	w.Cleanup(front.Close)
	w.Cleanup(back.Close)
	return s, front.URL, back.URL
}

// limits are those given, made the test's own: the owner is part of their keys in Redis.
func (w *world) limits(owner string, given []limits.Limit) []Limit {
	w.Helper()
	var out []Limit
	for _, l := range given {
		out = append(out, Limit{Rule: w.rule(owner, l)})
	}
	return out
}

func (w *world) rule(owner string, l limits.Limit) *limits.Rule {
	w.Helper()
	l.Owner = w.backend + ":" + owner
	r, err := limits.Compile(l)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// answer is a whole answer.
type answer struct {
	*http.Response
	body []byte
}

// header is one of a request's fields; key is the caller's.
func key(k string) [2]string             { return [2]string{"Authorization", "Bearer " + k} }
func from(ip string) [2]string           { return [2]string{"X-Forwarded-For", ip} }
func idempotent(k string) [2]string      { return [2]string{"Idempotency-Key", k} }
func field(name, value string) [2]string { return [2]string{name, value} }

// call makes one request; a body is sent as JSON.
func (w *world) call(method, url, body string, fields ...[2]string) answer {
	w.Helper()
	a, err := w.try(method, url, body, fields...)
	if err != nil {
		w.Fatal(err)
	}
	return a
}

func (w *world) try(method, url, body string, fields ...[2]string) (answer, error) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, f := range fields {
		if f[0] == "Host" {
			r.Host = f[1]
			continue
		}
		if r.Header.Get(f[0]) != "" && f[0] != "Idempotency-Key" {
			r.Header.Del(f[0])
		}
		r.Header.Add(f[0], f[1])
	}
	res, err := w.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{res, text}, err
}

// submit posts a job with a payload.
func (w *world) submit(operation, payload string, fields ...[2]string) answer {
	w.Helper()
	return w.call("POST", w.url+"/v1/jobs", `{"operation":"`+operation+`","payload":`+payload+`}`, fields...)
}

func (w *world) get(path string, fields ...[2]string) answer {
	w.Helper()
	return w.call("GET", w.url+path, "", fields...)
}

// want checks an answer's status.
func (w *world) want(a answer, status int) answer {
	w.Helper()
	if a.StatusCode != status {
		w.Fatalf("%s %s: %s, want %d\n%v\n%s", a.Request.Method, a.Request.URL, a.Status, status, a.Header, a.body)
	}
	return a
}

// problem checks an answer's status and code.
func (w *world) problem(a answer, status int, code string) api.Problem {
	w.Helper()
	w.want(a, status)
	var p api.Problem
	if err := json.Unmarshal(a.body, &p); err != nil || p.Code != code {
		w.Fatalf("%s %s: code %q, want %q\n%s", a.Request.Method, a.Request.URL, p.Code, code, a.body)
	}
	return p
}

func (w *world) job(a answer) api.Job {
	w.Helper()
	var j api.Job
	if err := json.Unmarshal(a.body, &j); err != nil || j.ID == "" {
		w.Fatalf("no job: %v\n%s", err, a.body)
	}
	return j
}

// start takes the job as a worker would, past all others that wait.
func (w *world) start(id string) leaky.Ticket {
	w.Helper()
	return w.startWith(id, new(leaky.Started))
}

func (w *world) startWith(id string, started *leaky.Started) leaky.Ticket {
	w.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		r, err := w.line.Release(context.Background())
		if err != nil {
			w.Fatal(err)
		}
		for _, ticket := range r.Tickets {
			if ticket.ID != id {
				continue
			}
			if *started, err = w.line.Start(context.Background(), ticket, "test"); err != nil || started.Outcome != leaky.Go {
				w.Fatalf("start: %+v, %v", *started, err)
			}
			return ticket
		}
		time.Sleep(5 * time.Millisecond) // until the next slot
	}
	w.Fatalf("job %s was never released", id)
	return leaky.Ticket{}
}

// settle ends an attempt.
func (w *world) settle(s leaky.Settlement) {
	w.Helper()
	s.Owner = "test"
	verdict, _, err := w.line.Settle(context.Background(), s)
	if err != nil || verdict != leaky.Settled {
		w.Fatalf("settle: %s, %v", verdict, err)
	}
}

// succeed runs the job: the backend answers with these.
func (w *world) succeed(id string, status int, contentType string, body []byte) {
	w.Helper()
	w.settle(leaky.Settlement{Ticket: w.start(id), To: jobs.Succeeded, Took: time.Millisecond,
		Result: jobs.Meta{Status: status, ContentType: contentType, Size: int64(len(body))}, Body: body})
}

// pause stops the drain, so that predictions have no end and nothing moves.
func (w *world) pause() {
	w.Helper()
	yes := true
	if err := w.line.Tune(context.Background(), leaky.Override{Paused: &yes}, "test"); err != nil {
		w.Fatal(err)
	}
}

// count is how many jobs the line has accepted ever.
func (w *world) count() int64 {
	w.Helper()
	st, err := w.line.Status(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	return st.Books.Accepted
}

// eventually waits until what must become true is.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			w.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// lateness watches how late this machine is with everything until the returned function is asked: what a busy one adds to each answer.
func lateness() (worst func() time.Duration) {
	stop, found := make(chan struct{}), make(chan time.Duration)
	go func() {
		const tick = 5 * time.Millisecond
		var late time.Duration
		for {
			began := time.Now()
			select {
			case <-stop:
				found <- late
				return
			case <-time.After(tick):
				late = max(late, time.Since(began)-tick)
			}
		}
	}()
	return func() time.Duration { close(stop); return <-found }
}

// listen serves on a free port until the test ends.
func listen(t *testing.T, s *http.Server) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return "http://" + l.Addr().String()
}

// storeState is a connection's health as a test sets it.
type storeState struct {
	down     atomic.Bool
	full     atomic.Bool
	lost     chan struct{} // nil: it never is
	embedded bool
	warnings []string
}

func (s *storeState) Healthy() bool      { return !s.down.Load() }
func (s *storeState) Writable() bool     { return !s.full.Load() }
func (s *storeState) Embedded() bool     { return s.embedded }
func (s *storeState) Warnings() []string { return s.warnings }

func (s *storeState) Lost() <-chan struct{} { return s.lost }

// lockedBuffer takes logs.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// perClient is a limit of n per window.
func perClient(name string, n int64, window time.Duration) limits.Limit {
	return limits.Limit{Name: name, Algorithm: limits.SlidingWindowCounter, Per: limits.PerClient, Amount: n, Window: window}
}

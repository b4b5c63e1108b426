package chaos

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/redistest"
)

// The processes and the backends.
var (
	workers  = []string{"worker-1", "worker-2", "worker-3"}
	apis     = []string{"api-1", "api-2"}
	backends = []string{"alpha", "beta"}
)

// callTimeout is the config's bound of one call: shorter than a lease.
const callTimeout = 2 * time.Second

const configText = `
redis: {url: "${REDIS_URL}"}
shutdown: 1s
shutdown_delay: 0s
identity:
  clients:
%s
tiers:
  gold:
    weight: 3
    limits:
      - {name: steady, algorithm: token-bucket, limit: 6000, window: 1m, burst: 200}
      - {name: jobs, algorithm: concurrency, limit: 80}
  plain:
    limits:
      - {name: per-minute, algorithm: sliding-window-counter, limit: 3000, window: 1m}
      - {name: jobs, algorithm: concurrency, limit: 60}
backends:
  alpha:
    url: ${ALPHA}
    drain: {rate: 25/s, burst: 1, concurrency: 20}
    line: {capacity: 200, max_wait: 1m}
    timeout: 2s
    retry: {attempts: 4, base: 200ms, cap: 2s}
    max_age: 2m
    headers: {Chaos-Worker: "${PROCESS}"}
  beta:
    url: ${BETA}
    drain: {rate: 8/s, burst: 3, concurrency: 4}
    line: {capacity: 80, max_wait: 1m, client_share: 0.5}
    timeout: 2s
    retry: {attempts: 6, base: 100ms, cap: 1s}
    max_age: 2m
    headers: {Chaos-Worker: "${PROCESS}"}
operations:
  a: {backend: alpha, path: /a, on_overload: [reject], keep_result: 1h}
  b: {backend: beta, path: /b, on_overload: [reject], keep_result: 1h}
`

// configured holds the drain settings of the config.
var configured = map[string]setting{
	"alpha": {rate: 25, burst: 1, concurrency: 20},
	"beta":  {rate: 8, burst: 3, concurrency: 4},
}

// world is everything that runs.
type world struct {
	t      *witness
	seed   uint64
	began  time.Time
	config string
	env    []string // of all processes
	redis  *redistest.Server
	rdb    redis.UniversalClient // without a proxy
	http   *http.Client
	sites  map[string]*site
	backs  map[string]*fragile
	drains map[string]*ledger // the tuned settings of each backend
	stalls *stalls
	crowd  *crowd
	asked  atomic.Int64 // changes of settings so far, sent to the apis in turn

	mu      sync.Mutex
	strikes []strike // guarded by mu: strikes against processes and Redis
}

// strike is a time in which a process could not work.
type strike struct {
	process  string // everyProcess: Redis itself was struck
	kind     string
	from, to time.Time // to: zero while it lasts
}

const everyProcess = ""

func newWorld(t *witness, seed uint64) *world {
	w := &world{
		t: t, seed: seed, config: filepath.Join(t.TempDir(), "forebay.yaml"),
		redis: redistest.Start(t),
		http: &http.Client{Timeout: 4 * time.Second, Transport: &http.Transport{
			MaxIdleConnsPerHost: 32, IdleConnTimeout: 2 * time.Second,
		}},
		sites: map[string]*site{}, backs: map[string]*fragile{}, drains: map[string]*ledger{},
		// The race detector would keep every process for a second at its exit.
		env: []string{"GORACE=atexit_sleep_ms=20 exitcode=66"},
	}
	t.Cleanup(w.http.CloseIdleConnections)
	w.rdb = w.redis.Client(t)
	config := strings.TrimLeft(fmt.Sprintf(configText, clientsText()), "\n")
	if err := os.WriteFile(w.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range backends {
		w.backs[name] = newFragile(name, seed)
		t.Cleanup(w.backs[name].server.Close)
		w.env = append(w.env, strings.ToUpper(name)+"="+w.backs[name].server.URL)
	}
	t.Cleanup(w.end) // before Redis, the proxies and the backends end
	var all sync.WaitGroup
	for _, name := range slices.Concat(apis, workers) {
		s := &site{w: w, name: name, proxy: redistest.StartProxy(t, w.redis.Addr)}
		w.sites[name] = s
		all.Go(s.start)
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	w.began = time.Now()
	for _, name := range backends {
		w.drains[name] = newLedger(configured[name], w.began)
	}
	w.stalls = watchStalls()
	w.crowd = newCrowd(w)
	return w
}

// strike records that a process is struck from now on, until end is called.
func (w *world) strike(process, kind string) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := len(w.strikes)
	w.strikes = append(w.strikes, strike{process: process, kind: kind, from: time.Now()})
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.strikes[i].to = time.Now()
	}
}

// struck reports whether a process, or Redis, was struck between two moments.
func (w *world) struck(process string, from, to time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.strikes, func(s strike) bool {
		return (s.process == process || s.process == everyProcess) && !s.from.After(to) &&
			(s.to.IsZero() || !s.to.Before(from))
	})
}

// since formats a moment as the time since the start, like the schedule.
func (w *world) since(at time.Time) string {
	return fmt.Sprintf("%.3fs", at.Sub(w.began).Seconds())
}

// play runs all events, while clients come and go.
func (w *world) play(events []event, span time.Duration) {
	byLane := map[string][]event{}
	for _, e := range events {
		byLane[e.lane] = append(byLane[e.lane], e)
	}
	w.crowd.come()
	var all sync.WaitGroup
	for name, events := range byLane {
		all.Go(func() {
			for _, e := range events {
				time.Sleep(time.Until(w.began.Add(e.at)))
				w.t.Logf("%s does %s", w.since(time.Now()), e)
				w.do(name, e)
			}
		})
	}
	all.Wait()
	time.Sleep(time.Until(w.began.Add(span))) // the run lasts for the whole span
	w.crowd.leave()
}

// do applies one event and undoes it after its time.
func (w *world) do(lane string, e event) {
	if s := w.sites[lane]; s != nil {
		s.do(e)
		return
	}
	if b := w.backs[lane]; b != nil {
		part := e.size
		if part == 0 {
			part = 1
		}
		b.feel(e.kind, part)
		time.Sleep(e.lasts)
		b.feel("well", 1)
		return
	}
	if backend, ok := strings.CutSuffix(lane, " tune"); ok {
		w.tune(backend, e)
		return
	}
	switch e.kind { // lane redis
	case "kill":
		end := w.strike(everyProcess, "redis killed")
		defer end()
		w.redis.Kill()
		time.Sleep(e.lasts)
		w.redis.Restart()
	case "freeze":
		end := w.strike(everyProcess, "redis frozen")
		defer end()
		w.redis.Stop()
		time.Sleep(e.lasts)
		w.redis.Cont()
	case "forget scripts":
		if err := w.rdb.ScriptFlush(w.t.Context()).Err(); err != nil {
			w.t.Errorf("SCRIPT FLUSH: %v", err)
		}
	}
}

func (s *site) do(e event) {
	switch e.kind {
	case "kill":
		s.kill()
		time.Sleep(e.lasts)
		s.start()
	case "stop":
		s.stop()
		s.start()
	case "freeze":
		s.freeze(e.lasts)
	case "cut":
		s.partition(s.proxy.Cut, 0)
	case "hang":
		s.partition(s.proxy.Hang, e.lasts)
	case "refuse":
		s.partition(s.proxy.Refuse, e.lasts)
	}
}

// end kills the running processes, by pid, and inspects the output of each.
func (w *world) end() {
	for _, name := range slices.Concat(apis, workers) {
		s := w.sites[name]
		if s == nil {
			continue
		}
		for i, p := range s.all {
			p.inspect(w.t, i == len(s.all)-1)
			p.over = true
			p.cmd.Process.Kill()
			<-p.gone
		}
	}
	if !w.t.Failed() {
		return
	}
	w.logs()
}

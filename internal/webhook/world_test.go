package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/webhook"
)

// patience is far longer than anything here takes, so that no test fails on a machine under load.
const patience = 60 * time.Second

// book has the URLs and secrets of clients.
type book map[string]struct {
	url     string
	secrets []webhook.Secret
}

func (b book) Callback(client string) (string, []webhook.Secret) {
	return b[client].url, b[client].secrets
}

// live is a book that can change.
type live struct {
	mu  sync.Mutex
	now book
}

func (l *live) Callback(client string) (string, []webhook.Secret) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now.Callback(client)
}

func (l *live) set(client string, secrets ...webhook.Secret) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now[client] = struct {
		url     string
		secrets []webhook.Secret
	}{"", secrets}
}

// world is a Redis with an outbox, the jobs whose ends are in it, and clients. Each test has a
// Redis of its own, because the senders on one Redis share the work.
type world struct {
	*testing.T
	rdb     redis.UniversalClient
	server  *redistest.Server
	outbox  *webhook.Outbox
	backend string
	clients *live
	log     *lockedBuffer

	mu   sync.Mutex
	ends map[string]webhook.End // by job id
	errs map[string]error
}

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

const keyText = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, server: redistest.Start(t), backend: "reports", clients: &live{now: book{}},
		log: &lockedBuffer{}, ends: map[string]webhook.End{}, errs: map[string]error{}}
	w.rdb = w.server.Client(t)
	w.outbox = webhook.NewOutbox(w.rdb)
	w.clients.set("acme", secret(t, keyText))
	t.Cleanup(w.checkKeys)
	return w
}

// End implements webhook.Jobs.
func (w *world) End(_ context.Context, id string) (webhook.End, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	end, ok := w.ends[id]
	if err := w.errs[id]; err != nil {
		return webhook.End{}, err
	}
	if !ok {
		return webhook.End{}, webhook.ErrGone
	}
	return end, nil
}

func (w *world) say(id string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs[id] = err
}

// end ends a new job of acme with the callback url, as the line's script does.
func (w *world) end(url string) (id string) {
	w.Helper()
	id = jobs.NewID(w.backend)
	w.endAgain(id, url, "job.succeeded")
	return id
}

func (w *world) endAgain(id, url, event string) {
	w.Helper()
	now := time.Now()
	w.mu.Lock()
	w.ends[id] = webhook.End{Client: "acme", URL: url, FinishedAt: now,
		ExpiresAt: now.Add(time.Hour), Type: event,
		Event: fmt.Appendf(nil, `{"type":%q,"data":{"job_id":%q}}`, event, id)}
	w.mu.Unlock()
	pipe := w.rdb.TxPipeline()
	pipe.ZAdd(w.Context(), jobs.KeyPrefix(w.backend)+"callbacks",
		redis.Z{Score: float64(now.UnixMicro()), Member: id})
	pipe.Publish(w.Context(), jobs.KeyPrefix(w.backend)+"callback", "")
	if _, err := pipe.Exec(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// sender is one process that delivers.
type sender struct {
	*webhook.Sender
	metrics *prometheus.Registry
	stop    func() error // like a signal; waits for the end
}

// anywhere lets webhooks go to the receivers of tests.
func anywhere(schedule ...time.Duration) webhook.Policy {
	return webhook.Policy{HTTP: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Ports: anyPort, Timeout: 30 * time.Second, Schedule: schedule}
}

// anyPort has all ports: the receivers of tests listen on any free port.
var anyPort = func() (all []int) {
	for port := range 65535 {
		all = append(all, port+1)
	}
	return all
}()

func (w *world) start(p webhook.Policy, adjust ...func(*webhook.Sender)) sender {
	w.Helper()
	log := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := sender{metrics: prometheus.NewRegistry()}
	rdb := w.server.Client(w.T)
	s.Sender = webhook.New(webhook.Config{Redis: rdb, Transport: jobs.NewDeliveries(rdb, log),
		Backends: []string{w.backend}, Jobs: w,
		Clients: w.clients, Policy: p, Grace: 200 * time.Millisecond, Metrics: s.metrics, Log: log})
	for _, f := range adjust {
		f(s.Sender)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	w.Cleanup(func() {
		if err := s.stop(); err != nil {
			w.Error(err)
		}
	})
	return s
}

// attempts returns the sender's count of attempts with an outcome.
func (s sender) attempts(t *testing.T, outcome string) (n float64) {
	t.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "forebay_webhook_attempts_total" &&
				m.GetLabel()[0].GetValue() == outcome {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no counter of %s", outcome)
	return 0
}

// await waits until a delivery is as required.
func (w *world) await(id, what string, right func(webhook.Delivery) bool) webhook.Delivery {
	w.Helper()
	var last webhook.Delivery
	w.until(what, func() bool {
		d, err := w.outbox.Read(w.Context(), id)
		if err != nil && err != webhook.ErrNone {
			w.Fatal(err)
		}
		last = d
		return err == nil && right(d)
	}, func() string { return fmt.Sprintf("%+v", last) })
	return last
}

func (w *world) awaitState(id string, want webhook.State) webhook.Delivery {
	w.Helper()
	return w.await(id, "it is "+string(want), func(d webhook.Delivery) bool {
		return d.State == want
	})
}

func (w *world) until(what string, right func() bool, last ...func() string) {
	w.Helper()
	for deadline := time.Now().Add(patience); !right(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			text := ""
			for _, f := range last {
				text += f()
			}
			w.Fatalf("not within %v: %s; %s\n%s", patience, what, text, w.log)
		}
	}
}

// checkKeys checks that all keys of webhooks have a TTL, except the outbox.
func (w *world) checkKeys() {
	ctx := context.WithoutCancel(w.Context())
	for it := w.rdb.Scan(ctx, 0, "fb:*", 1000).Iterator(); it.Next(ctx); {
		if ttl := w.rdb.TTL(ctx, it.Val()).Val(); ttl == -1 &&
			!strings.HasSuffix(it.Val(), ":callbacks") {
			w.Errorf("key %s has no TTL", it.Val())
		}
	}
}

// receiver is a client's service. It records its requests.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got []got
}

type got struct {
	header http.Header
	body   []byte
	at     time.Time
}

// receive starts a receiver. answer is called for each request, with its number from 1; nil: 204 to
// each.
func (w *world) receive(answer func(n int, rw http.ResponseWriter, r *http.Request)) *receiver {
	w.Helper()
	rc := &receiver{}
	rc.Server = httptest.NewServer(rc.handler(answer))
	w.Cleanup(rc.Close)
	return rc
}

func (rc *receiver) handler(
	answer func(n int, rw http.ResponseWriter, r *http.Request),
) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		rc.mu.Lock()
		rc.got = append(rc.got, got{r.Header.Clone(), body, time.Now()})
		n := len(rc.got)
		rc.mu.Unlock()
		if answer == nil {
			rw.WriteHeader(http.StatusNoContent)
			return
		}
		answer(n, rw, r)
	}
}

func (rc *receiver) requests() []got {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return append([]got(nil), rc.got...)
}

// statuses answers with each status in turn, and then with the last one.
func statuses(list ...int) func(int, http.ResponseWriter, *http.Request) {
	return func(n int, rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(list[min(n, len(list))-1])
	}
}

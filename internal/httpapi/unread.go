package httpapi

import (
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/web"
)

// smallAnswer is the size up to which answers aren't counted: net/http has a buffer of that size
// for each connection anyway, and connections are bounded.
const smallAnswer = 4 << 10

// everyone is the name under which all unread bytes count. It is neither an id nor a network.
const everyone = "/"

// unreadBounds returns the bounds in force if all clients together may leave all bytes unread; 0:
// no bound. An address and its network get a larger part of them than of held answers, since one
// answer may be large.
func unreadBounds(all int64) heldBounds {
	n := int(all)
	return heldBounds{all: n, client: n / 4, anonymous: n / 2, address: n / 16, network: n / 8}
}

// The names of the bounds on unread bytes, in metrics and logs.
const (
	boundAll    = "all"
	boundClient = "client" // also of an address, of its network and of all callers without a key
)

// unread counts the memory of answers that their clients haven't read yet. If a bound counts
// nothing unread, one answer of any size fits under it, so that every answer can be read at some
// time. Safe for concurrent use.
type unread struct {
	bounds  heldBounds // of bytes; all 0: none
	log     *slog.Logger
	warned  rate.Sometimes
	refused *prometheus.CounterVec // bound

	mu sync.Mutex
	// Guarded by mu; none at 0. bytes is by the names of heldBounds.of, and everyone.
	bytes   map[string]int
	readers map[unreadBy]int
}

// unreadBy is a body that is counted under a name. All answers made of one body count its bytes
// once.
type unreadBy struct {
	name string
	body *byte
}

func newUnread(b heldBounds, metrics prometheus.Registerer, log *slog.Logger) *unread {
	u := &unread{bounds: b, log: log, warned: rate.Sometimes{Interval: time.Second},
		bytes: map[string]int{}, readers: map[unreadBy]int{},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forebay_answers_refused_total",
			Help: "Answers that were refused since too many bytes were unread, " +
				"of all clients or of one.",
		}, []string{"bound"})}
	for _, bound := range []string{boundAll, boundClient} {
		u.refused.WithLabelValues(bound)
	}
	metrics.MustRegister(u.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "forebay_http_unread_bytes",
		Help: "Memory that is reserved for answers until they are read; " +
			"http.max_buffered bounds it.",
	}, func() float64 { return float64(u.under(everyone)) }))
	return u
}

// under returns how many bytes are unread under a name.
func (u *unread) under(name string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.bytes[name]
}

// reserve reserves the room for an answer of n bytes to a client. body is the memory of the answer
// if other answers may share it; otherwise nil. free must be called once the answer is read. If
// there is no room, the error is the client's answer: 503 if all clients together take the room,
// otherwise 429.
func (u *unread) reserve(client identity.Client, body []byte, n int) (free func(), err error) {
	first := unsafe.SliceData(body)
	if first == nil {
		first = new(byte) // no other answer has it
	}
	names, most := u.bounds.of(client)
	names, most = append(names, everyone), append(most, u.bounds.all)
	if full, ok := u.take(names, most, first, n); !ok {
		return nil, u.refuse(full)
	}
	return func() { u.give(names, first, n) }, nil
}

// take adds an answer, or returns the first name under which there is no room for it.
func (u *unread) take(names []string, most []int, body *byte, n int) (full string, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, name := range names {
		held := u.bytes[name]
		if u.bounds.all > 0 && held > 0 && held+n > most[i] &&
			u.readers[unreadBy{name, body}] == 0 {
			return name, false
		}
	}
	for _, name := range names {
		if u.readers[unreadBy{name, body}]++; u.readers[unreadBy{name, body}] == 1 {
			u.bytes[name] += n
		}
	}
	return "", true
}

// give removes an answer.
func (u *unread) give(names []string, body *byte, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range names {
		if u.readers[unreadBy{name, body}]--; u.readers[unreadBy{name, body}] > 0 {
			continue
		}
		delete(u.readers, unreadBy{name, body})
		if u.bytes[name] -= n; u.bytes[name] == 0 {
			delete(u.bytes, name)
		}
	}
}

// refuse counts and logs a refusal, and returns its answer.
func (u *unread) refuse(full string) *api.Problem {
	bound, p := boundClient, web.Problem(http.StatusTooManyRequests, api.CodeTooManyAnswers,
		"Too many answers are still to be read: by you, by your network, "+
			"or by all callers without a key. Read them first.")
	if full == everyone {
		bound, p = boundAll, web.Problem(http.StatusServiceUnavailable, api.CodeTooManyAnswers,
			"The service has as many answers that are still to be read as it has memory for. "+
				"Try again.")
	}
	u.refused.WithLabelValues(bound).Inc()
	u.warned.Do(func() {
		u.log.Warn("a bound on unread answers is reached",
			"bound", bound, "bytes", u.under(everyone), "max", u.bounds.all)
	})
	// Most answers are read faster. Clients that were refused together return at different times.
	p.RetryAfter = 1 + rand.IntN(3)
	return p
}

package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// backend is the fragile service behind Forebay. It answers as its story says, and records every
// call.
type backend struct {
	addr string

	mu      sync.Mutex
	server  *http.Server // guarded by mu; nil while down
	latency time.Duration
	bears   int      // calls within any second; beyond that it answers 503. 0: any number
	next    []answer // for the next calls, one each
	always  answer   // for all other calls
	calls   []*call
}

// answer is one scripted answer.
type answer struct {
	status int
	header http.Header
	body   []byte
	drop   bool // no answer: the connection breaks
}

// call is one request that the backend got.
type call struct {
	path   string
	header http.Header
	body   []byte
	begun  time.Time

	// Guarded by the backend's mu.
	ended   time.Time // zero while it runs
	aborted bool      // the caller closed the connection before the answer
	status  int       // of the answer
}

// job returns the id of the call's job.
func (c *call) job() string { return c.header.Get("Forebay-Job-Id") }

// maxBody bounds the bytes that the backend reads of a request.
const maxBody = 8 << 20

func newBackend() (*backend, error) {
	b := &backend{always: answer{status: http.StatusOK, body: []byte(`{"ok":true}`),
		header: http.Header{"Content-Type": {"application/json"}}}}
	listener, err := listenLow()
	if err != nil {
		return nil, err
	}
	b.addr = listener.Addr().String()
	b.serve(listener)
	return b, nil
}

// listenLow listens at a port below the range of outgoing connections, so that no connection takes
// the port of a backend that is down.
func listenLow() (net.Listener, error) {
	var err error
	for range 20 {
		var listener net.Listener
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(23000+rand.IntN(8000)))
		if listener, err = net.Listen("tcp", addr); err == nil {
			return listener, nil
		}
	}
	return nil, err
}

func (b *backend) url() string { return "http://" + b.addr }

// up makes the backend reachable again.
func (b *backend) up() error {
	listener, err := net.Listen("tcp", b.addr)
	if err != nil {
		return err
	}
	b.serve(listener)
	return nil
}

func (b *backend) serve(listener net.Listener) {
	server := &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second}
	b.mu.Lock()
	b.server = server
	b.mu.Unlock()
	go server.Serve(listener) // it ends with down
}

// down breaks all its connections and refuses new ones.
func (b *backend) down() {
	b.mu.Lock()
	server := b.server
	b.server = nil
	b.mu.Unlock()
	if server != nil {
		server.Close()
	}
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{path: r.URL.Path, header: r.Header.Clone(), begun: time.Now()}
	var err error
	if c.body, err = io.ReadAll(io.LimitReader(r.Body, maxBody)); err != nil {
		http.Error(w, "unreadable", http.StatusBadRequest)
		return
	}
	a, latency := b.take(c)
	select {
	case <-time.After(latency):
	case <-r.Context().Done(): // the caller has left
	}
	aborted := r.Context().Err() != nil
	b.mu.Lock()
	c.ended, c.aborted, c.status = time.Now(), aborted, a.status
	b.mu.Unlock()
	if aborted {
		return
	}
	if a.drop {
		panic(http.ErrAbortHandler)
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	if len(a.header.Values("Content-Type")) == 0 {
		w.Header()["Content-Type"] = nil // otherwise net/http would guess one
	}
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// take records a call and chooses its answer.
func (b *backend) take(c *call) (answer, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	recent := 0
	for i := len(b.calls) - 1; i >= 0 && c.begun.Sub(b.calls[i].begun) < time.Second; i-- {
		recent++
	}
	b.calls = append(b.calls, c)
	if b.bears > 0 && recent >= b.bears {
		return answer{status: http.StatusServiceUnavailable, body: []byte("overloaded")}, 0
	}
	if len(b.next) > 0 {
		a := b.next[0]
		b.next = b.next[1:]
		return a, b.latency
	}
	// /status/404 answers 404, for stories where the order of calls isn't known.
	if text, ok := strings.CutPrefix(c.path, "/status/"); ok {
		if status, err := strconv.Atoi(text); err == nil {
			return answer{status: status, header: http.Header{"Content-Type": {"text/plain"}},
				body: fmt.Appendf(nil, "answer %d", status)}, b.latency
		}
	}
	return b.always, b.latency
}

// log returns copies of the calls for which keep returns true, in order of their start.
func (b *backend) log(keep func(call) bool) []call {
	b.mu.Lock()
	defer b.mu.Unlock()
	var calls []call
	for _, c := range b.calls {
		if keep(*c) {
			calls = append(calls, *c)
		}
	}
	return calls
}

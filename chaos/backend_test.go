package chaos

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// fragile is a backend. It behaves by its mood, and records every call.
type fragile struct {
	name   string
	server *httptest.Server

	mu    sync.Mutex
	rng   *rand.Rand // guarded by mu
	mood  string     // guarded by mu: how it treats a part of the calls
	part  float64    // guarded by mu
	calls []*call    // guarded by mu, with their fields
}

// call is one request that the backend got.
type call struct {
	job, worker string // worker: the process that made the call
	body        []byte
	at, ended   time.Time // ended: zero while it runs
	fate        string    // the answer's status, or one of the fates below
	answer      []byte
}

// Fates of calls without a status.
const (
	aborted = "aborted" // by its caller, before the answer
	broken  = "broken"  // by the backend: reset, or torn within the answer
)

// maxCall bounds the bytes that the backend reads of a request.
const maxCall = 1 << 20

func newFragile(name string, seed uint64) *fragile {
	f := &fragile{name: name, rng: rand.New(rand.NewPCG(seed, hash("backend "+name))), mood: "well"}
	f.server = httptest.NewServer(f)
	return f
}

func (f *fragile) feel(mood string, part float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mood, f.part = mood, part
}

// take records a call and draws its fate.
func (f *fragile) take(at time.Time, r *http.Request) (c *call, mood string, after time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c = &call{at: at, job: r.Header.Get("Forebay-Job-Id"), worker: r.Header.Get("Chaos-Worker")}
	c.answer = fmt.Appendf(nil, `{"job":%q,"call":%d}`, c.job, len(f.calls))
	f.calls = append(f.calls, c)
	after = time.Duration(f.rng.Int64N(int64(100 * time.Millisecond)))
	if f.rng.IntN(8) == 0 { // so that workers are struck during calls
		after += time.Duration(f.rng.Int64N(int64(time.Second)))
	}
	if f.rng.Float64() < f.part {
		mood = f.mood
	}
	if mood == "slow" {
		after += between(f.rng, 300*time.Millisecond, callTimeout-300*time.Millisecond)
	}
	return c, mood, after
}

func (f *fragile) end(c *call, fate string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.ended, c.fate = time.Now(), fate
}

func (f *fragile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, mood, after := f.take(time.Now(), r)
	body, err := io.ReadAll(io.LimitReader(r.Body, maxCall))
	f.mu.Lock()
	c.body = body
	f.mu.Unlock()
	if err != nil { // the caller died while sending
		f.end(c, aborted)
		return
	}
	if mood == "silence" {
		after = time.Hour
	}
	select {
	case <-time.After(after):
	case <-r.Context().Done():
		f.end(c, aborted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch mood {
	case "500":
		f.end(c, "500")
		w.WriteHeader(http.StatusInternalServerError)
	case "429", "503", "429 wait", "503 wait":
		f.end(c, mood[:3])
		if len(mood) > 3 {
			w.Header().Set("Retry-After", "1")
		}
		status := http.StatusTooManyRequests
		if mood[:3] == "503" {
			status = http.StatusServiceUnavailable
		}
		w.WriteHeader(status)
	case "break":
		f.end(c, broken)
		reset(w)
	case "torn":
		f.end(c, broken)
		w.Header().Set("Content-Length", fmt.Sprint(len(c.answer)))
		w.Write(c.answer[:len(c.answer)/2])
		panic(http.ErrAbortHandler)
	default:
		f.end(c, "200")
		w.Write(c.answer)
	}
}

// reset makes the caller see "connection reset by peer".
func reset(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// log returns copies of all calls, in order of arrival.
func (f *fragile) log() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := make([]call, len(f.calls))
	for i, c := range f.calls {
		calls[i] = *c
		calls[i].body = bytes.Clone(c.body)
	}
	return calls
}

// Command backend is a backend that records when each call arrives.
//
//	POST /job    answers at once with 200; the arrival and the job's id are noted
//	GET /calls   returns the number of noted calls
//	GET /log     returns all of them: [{"at":<Unix µs>,"job":"<id>"}, ...] in order of arrival
//	DELETE /log  forgets them
//
// An arrival is the time at the handler's first line, on the monotonic clock, so that a step of the
// host's clock shows no gap.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

type call struct {
	At  int64  `json:"at"`
	Job string `json:"job"`
}

type recorder struct {
	began time.Time

	mu    sync.Mutex
	calls []call // guarded by mu
}

func main() {
	listen := flag.String("listen", "127.0.0.1:9000", "address to listen on")
	flag.Parse()
	r := &recorder{began: time.Now()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /job", r.job)
	mux.HandleFunc("GET /calls", r.count)
	mux.HandleFunc("GET /log", r.log)
	mux.HandleFunc("DELETE /log", r.forget)
	if err := http.ListenAndServe(*listen, mux); err != nil {
		fmt.Fprintln(os.Stderr, "backend:", err)
		os.Exit(1)
	}
}

func (r *recorder) job(w http.ResponseWriter, req *http.Request) {
	at := r.began.UnixMicro() + time.Since(r.began).Microseconds()
	r.mu.Lock()
	r.calls = append(r.calls, call{At: at, Job: req.Header.Get("Forebay-Job-Id")})
	r.mu.Unlock()
	_, _ = io.Copy(io.Discard, req.Body) // so that the connection can be kept
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"ok":true}`)
}

func (r *recorder) count(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(w, len(r.calls))
}

func (r *recorder) log(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	calls := append([]call{}, r.calls...)
	r.mu.Unlock()
	_ = json.NewEncoder(w).Encode(calls) // the client sees the error as well
}

func (r *recorder) forget(http.ResponseWriter, *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = nil
}

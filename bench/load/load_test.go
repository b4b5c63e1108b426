package load

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// serve starts a server and returns its address.
func serve(t testing.TB, h http.HandlerFunc) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestEachAnswerIsCountedOnceOnOneConnectionEach(t *testing.T) {
	t.Parallel()
	var served, opened atomic.Int64
	count := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != "body" || r.Method != "POST" || r.URL.Path != "/p" ||
			r.Header.Get("X-Field") != "v" {
			t.Errorf("request %s %s %v %q %v", r.Method, r.URL, r.Header, body, err)
		}
		served.Add(1)
		w.WriteHeader(http.StatusAccepted)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(count))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	addr := server.Listener.Addr().String()
	target := Target{Addr: addr, Status: 202,
		Requests: [][]byte{Request("POST", addr, "/p", []byte("body"), "X-Field: v")}}
	r, err := Run(t.Context(), target, Plan{Conns: 7, Count: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if r.Answers != 1000 || served.Load() != 1000 || opened.Load() != 7 ||
		len(r.Latencies) != 1000 {
		t.Errorf("%d counted, %d served, %d connections, %d latencies; want 1000, 1000, 7, 1000",
			r.Answers, served.Load(), opened.Load(), len(r.Latencies))
	}
	if !slices.IsSorted(r.Latencies) || r.Latencies[0] <= 0 || r.Latencies[999] > r.Elapsed ||
		r.PerSecond() <= 0 {
		t.Errorf("latencies %v to %v in %v, %v/s",
			r.Latencies[0], r.Latencies[999], r.Elapsed, r.PerSecond())
	}
}

func TestTheWarmUpIsNeitherCountedNorChecked(t *testing.T) {
	t.Parallel()
	const warmup = 200 * time.Millisecond
	began := time.Now()
	addr := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if time.Since(began) < warmup/2 {
			w.WriteHeader(http.StatusTeapot)
		}
		time.Sleep(10 * time.Millisecond)
	})
	target := Target{Addr: addr, Status: 200, Requests: [][]byte{Request("GET", addr, "/", nil)}}
	r, err := Run(t.Context(), target,
		Plan{Conns: 1, Warmup: warmup, Duration: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Answers < 1 || r.Answers > 11 || r.Elapsed != 100*time.Millisecond {
		t.Errorf("%d answers in %v, want at most 11 in 100ms", r.Answers, r.Elapsed)
	}
}

func TestConnectionsTakeTurnsAtTheRequests(t *testing.T) {
	t.Parallel()
	var a, b atomic.Int64
	addr := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			a.Add(1)
		} else {
			b.Add(1)
		}
	})
	target := Target{Addr: addr, Status: 200,
		Requests: [][]byte{Request("GET", addr, "/a", nil), Request("GET", addr, "/b", nil)}}
	if _, err := Run(t.Context(), target,
		Plan{Conns: 2, Duration: 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if a.Load() == 0 || b.Load() == 0 {
		t.Errorf("%d of one, %d of the other", a.Load(), b.Load())
	}
}

func TestAnUnexpectedAnswerEndsTheRunAndIsShown(t *testing.T) {
	t.Parallel()
	addr := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "out of order", 500)
	})
	target := Target{Addr: addr, Status: 200, Requests: [][]byte{Request("GET", addr, "/", nil)}}
	_, err := Run(t.Context(), target, Plan{Conns: 2, Duration: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "answer 500, want 200: out of order") {
		t.Errorf("error %v", err)
	}
}

func TestAHungServerDoesntOutliveTheContext(t *testing.T) {
	t.Parallel()
	addr := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	target := Target{Addr: addr, Status: 200, Requests: [][]byte{Request("GET", addr, "/", nil)}}
	if _, err := Run(ctx, target,
		Plan{Conns: 2, Duration: time.Minute}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestLongAndChunkedAnswersAreReadWhole(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 10_000)
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "100000")
		}
		_, _ = io.WriteString(w, long)
	})
	for _, path := range []string{"/length", "/chunked"} {
		target := Target{Addr: addr, Status: 200,
			Requests: [][]byte{Request("GET", addr, path, nil)}}
		if r, err := Run(t.Context(), target, Plan{Conns: 2, Count: 20}); err != nil ||
			r.Answers != 20 {
			t.Errorf("%s: %d answers, %v", path, r.Answers, err)
		}
	}
}

func TestParseTakesWholeAnswersAndRefusesOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		data, body string
		status     int
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "hi", 200},
		{"HTTP/1.1 202 Accepted\r\nX: y\r\ncontent-length:  2 \r\n\r\nhi", "hi", 202},
		{"HTTP/1.1 204 No Content\r\nDate: x\r\n\r\n", "", 204},
		{"HTTP/1.1 304 Not Modified\r\n\r\n", "", 304},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
			"2\r\nhi", 200},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", 200},
	} {
		status, body, size, err := parse([]byte(c.data))
		if status != c.status || string(body) != c.body || size != len(c.data) || err != nil {
			t.Errorf("%q: %d %q %d %v", c.data, status, body, size, err)
		}
		for cut := range len(c.data) {
			if _, _, size, err := parse([]byte(c.data[:cut])); size != 0 || err != nil {
				t.Errorf("%q: size %d, %v; want 0: there is more to come", c.data[:cut], size, err)
			}
		}
	}
	for _, bad := range []string{
		"HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.1 xxx\r\n\r\n", "HTTP/1.1 2\r\n\r\n", "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
	} {
		if _, _, _, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

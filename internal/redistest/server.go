package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Server is a redis-server of a test's own, on a port of the loopback. It keeps its data over Kill
// and Restart. Its methods are safe for concurrent use, and fail the test if they can't do their
// work.
type Server struct {
	Addr string // host:port; the same after a Restart

	t    testing.TB
	dir  string
	args []string

	mu  sync.Mutex
	now *process // guarded by mu; nil while killed
}

// Start starts a server that ends with t. args are redis-server's own and override the defaults
// (append-only file, no snapshots): Start(t, "--maxmemory-policy", "volatile-lru").
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir(), args: args}
	err := onFreePort(func(port int) (err error) {
		s.Addr = loopback(port)
		s.now, err = start(s.dir, s.Addr, s.arguments(port)...)
		return err
	})
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(s.Kill)
	return s
}

// arguments returns the server's arguments. With "appendfsync no", every write is in the kernel's
// hands before its reply is sent, so a killed server keeps all of them. "everysec" may hold a write
// back for two seconds.
func (s *Server) arguments(port int) []string {
	return append([]string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port),
		"--save", "", "--appendonly", "yes", "--appendfsync", "no",
	}, s.args...)
}

// Ports lie below the range of outgoing connections (from 32768 on Linux), so that no connection
// takes the port of a killed server by chance. A cluster's bus uses the port 10,000 above.
const (
	lowPort  = 12000
	highPort = 22000
	busStep  = 10000
)

// freePort returns a port that is free now, and whose port for the cluster bus is free too.
func freePort() (int, error) {
	for range 100 {
		port := lowPort + rand.IntN(highPort-lowPort)
		if free(port) && free(port+busStep) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d", lowPort, highPort)
}

// onFreePort calls listen with free ports, at most 8, until one is still free when listen binds it.
func onFreePort(listen func(port int) error) error {
	var last error
	for range 8 {
		port, err := freePort()
		if err != nil {
			return err
		}
		last = listen(port)
		if !errors.Is(last, errTaken) && !errors.Is(last, syscall.EADDRINUSE) {
			return last
		}
	}
	return last
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func free(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// URL returns the server's URL, in the form of the service's config.
func (s *Server) URL() string { return "redis://" + s.Addr + "/0" }

// Client returns a client that is closed when t ends. It never retries a command.
func (s *Server) Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	return newClient(t, s.Addr)
}

// PID returns the process's id; 0 while the server is killed.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil {
		return 0
	}
	return s.now.pid()
}

// Kill ends the server with SIGKILL. All that it has acknowledged is on disk. Killing a dead server
// does nothing.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil {
		s.now.kill()
		s.now = nil
	}
}

// Restart starts the server again at the same address, with its data. A running server is killed
// first.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.mu.Lock()
	defer s.mu.Unlock()
	_, port, err := net.SplitHostPort(s.Addr)
	if err == nil {
		var n int
		if n, err = strconv.Atoi(port); err == nil {
			s.now, err = start(s.dir, s.Addr, s.arguments(n)...)
		}
	}
	if err != nil {
		s.t.Errorf("redistest: restart: %v", err)
	}
}

// Stop halts the process (SIGSTOP): connections stay open and nothing answers, as with a hung
// Redis.
func (s *Server) Stop() { s.t.Helper(); s.signal(Freeze) }

// Cont resumes a stopped process.
func (s *Server) Cont() {
	s.t.Helper()
	s.signal(func(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) })
}

func (s *Server) signal(send func(pid int) error) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil {
		s.t.Error("redistest: a signal to a server that is killed")
		return
	}
	if err := send(s.now.pid()); err != nil {
		s.t.Errorf("redistest: signal: %v", err)
	}
}

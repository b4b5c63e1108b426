package conns_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forebay/forebay/internal/conns"
)

const patience = 20 * time.Second

// site is a server behind a Listener. A request for /hold is answered once hold is closed.
type site struct {
	t       *testing.T
	l       *conns.Listener
	server  *http.Server
	metrics *prometheus.Registry
	log     *strings.Builder
	hold    chan struct{}
	rests   chan struct{} // gets one when the listener knows that a connection is idle
}

func open(t *testing.T, b conns.Bounds) *site {
	s := &site{t: t, metrics: prometheus.NewRegistry(), log: &strings.Builder{},
		hold: make(chan struct{}), rests: make(chan struct{}, 1000)}
	var err error
	log := slog.New(slog.NewTextHandler(s.log, nil))
	if s.l, err = conns.Listen("public", "127.0.0.1:0", b, s.metrics, log); err != nil {
		t.Fatal(err)
	}
	serve := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-s.hold
		}
	}
	state := func(c net.Conn, state http.ConnState) {
		s.l.ConnState(c, state)
		if state == http.StateIdle {
			select {
			case s.rests <- struct{}{}:
			default: // nobody waits for so many
			}
		}
	}
	s.server = &http.Server{ConnState: state, Handler: http.HandlerFunc(serve)}
	go s.server.Serve(s.l)
	t.Cleanup(func() { s.server.Close() })
	return s
}

func (s *site) dial() net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.l.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// ask sends a request and reads the head of its answer. An answer other than 200 is an error.
func ask(c net.Conn, path string) error {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		return err
	}
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil && a.StatusCode != 200 {
		err = errors.New(a.Status)
	}
	return err
}

func closed(c net.Conn) bool {
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}

func (s *site) want(metric string, n int) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		families, err := s.metrics.Gather()
		if err != nil {
			s.t.Fatal(err)
		}
		got := 0.0
		for _, f := range families {
			for _, m := range f.Metric {
				if f.GetName() == metric {
					got += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
		if got == float64(n) {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s is %v, want %d", metric, got, n)
		}
	}
}

func TestIdleConnectionsMakeRoomAndBusyOnesDont(t *testing.T) {
	t.Parallel()
	s := open(t, conns.Bounds{All: 3, Address: 3})
	silent, kept, busy := s.dial(), s.dial(), s.dial()
	for c, path := range map[net.Conn]string{kept: "/", busy: "/hold"} {
		if err := ask(c, path); err != nil {
			t.Fatal(err)
		}
	}
	s.want("forebay_connections", 3)
	<-s.rests // an answer arrives before the listener knows that its connection is idle
	// Each has been silent for longest: since it was opened, or since its last answer.
	for _, victim := range []net.Conn{silent, kept} {
		c := s.dial()
		if err := ask(c, "/hold"); err != nil {
			t.Fatal(err)
		}
		if !closed(victim) {
			t.Fatal("an idle connection made no room")
		}
	}
	if !closed(s.dial()) {
		t.Error("a connection beyond the bound stays open")
	}
	s.want("forebay_connections_closed_total", 3)
	s.want("forebay_connections", 3)
	if n := strings.Count(s.log.String(), "a bound on connections is reached"); n < 1 || n > 2 {
		t.Errorf("%d lines:\n%s", n, s.log)
	}
	close(s.hold)
	busy.Close()
	s.want("forebay_connections", 2)
	if err := ask(s.dial(), "/"); err != nil {
		t.Errorf("a connection after one was closed: %v", err)
	}
	if problems, err := testutil.GatherAndLint(s.metrics); err != nil || len(problems) > 0 {
		t.Error(err, problems)
	}
}

func TestTheBoundOfAnAddressDoesNotHoldForProxies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		proxies []netip.Prefix
		want    int
	}{
		"a client": {nil, 2},
		"a proxy":  {[]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, conns.Bounds{All: 4, Address: 2, Proxies: c.proxies})
			defer close(s.hold)
			for range c.want {
				if err := ask(s.dial(), "/hold"); err != nil {
					t.Fatal(err)
				}
			}
			if !closed(s.dial()) {
				t.Error("a connection beyond the bound stays open")
			}
			s.want("forebay_connections", c.want)
		})
	}
}

// N43: clients that keep connecting until the port is closed are refused in the end. None of their
// connections is reset before.
func TestAListenerIsClosedWithoutAReset(t *testing.T) {
	t.Parallel()
	for range 3 {
		s := open(t, conns.Bounds{All: 1000, Address: 1000})
		s.server.SetKeepAlivesEnabled(false)
		var clients sync.WaitGroup
		var asked atomic.Int64
		for range 16 {
			clients.Go(func() {
				for {
					c, err := net.Dial("tcp", s.l.Addr().String())
					if errors.Is(err, syscall.ECONNREFUSED) {
						return
					}
					if err == nil {
						c.SetDeadline(time.Now().Add(patience))
						err = ask(c, "/")
						c.Close()
					}
					if err != nil {
						t.Errorf("a client saw: %v", err)
						return
					}
					asked.Add(1)
				}
			})
		}
		for asked.Load() < 100 {
			time.Sleep(time.Millisecond)
		}
		s.l.Quiet()
		for s.l.AtWork() {
			time.Sleep(time.Millisecond)
		}
		if err := s.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		clients.Wait()
	}
}

package store_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forebay/forebay/internal/redistest"
)

// loader stands in front of a Redis. While loads is set, it answers each command as a Redis does
// while it loads its data after a start.
type loader struct {
	net.Listener
	loads  atomic.Bool
	target string
}

func (l *loader) serve() {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go l.answer(conn)
	}
}

func (l *loader) answer(conn net.Conn) {
	defer conn.Close()
	if !l.loads.Load() {
		redis, err := net.Dial("tcp", l.target)
		if err != nil {
			return
		}
		defer redis.Close()
		go io.Copy(redis, conn)
		io.Copy(conn, redis)
		return
	}
	in := bufio.NewReader(conn)
	for l.loads.Load() {
		head, err := in.ReadString('\n') // *<words>, then a length and a text for each
		words, bad := strconv.Atoi(strings.Trim(head, "*\r\n"))
		if err != nil || bad != nil {
			return
		}
		for range 2 * words {
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
		}
		if _, err := io.WriteString(conn,
			"-LOADING Redis is loading the dataset in memory\r\n"); err != nil {
			return
		}
	}
}

// A Redis that loads its data after a restart answers, but can't be used. The store is unhealthy
// and gives the reason. It is healthy again once Redis has loaded.
func TestALoadingRedisIsUnhealthyUntilItHasLoaded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &loader{Listener: listener, target: server.Addr}
	t.Cleanup(func() { l.Close() })
	go l.serve()
	s, log := connected(t, "redis://"+l.Addr().String()+"/0")
	l.loads.Store(true)
	server.Kill() // connections made before still lead to Redis
	server.Restart()
	within(t, promised, "unhealthy while Redis loads", func() bool {
		return strings.Contains(s.Reason(), "LOADING")
	})
	if s.Client().Set(t.Context(), "k", "v", 0).Err() == nil {
		t.Error("a Redis that loads takes a write")
	}
	l.loads.Store(false)
	within(t, promised, "healthy once Redis has loaded", s.Healthy)
	if err := s.Client().Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
	if n := len(log.lines("redis: not healthy")); n != 1 {
		t.Errorf("%d lines on one outage", n)
	}
}

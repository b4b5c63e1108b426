package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/testforebay"
)

// These tests run alone: they count what the whole process has.

// watches counts the watches that have not ended.
type watches struct {
	httpapi.Finals
	open atomic.Int64
}

func (f *watches) Watch(ids ...string) (<-chan struct{}, func()) {
	f.open.Add(1)
	moved, forget := f.Finals.Watch(ids...)
	return moved, sync.OnceFunc(func() {
		f.open.Add(-1)
		forget()
	})
}

// wire is a bare connection: a client that costs its test little.
func (w *world) wire(id string, fields ...string) (net.Conn, *bufio.Reader) {
	w.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		w.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(time.Minute))
	lines := append([]string{"GET /v1/jobs/" + id + " HTTP/1.1", "Host: forebay",
		"Authorization: Bearer " + keyA}, fields...)
	if _, err := conn.Write([]byte(strings.Join(lines, "\r\n") + "\r\n\r\n")); err != nil {
		w.Fatal(err)
	}
	return conn, bufio.NewReaderSize(conn, 512)
}

// hears reads until a line begins so.
func (w *world) hears(r *bufio.Reader, begin string) {
	w.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			w.Fatalf("no %q: %v", begin, err)
		}
		if strings.HasPrefix(line, begin) {
			return
		}
	}
}

func TestAClientThatDisappearsLeavesNothingBehind(t *testing.T) {
	var seen *watches
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(_ *testforebay.World, c *testforebay.Config) {
			seen = &watches{Finals: c.Finals}
			c.Finals = seen
		}
	})
	w.Pause()
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	w.Client.CloseIdleConnections()
	before := goleak.IgnoreCurrent()
	const each = 20
	var conns []net.Conn
	for range each {
		conn, r := w.wire(id, "Accept: text/event-stream")
		w.hears(r, "event: status")
		waits, _ := w.wire(id, "Prefer: wait=30")
		conns = append(conns, conn, waits)
	}
	w.held(httpapi.HeldWait, each)
	w.held(httpapi.HeldStream, each)
	w.Eventually("all watch", func() bool { return seen.open.Load() == 2*each })
	for i, conn := range conns {
		if i%2 == 0 {
			conn.(*net.TCPConn).SetLinger(0) // a reset, as of one that crashed
		}
		conn.Close()
	}
	w.held(httpapi.HeldWait, 0)
	w.held(httpapi.HeldStream, 0)
	w.Eventually("nobody watches", func() bool { return seen.open.Load() == 0 })
	goleak.VerifyNone(t, before)
}

// Issue 5: 2,000 clients that wait on one process cost under 100 MB, and Redis nothing while
// nothing happens.
func TestACrowdThatWaitsCostsLittle(t *testing.T) {
	server := redistest.Start(t)
	w := newWorld(t, func(s *setup) { s.Redis = server.Client(t) })
	w.Pause()
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	}
	const crowd = 2000
	before := memory()
	readers := make([]*bufio.Reader, crowd)
	for i := range readers {
		conn, r := w.wire(ids[i%len(ids)], "Accept: text/event-stream")
		defer conn.Close()
		w.hears(r, "event: status")
		readers[i] = r
	}
	w.held(httpapi.HeldStream, crowd)
	if used := memory() - before; used > 100<<20 { // the clients' ends included
		t.Errorf("%d MiB for %d streams", used>>20, crowd)
	} else {
		t.Logf("%d KiB a stream", used/crowd>>10)
	}

	calls := w.commands()
	window := time.NewTimer(4 * time.Second)
	<-window.C
	if n := w.commands() - calls; n > 10 { // a ping each 3 s, and what counts
		t.Errorf("%d commands in 4 s in which nothing happened", n)
	}
	for n := range ids {
		var a answer
		// the crowd that learns of the ones before takes its time
		w.Eventually("it is canceled", func() bool {
			a = w.Call("DELETE", w.URL+"/v1/jobs/"+ids[n], "", key(keyA))
			return a.StatusCode != http.StatusServiceUnavailable
		})
		w.Want(a, 200)
	}
	for _, r := range readers {
		w.hears(r, "event: done")
	}
	w.held(httpapi.HeldStream, 0)
}

// memory is what the process uses now for what lives: heap and stacks.
func memory() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// commands is how many commands Redis has run but for those that ask.
func (w *world) commands() (n int64) {
	w.Helper()
	info, err := w.Redis.InfoMap(context.Background(), "commandstats").Result()
	if err != nil {
		w.Fatal(err)
	}
	for name, text := range info["Commandstats"] {
		var calls int64
		if _, err := fmt.Sscanf(text, "calls=%d", &calls); err == nil && name != "cmdstat_info" {
			n += calls
		}
	}
	return n
}

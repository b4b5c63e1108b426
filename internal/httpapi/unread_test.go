package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/testforebay"
	"github.com/forebay/forebay/internal/web"
)

// reader is a client that reads as slowly as its test wants: its receive buffer is small, and
// nothing reads ahead.
type reader struct {
	*http.Response
	conn net.Conn
}

// reader makes a request of a server, and reads no more than the answer's header.
func (w *world) reader(method, address, body string, fields ...[2]string) reader {
	w.Helper()
	r, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, f := range fields {
		r.Header.Set(f[0], f[1])
	}
	at, _ := url.Parse(address)
	conn, err := net.Dial("tcp", at.Host)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		w.Fatal(err)
	}
	if err := r.Write(conn); err != nil {
		w.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	a, err := http.ReadResponse(bufio.NewReaderSize(conn, 1<<10), r)
	if err != nil {
		w.Fatal(err)
	}
	return reader{a, conn}
}

// rest reads the rest of an answer, and returns its length and sum.
func (r reader) rest() (n int64, sum [sha256.Size]byte, err error) {
	h := sha256.New()
	n, err = io.Copy(h, r.Body)
	return n, [sha256.Size]byte(h.Sum(nil)), err
}

// large is more than the kernel's buffers take of an answer to a reader: Linux has up to 4 MiB.
const large = 16 << 20

// result has a job of a caller succeed with a body, and returns the path of its result.
func (w *world) result(body []byte, fields ...[2]string) string {
	w.Helper()
	id := w.Job(w.Want(w.Submit(w.Plain, `1`, fields...), http.StatusAccepted)).ID
	w.Succeed(id, http.StatusOK, "application/octet-stream", body)
	return "/v1/jobs/" + id + "/result"
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A slow reader of a large result takes the memory of one piece of it. The test isn't parallel: it
// measures the heap of the whole process.
func TestSlowReadersOfALargeResultTakeLittleMemory(t *testing.T) {
	w := newWorld(t, nil)
	body := noise(large, 1)
	sum := sha256.Sum256(body)
	path := w.result(body, key(keyA))
	body = nil
	const readers = 100
	var all []reader
	before := heap()
	for range readers {
		var r reader
		// on a busy machine Redis is late with so much
		w.Eventually("the answer begins", func() bool {
			r = w.reader("GET", w.URL+path, "", key(keyA))
			return r.StatusCode != http.StatusServiceUnavailable
		})
		if r.StatusCode != http.StatusOK || r.ContentLength != large {
			t.Fatalf("%s, %d bytes", r.Status, r.ContentLength)
		}
		all = append(all, r)
	}
	grown := heap() - before
	t.Logf("%d readers take %d KiB of heap", readers, grown>>10)
	if grown > 64<<20 {
		t.Errorf("%d slow readers of %d MiB take %d MiB of heap", readers, large>>20, grown>>20)
	}
	if held := w.Server.UnreadBytes(); held != readers*httpapi.Piece {
		t.Errorf("%d bytes are counted as unread", held)
	}
	if n, got, err := all[0].rest(); err != nil || n != large || got != sum {
		t.Errorf("a slow reader got %d bytes, %v; the right ones: %v", n, err, got == sum)
	}
	for _, r := range all {
		r.conn.Close()
	}
	w.Eventually("nothing is unread", func() bool { return w.Server.UnreadBytes() == 0 })
}

// A result is the backend's bytes and fields, of whatever length.
func TestAResultOfAnyLengthIsWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, n := range []int{0, 1, httpapi.SmallAnswer + 1, httpapi.Piece - 1, httpapi.Piece,
		httpapi.Piece + 1, 2 * httpapi.Piece, 5*httpapi.Piece + 7} {
		body := noise(n, 2)
		id := w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)).ID
		w.succeedWith(id, "image/png", "Etag: \"7\"\n", string(body))
		path := "/v1/jobs/" + id + "/result"
		a := w.Want(w.Get(path, key(keyA)), http.StatusOK)
		head := w.Want(w.Call("HEAD", w.URL+path, "", key(keyA)), http.StatusOK)
		for _, got := range []answer{a, head} {
			w.says(got, map[string]string{"Content-Type": "image/png", "ETag": `"7"`,
				"X-Content-Type-Options": "nosniff"})
			if got.ContentLength != int64(n) {
				t.Errorf("%d bytes: Content-Length is %d", n, got.ContentLength)
			}
		}
		if !bytes.Equal(a.Text, body) {
			t.Errorf("%d bytes: got %d others", n, len(a.Text))
		}
		if err := w.Redis.Del(context.Background(),
			jobs.ResultKey(w.Backend, id)).Err(); err != nil {
			t.Fatal(err)
		}
		w.Problem(w.Get(path, key(keyA)), http.StatusGone, api.CodeResultGone)
	}
	if held := w.Server.UnreadBytes(); held != 0 {
		t.Errorf("%d bytes are counted as unread", held)
	}
}

// A result that goes while it is read isn't taken for a whole one: not where it is purged, nor
// where its time is over and the same Idempotency-Key has made a job with another result.
func TestAResultThatGoesWhileItIsReadIsCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operation(w.Plain).Keep = 2 * time.Second
		}
	})
	again := idempotent("again")
	path := w.result(noise(large, 3), key(keyA), again)
	id := strings.Split(path, "/")[3]
	r := w.reader("GET", w.URL+path, "", key(keyA))
	w.Eventually("the key makes another job", func() bool {
		a := w.Submit(w.Plain, `1`, key(keyA), again)
		return a.StatusCode == http.StatusAccepted && w.Job(a).ID == id
	})
	w.Succeed(id, http.StatusOK, "application/octet-stream", noise(large, 4))
	if n, _, err := r.rest(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of a result whose time was over: %d bytes, %v", n, err)
	}

	path = w.result(noise(large, 5), key(keyA))
	r = w.reader("GET", w.URL+path, "", key(keyA))
	purge := w.URL + strings.TrimSuffix(path, "/result") + "?purge=1"
	w.Want(w.Call("DELETE", purge, "", key(keyA)), http.StatusNoContent)
	if n, _, err := r.rest(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of a purged result: %d bytes, %v", n, err)
	}
	w.Eventually("both are counted", func() bool {
		return w.Metric(`forebay_results_cut_total{reason="gone"}`) == "2"
	})
}

// shaky is a line of which pieces of results can't be had for some calls.
type shaky struct {
	testforebay.Line
	fails *atomic.Int64 // calls to come that fail
}

func (s shaky) ResultPart(ctx context.Context, id string, from, n int64) ([]byte, error) {
	if from > 0 && s.fails.Add(-1) >= 0 {
		return nil, errors.New("the store fails")
	}
	return s.Line.ResultPart(ctx, id, from, n)
}

func TestAResultIsWholeWhereTheStoreFailsForAMoment(t *testing.T) {
	t.Parallel()
	var fails atomic.Int64
	w := newWorld(t, func(s *setup) {
		s.Wrap = func(l testforebay.Line) testforebay.Line { return shaky{l, &fails} }
	})
	body := noise(3*httpapi.Piece, 6)
	path := w.result(body, key(keyA))
	fails.Store(3)
	a := w.Want(w.Get(path, key(keyA)), http.StatusOK)
	if !bytes.Equal(a.Text, body) || fails.Load() > 0 {
		t.Errorf("%d of %d bytes, and %d failures to come", len(a.Text), len(body), fails.Load())
	}
}

// A reader that takes longer than a piece may is cut, and one that goes on reading is not, however
// long the whole takes.
func TestAReaderIsCutByItsPace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	body := noise(large, 7)
	sum := sha256.Sum256(body)
	path := w.result(body, key(keyA))
	const listener = 200 * time.Millisecond
	server := func(patience time.Duration) (string, *httpapi.Server) {
		s, _ := w.Process()
		s.SetPatience(patience)
		h := web.NewHTTPServer(s.Public(), s.Web.Log)
		h.WriteTimeout = listener
		return listen(t, h), s
	}
	patient, _ := server(time.Minute)
	r := w.reader("GET", patient+path, "", key(keyA))
	time.Sleep(2 * listener) // the listener's time is over
	if n, got, err := r.rest(); err != nil || got != sum {
		t.Errorf("a reader in its time got %d bytes, %v", n, err)
	}
	short, s := server(listener)
	r = w.reader("GET", short+path, "", key(keyA))
	w.Eventually("it is cut", func() bool { return s.UnreadBytes() == 0 })
	if n, _, err := r.rest(); err == nil {
		t.Errorf("a reader beyond its time got %d bytes", n)
	}
	if got := web.SlowTime(httpapi.Piece); got != 69*time.Second { // 64 KiB at 1 KiB/s, and 5 s
		t.Errorf("the slowest reader has %v for a piece", got)
	}
}

// Unread bytes are bounded of one client and of all.
func TestUnreadBytesAreBounded(t *testing.T) {
	t.Parallel()
	t.Run("pieces", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, nil)
		w.Server.QuarterUnread(httpapi.Piece)
		// A job without a key is the bearer's of its id.
		one, two := from("192.0.2.1"), from("192.0.2.2")
		path := w.result(noise(large, 8), one)
		get := func(caller [2]string) reader { return w.reader("GET", w.URL+path, "", caller) }
		w.bounded(get, func(caller [2]string) answer { return w.Get(path, caller) })

		// The same room is for other answers that are in memory whole.
		first := get(one)
		id := w.Job(w.Want(w.Submit(w.Plain, `1`, one), http.StatusAccepted)).ID
		w.FailJob(id, jobs.CodeBackendStatus, 500, "", noise(2*httpapi.SmallAnswer, 9))
		failed := "/v1/jobs/" + id + "/result"
		w.Problem(w.Get(failed, one), http.StatusTooManyRequests, api.CodeTooManyAnswers)
		w.Problem(w.Get(failed, two), http.StatusFailedDependency, jobs.CodeBackendStatus)
		// A client that waited for a result without room learns where it is.
		id = w.Job(w.Want(w.Submit(w.Plain, `1`, one, idempotent("k")), http.StatusAccepted)).ID
		w.Succeed(id, http.StatusOK, "text/plain", noise(2*httpapi.SmallAnswer, 9))
		wait := field("Prefer", "wait=5")
		a := w.Want(w.Submit(w.Plain, `1`, one, idempotent("k"), wait), http.StatusOK)
		if w.Job(a).ID != id || a.Header.Get("Content-Location") != "/v1/jobs/"+id {
			t.Errorf("%v %s", a.Header, a.Text)
		}
		first.conn.Close()
		w.Eventually("it is read", func() bool { return w.Server.UnreadBytes() == 0 })
		a = w.Want(w.Submit(w.Plain, `1`, one, idempotent("k"), wait), http.StatusOK)
		if len(a.Text) != 2*httpapi.SmallAnswer ||
			a.Header.Get("Content-Location") != "/v1/jobs/"+id+"/result" {
			t.Errorf("%v, %d bytes", a.Header, len(a.Text))
		}
	})
	t.Run("stored answers", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, func(s *setup) {
			s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
				c.Operation(w.Shared).Overload.FreshFor = time.Hour
			}
		})
		const n = 5 << 20 // as little as doesn't fit: each is read from Redis within a second
		w.Server.QuarterUnread(n)
		w.Remember(w.Shared, "", `1`, cache.Answer{Status: 200, Body: noise(n, 10)})
		request := `{"operation":"` + w.Shared + `","payload":1}`
		jobs := w.URL + "/v1/jobs"
		w.bounded(func(caller [2]string) reader { return w.reader("POST", jobs, request, caller) },
			func(caller [2]string) answer { return w.Call("POST", jobs, request, caller) })
		labels := `{decision="rejected",operation="` + w.Shared + `",reason="too_many_answers"}`
		if got := w.Metric("forebay_admission_decisions_total" + labels); got != "2" {
			t.Errorf("%s rejected", got)
		}
		if n := w.Accepted(); n != 0 {
			t.Errorf("%d jobs instead of a stored answer", n)
		}
	})
}

// bounded holds answers against their quarters.
func (w *world) bounded(slow func(caller [2]string) reader, ask func(caller [2]string) answer) {
	w.Helper()
	addresses := []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"}
	var readers []reader
	for _, address := range addresses {
		w.Eventually("an answer is on its way", func() bool { // Redis may be too slow for it once
			r := slow(from(address))
			readers = append(readers, r)
			return r.StatusCode == http.StatusOK
		})
	}
	refused := func(address string, status int) (a answer) {
		w.Helper()
		w.Eventually("it is decided on", func() bool {
			a = ask(from(address))
			return !strings.Contains(string(a.Text), api.CodeStore)
		})
		w.Problem(a, status, api.CodeTooManyAnswers)
		return a
	}
	one := refused(addresses[0], http.StatusTooManyRequests)
	all := refused("192.0.2.5", http.StatusServiceUnavailable)
	for _, a := range []answer{one, all} {
		if after := a.Header.Get("Retry-After"); after == "" || after > "3" {
			w.Errorf("Retry-After: %q", after)
		}
	}
	for _, bound := range []string{httpapi.BoundClient, httpapi.BoundAll} {
		if got := w.Metric(`forebay_answers_refused_total{bound="` + bound + `"}`); got != "1" {
			w.Errorf("%s were refused by the bound on %s", got, bound)
		}
	}
	if !strings.Contains(w.Logs.String(), "a bound on unread answers is reached") {
		w.Error("the log doesn't tell")
	}
	for _, r := range readers {
		r.conn.Close()
	}
	w.Eventually("nothing is unread", func() bool { return w.Server.UnreadBytes() == 0 })
	w.Eventually("there is room",
		func() bool { return ask(from("192.0.2.5")).StatusCode == http.StatusOK })
}

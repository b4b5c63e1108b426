package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
)

// call makes one call to a backend that answers with h.
func call(t *testing.T, h http.HandlerFunc, change func(*operation)) (answer, error) {
	t.Helper()
	backend := httptest.NewServer(h)
	t.Cleanup(backend.Close)
	c := newCaller(nil)
	t.Cleanup(c.close)
	op := testOperation(t, backend.URL)
	if change != nil {
		change(&op)
	}
	return c.do(t.Context(), op, jobs.Job{ID: "reports-1", Payload: []byte(`{}`)}, 1)
}

// raw makes one call to a backend that answers with these bytes and closes the connection.
func raw(t *testing.T, text string) (answer, error) {
	t.Helper()
	return call(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		io.WriteString(conn, text)
		conn.Close()
	}, nil)
}

func testOperation(t *testing.T, base string) operation {
	t.Helper()
	u, err := target(base, "/render")
	if err != nil {
		t.Fatal(err)
	}
	return operation{method: "POST", url: u, maxResult: 1 << 20}
}

func TestTheBackendGetsThePayloadAndKnowsTheJob(t *testing.T) {
	t.Parallel()
	type got struct {
		*http.Request
		body string
	}
	seen := make(chan got, 1)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- got{r, string(body)}
	}))
	t.Cleanup(backend.Close)
	u, err := target(backend.URL+"/v2/", "/render?size=a4")
	if err != nil {
		t.Fatal(err)
	}
	c := newCaller(http.Header{"authorization": {"Bearer secret"},
		"Content-Type": {"application/vnd.report+json"}, "Host": {"reports.example"},
		"Idempotency-Key": {"mine"}})
	t.Cleanup(c.close)
	job := jobs.Job{ID: jobs.NewID("reports"),
		Payload:     []byte(`{"n": 616581622363398142, "x": 1.10}`),
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	if _, err := c.do(t.Context(), operation{method: "PUT", url: u, maxResult: 10}, job,
		3); err != nil {
		t.Fatal(err)
	}
	r := <-seen
	if r.Method != "PUT" || r.RequestURI != "/v2/render?size=a4" || r.Host != "reports.example" {
		t.Errorf("%s %s at host %s", r.Method, r.RequestURI, r.Host)
	}
	// Byte for byte, numbers too.
	if r.body != string(job.Payload) || r.ContentLength != int64(len(job.Payload)) {
		t.Errorf("body %q, length %d", r.body, r.ContentLength)
	}
	for name, want := range map[string]string{
		"Content-Type":    "application/vnd.report+json",
		"Authorization":   "Bearer secret",
		"Idempotency-Key": `"` + job.ID + `"`,
		"Forebay-Job-Id":  job.ID,
		"Forebay-Attempt": "3",
		"Accept-Encoding": "identity",
		"User-Agent":      "forebay",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := r.Header.Get("Traceparent"); !strings.HasPrefix(got, job.Traceparent[:36]) ||
		got == job.Traceparent {
		t.Errorf("traceparent %q", got)
	}
}

func TestAJobWithoutATraceOrPayloadIsCalledWithoutThem(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if len(body) > 0 || r.Header.Get("Traceparent") != "" ||
			r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("body %q, headers %v", body, r.Header)
		}
	}))
	t.Cleanup(backend.Close)
	c := newCaller(nil)
	t.Cleanup(c.close)
	if _, err := c.do(t.Context(), testOperation(t, backend.URL),
		jobs.Job{ID: "reports-1", Traceparent: "bad"}, 1); err != nil {
		t.Fatal(err)
	}
}

// Case C95: Any bytes are kept as they came, even if they claim to be compressed.
func TestTheAnswersBytesAreKeptAsTheyCame(t *testing.T) {
	t.Parallel()
	for _, body := range [][]byte{
		{0xff, 0xfe}, {}, []byte("\x89PNG\r\n\x1a\n"), []byte("{not json"), {0x1f, 0x8b, 8, 0, 0},
		bytes.Repeat([]byte{0}, 100_000),
	} {
		a, err := call(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "image/png")
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(body)
		}, nil)
		if err != nil || !a.Whole || !bytes.Equal(a.Body, body) || a.ContentType != "image/png" ||
			a.Status != 200 {
			t.Errorf("%d bytes came back as %d, %q, status %d, %v", len(body), len(a.Body),
				a.ContentType, a.Status, err)
		}
	}
}

// An answer over the bound takes no more memory than the bound, whether or not its length is
// announced.
func TestAnAnswerOverTheBoundIsNotRead(t *testing.T) {
	t.Parallel()
	for _, announced := range []bool{true, false} {
		for size, tooLarge := range map[int]bool{1000: false, 1001: true, 10 << 20: true} {
			a, err := call(t, func(w http.ResponseWriter, r *http.Request) {
				if announced {
					w.Header().Set("Content-Length", strconv.Itoa(size))
				}
				for sent := 0; sent < size; {
					n, err := w.Write(make([]byte, min(size-sent, 4096)))
					if err != nil {
						return
					}
					sent += n
					w.(http.Flusher).Flush()
				}
			}, func(op *operation) { op.maxResult = 1000 })
			if err != nil || a.TooLarge != tooLarge || a.Whole == tooLarge ||
				(a.Body == nil) != tooLarge {
				t.Errorf("%d bytes (announced: %v): %d kept, too large %v, %v", size, announced,
					len(a.Body), a.TooLarge, err)
			}
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	a, err := call(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}, nil)
	if err != nil || a.Status != http.StatusTemporaryRedirect || calls.Load() != 1 {
		t.Errorf("status %d after %d calls, %v", a.Status, calls.Load(), err)
	}
}

// net/http sends a request again by itself when a kept connection breaks and the request has an
// Idempotency-Key. The second one would have no slot: the backend would see more than the drain
// rate.
func TestABrokenConnectionIsNoSecondCall(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if calls.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(backend.Close)
	c := newCaller(nil)
	t.Cleanup(c.close)
	op, job := testOperation(t, backend.URL), jobs.Job{ID: "reports-1", Payload: []byte(`{}`)}
	if _, err := c.do(t.Context(), op, job, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.do(t.Context(), op, job, 1); err == nil {
		t.Fatal("the connection broke and do has an answer")
	}
	if n := calls.Load(); n != 2 {
		t.Fatalf("the backend was called %d times for 2 attempts", n)
	}
}

func TestABodyThatBreaksOffIsNoAnswer(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 404} {
		a, err := call(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(status)
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, nil)
		if status == 200 && err == nil {
			t.Errorf("200: %+v", a)
		}
		if status == 404 && (err != nil || a.Status != 404 || a.Whole || a.Body != nil) {
			t.Errorf("404: %+v, %v", a, err)
		}
	}
}

func TestAnEndlessHeadIsCutOff(t *testing.T) {
	t.Parallel()
	_, err := call(t, func(w http.ResponseWriter, r *http.Request) {
		for i := range 100 {
			w.Header().Set("X-Filler-"+strconv.Itoa(i), strings.Repeat("x", 4096))
		}
	}, nil)
	if err == nil {
		t.Error("400 KiB of header were taken")
	}
	a, err := call(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/"+strings.Repeat("x", 1000))
	}, nil)
	if err != nil || a.ContentType != "application/octet-stream" {
		t.Errorf("content type %q, %v", a.ContentType, err)
	}
}

// Case C108: The backend sees its connection closed when the call is aborted.
func TestAnAbortedCallClosesItsConnection(t *testing.T) {
	t.Parallel()
	begun, closed := make(chan struct{}), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		close(begun)
		<-r.Context().Done()
		close(closed)
	}))
	t.Cleanup(backend.Close)
	c := newCaller(nil)
	t.Cleanup(c.close)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-begun
		cancel(errCanceled)
	}()
	if _, err := c.do(ctx, testOperation(t, backend.URL),
		jobs.Job{ID: "reports-1", Payload: []byte(`{}`)}, 1); err == nil ||
		!errors.Is(context.Cause(ctx), errCanceled) {
		t.Fatalf("err = %v", err)
	}
	select {
	case <-closed:
	case <-time.After(5 * time.Second):
		t.Fatal("the backend still works for an aborted call")
	}
}

// Proxies in the environment are ignored: only the config sets the backend's address.
func TestTheEnvironmentNamesNoProxy(t *testing.T) {
	t.Parallel()
	if newCaller(nil).client.Transport.(*http.Transport).Proxy != nil {
		t.Fatal("calls may go to a proxy")
	}
}

func TestAnAddressMustBeHTTP(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"http://h:9000":   "http://h:9000/render",
		"http://h/base/":  "http://h/base/render",
		"https://h":       "https://h/render",
		"ftp://h":         "",
		"h:9000":          "",
		"http://":         "",
		"http://h:port":   "",
		"http://u:p@h/%z": "",
	} {
		got := ""
		u, err := target(base, "/render")
		if err == nil {
			got = u.String()
		}
		if got != want {
			t.Errorf("%s: %q, %v; want %q", base, got, err, want)
		}
	}
}

// A backend's URL may have a key in its path or query, so no error contains it.
func TestNoErrorOfACallHasItsURL(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.NotFoundHandler())
	op := testOperation(t, strings.Replace(backend.URL, "http://", "http://me:s3cret@", 1))
	op.url.RawQuery = "key=s3cret"
	backend.Close()
	c := newCaller(nil)
	t.Cleanup(c.close)
	_, err := c.do(t.Context(), op, jobs.Job{ID: "reports-1", Payload: []byte(`{}`)}, 1)
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error is %v, want one without the secret", err)
	}
}

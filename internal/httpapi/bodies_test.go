package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/testforebay"
	"github.com/forebay/forebay/internal/web"
)

// counted counts what a server reads of a body.
type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// The client is identified before the body is read: the bodies of callers without a valid key are
// neither read nor held, and their address is charged.
func TestNoBodyIsReadOfACallerWhoIsNotKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.NoAnonymous = true
		s.Global = []limits.Limit{{Name: "address", Algorithm: limits.TokenBucket,
			Per: limits.PerIP, Amount: 100, Window: time.Hour}}
		s.Adjust = func(_ *testforebay.World, c *testforebay.Config) {
			c.MaxBody,
				c.MaxBuffered = 1<<20, 2<<20
		}
	})
	var read, refused atomic.Int64
	public, body := w.Server.Public(), strings.Repeat("x", 1<<20)
	var all sync.WaitGroup
	for n := range 60 {
		all.Go(func() {
			r := httptest.NewRequest("POST", "/v1/jobs", nil)
			r.Body, r.ContentLength = counted{io.NopCloser(strings.NewReader(body)), &read},
				int64(len(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Forwarded-For", "192.0.2.1")
			if n%2 == 0 {
				r.Header.Set("X-API-Key", "guess")
			}
			answer := httptest.NewRecorder()
			public.ServeHTTP(answer, r)
			if answer.Code == http.StatusUnauthorized {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if read.Load() != 0 || w.Server.BodyBytes() != 0 || refused.Load() != 60 {
		t.Errorf("%d were refused, %d bytes were read, %d are held", refused.Load(), read.Load(),
			w.Server.BodyBytes())
	}
	a := w.Want(w.Submit(w.Plain, `1`, key(keyA), from("192.0.2.1")), http.StatusAccepted)
	if got := w.stated(a)["address"].r; got != 39 {
		t.Errorf("the address has %d left, want 39", got)
	}
}

// Bodies of known callers are held within one bound, by the bytes received so far; a request that
// finds no room may be repeated.
func TestAllBodiesTogetherAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(_ *testforebay.World, c *testforebay.Config) { c.MaxBuffered = 128 << 10 }
	})
	text := `{"operation":"` + w.Plain + `","payload":"` + strings.Repeat("x", 60<<10) + `"}`
	var ends []*io.PipeWriter
	var all sync.WaitGroup
	for range 2 {
		r, end := io.Pipe()
		ends = append(ends, end)
		all.Go(func() {
			request, err := http.NewRequest("POST", w.URL+"/v1/jobs", r)
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Authorization", "Bearer "+keyA)
			a, err := w.Client.Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			a.Body.Close()
			if a.StatusCode != http.StatusAccepted {
				t.Errorf("a body that had its place: %s", a.Status)
			}
		})
		if _, err := io.WriteString(end, text[:50<<10]); err != nil {
			t.Fatal(err)
		}
	}
	w.Eventually("both bodies are held", func() bool { return w.Server.BodyBytes() > 120<<10 })
	a := w.Call("POST", w.URL+"/v1/jobs", text, key(keyA))
	if w.Problem(a, http.StatusServiceUnavailable,
		api.CodeBusy); a.Header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %v", a.Header)
	}
	for _, end := range ends {
		if _, err := io.WriteString(end, text[50<<10:]); err != nil {
			t.Fatal(err)
		}
		end.Close()
	}
	all.Wait()
	w.Eventually("nothing is held", func() bool { return w.Server.BodyBytes() == 0 })
	w.Want(w.Call("POST", w.URL+"/v1/jobs", text, key(keyA)), http.StatusAccepted)

	// A request that waits for its job holds no body, and neither does a malformed one.
	waits := make(chan answer, 1)
	w.Pause()
	go func() {
		a, _ := w.Try("POST", w.URL+"/v1/jobs", text, key(keyA), field("Prefer", "wait=2"))
		waits <- a
	}()
	w.Eventually("one waits", func() bool { return w.Server.HeldAnswers(httpapi.HeldWait) == 1 })
	if held := w.Server.BodyBytes(); held != 0 {
		t.Errorf("%d bytes are held while a client waits", held)
	}
	w.Problem(w.Call("POST", w.URL+"/v1/jobs", text+"x", key(keyA)), http.StatusBadRequest,
		api.CodeInvalidRequest)
	w.Eventually("nothing is held", func() bool { return w.Server.BodyBytes() == 0 })
	<-waits
}

// A body that comes by drops is cut within seconds: slowGrace, and a second for each KiB.
func TestABodyThatComesTooSlowlyIsCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	fmt.Fprintf(conn,
		"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: 10000\r\n\r\n{", keyA)
	answer, err := io.ReadAll(conn) // until it is closed
	if err != nil && len(answer) == 0 {
		t.Fatal(err)
	}
	if took := time.Since(began); !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") ||
		!strings.Contains(string(answer), api.CodeSlowBody) || took > web.ReadTime-5*time.Second {
		t.Errorf("after %v: %s", took, answer)
	}
}

func TestAMalformedBodyIsChargedToItsClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{perClient("five", 5, time.Hour),
			{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient, Amount: 2}}
	})
	good := `{"operation":"` + w.Plain + `","payload":1}`
	for _, wrong := range []struct {
		body   string
		status int
	}{{`{`, 400}, {`{"operation":1}`, 422}, {strings.Repeat("x", 100<<10), 413},
		{`{"operation":"none","payload":1}`, 404}} {
		w.Want(w.Call("POST", w.URL+"/v1/jobs", wrong.body, key(keyA)), wrong.status)
	}
	w.Want(w.Call("POST", w.URL+"/v1/jobs", good, key(keyA)), http.StatusAccepted)
	a := w.Call("POST", w.URL+"/v1/jobs", `{`, key(keyA))
	if p := w.Problem(a, http.StatusTooManyRequests, api.CodeRateLimit); p.Reason != "five" {
		t.Errorf("refused by %s", p.Reason)
	}
	w.Want(w.Call("POST", w.URL+"/v1/jobs", good, key(keyB)), http.StatusAccepted)
}

// Large bodies are parsed a few at a time, so that small ones find a processor: these don't wait
// for them, and no body waits for a client that has left.
func TestLargeBodiesWaitForTheirTurnAndSmallOnesDoNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(_ *testforebay.World, c *testforebay.Config) { c.MaxBody = 1 << 20 }
	})
	for range cap(w.Server.Parsing()) {
		w.Server.Parsing() <- struct{}{}
	}
	large := `{"operation":"` + w.Plain + `","payload":"` + strings.Repeat("x", 65<<10) + `"}`
	ctx, leave := context.WithCancel(t.Context())
	left, served := make(chan error, 1), make(chan answer, 1)
	go func() {
		r, _ := http.NewRequestWithContext(ctx, "POST", w.URL+"/v1/jobs", strings.NewReader(large))
		r.Header.Set("Content-Type", "application/json")
		_, err := w.Client.Do(r)
		left <- err
	}()
	go func() {
		a, _ := w.Try("POST", w.URL+"/v1/jobs", large, key(keyA))
		served <- a
	}()
	w.Eventually("both bodies are held", func() bool { return w.Server.BodyBytes() > 130<<10 })
	w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("a client that left: %v", err)
	}
	w.Eventually("its body is held no more", func() bool { return w.Server.BodyBytes() < 130<<10 })
	select {
	case a := <-served:
		t.Errorf("it didn't wait: %s", a.Status)
	default:
	}
	<-w.Server.Parsing()
	if a := <-served; a.Response == nil || a.StatusCode != http.StatusAccepted {
		t.Errorf("after its turn: %+v", a.Response)
	}
}

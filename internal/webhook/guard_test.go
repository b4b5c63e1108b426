package webhook_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/webhook"
)

// The address of a name at the moment of the call counts, not its address when the URL was
// accepted.
func TestANameOfAnInnerAddressIsNotCalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rc := w.receive(nil)
	_, port, err := net.SplitHostPort(rc.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// No inner network is allowed.
	p := webhook.Policy{HTTP: true, Ports: anyPort, Timeout: 30 * time.Second}
	inside := "http://hooks.example.com:" + port + "/"
	if err := p.Check(inside); err != nil {
		t.Fatalf("a name was refused before it was looked up: %v", err)
	}
	w.start(p, func(s *webhook.Sender) { s.Ask(names(t, "127.0.0.1")) })
	if d := w.awaitState(w.end(inside), webhook.Failed); d.Log[0].Word != "address_not_allowed" ||
		d.Log[0].Status != 0 {
		t.Errorf("on record: %+v", d)
	}
	// An address in a record from before the rules changed is refused by the current rules.
	if d := w.awaitState(w.end(rc.URL), webhook.Failed); d.Log[0].Word != "url_not_allowed" {
		t.Errorf("on record: %+v", d)
	}
	if n := len(rc.requests()); n != 0 {
		t.Errorf("%d requests came in", n)
	}
}

// A name that had a permitted address at first and has another one when it is dialed is not called
// there: each dial checks its address.
func TestANameThatChangesItsAddressIsNotCalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rc := w.receive(func(_ int, rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Connection", "close") // the next attempt dials again
		rw.WriteHeader(500)
	})
	_, port, err := net.SplitHostPort(rc.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	p := anywhere(time.Millisecond)
	p.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	w.start(p, func(s *webhook.Sender) { s.Ask(names(t, "127.0.0.1", "127.0.0.2")) })
	d := w.awaitState(w.end("http://hooks.example.com:"+port+"/"), webhook.Failed)
	if len(d.Log) != 2 || d.Log[0].Status != 500 || d.Log[1].Word != "address_not_allowed" {
		t.Errorf("on record: %+v", d)
	}
	if n := len(rc.requests()); n != 1 {
		t.Errorf("%d requests came in", n)
	}
}

// names resolves every name to each of the addresses in turn, and then to the last one. There is no
// IPv6.
func names(t *testing.T, addresses ...string) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		question := make([]byte, 512)
		for asked := 0; ; {
			n, from, err := server.ReadFrom(question)
			if err != nil {
				return
			}
			// The question has a name's labels up to the empty one, type and class (RFC 1035,
			// section 4.1).
			end := 12
			for end < n && question[end] != 0 {
				end += int(question[end]) + 1
			}
			end += 5
			if end > n {
				continue
			}
			reply := append([]byte{question[0], question[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0},
				question[12:end]...)
			if question[end-3] == 1 { // type A
				reply[7] = 1
				reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				reply = append(reply,
					netip.MustParseAddr(addresses[min(asked, len(addresses)-1)]).AsSlice()...)
				asked++
			}
			server.WriteTo(reply, from)
		}
	}()
	return &net.Resolver{PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
		}}
}

// Case C115: No redirect is followed, wherever it leads.
func TestARedirectIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var inside atomic.Int64
	admin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inside.Add(1)
	}))
	t.Cleanup(admin.Close)
	targets := []string{admin.URL, "http://169.254.169.254/latest/meta-data/",
		admin.URL + "/admin/v1/backends"}
	rc := w.receive(func(n int, rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Location", targets[n-1])
		rw.WriteHeader([]int{302, 307, 308}[n-1])
	})
	w.start(anywhere(time.Millisecond, time.Millisecond))
	d := w.awaitState(w.end(rc.URL), webhook.Failed)
	if d.Attempts != 3 || d.Log[0].Status != 302 || d.Log[1].Status != 307 ||
		d.Log[2].Status != 308 {
		t.Errorf("on record: %+v", d)
	}
	if n := inside.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// Case C117: Nothing of a receiver's answer is kept or logged, and only a little of it is read.
func TestNothingOfAnAnswerIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var sent atomic.Int64
	ended := make(chan struct{})
	rc := w.receive(func(n int, rw http.ResponseWriter, r *http.Request) {
		if n > 1 {
			return
		}
		defer close(ended)
		rw.Header().Set("X-Inner", "inner-secret")
		rw.WriteHeader(500)
		for r.Context().Err() == nil {
			n, err := io.WriteString(rw, strings.Repeat("inner-secret ", 1000))
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	w.start(anywhere(time.Millisecond))
	id := w.end(rc.URL)
	w.awaitState(id, webhook.Delivered)
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatalf("the answer is still being read after %d bytes", sent.Load())
	}
	for key, value := range w.rdb.HGetAll(t.Context(),
		jobs.KeyPrefix(w.backend)+"delivery:"+id).Val() {
		if strings.Contains(value, "inner") {
			t.Errorf("%s: %s", key, value)
		}
	}
	if strings.Contains(w.log.String(), "inner-secret") {
		t.Error("the log has it")
	}
}

// An operator sees one word for an error, and nothing else of it.
func TestAnAttemptWithoutAnAnswerIsOneWord(t *testing.T) {
	t.Parallel()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unused := gone.Addr().String()
	gone.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	garbage, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { garbage.Close() })
	go func() {
		for {
			c, err := garbage.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "SSH-2.0-OpenSSH_9.9\r\n")
			c.Close()
		}
	}()
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(tls.Close)
	for _, test := range []struct{ word, url string }{
		{"refused", "http://" + unused},
		{"timeout", "http://" + mute.Addr().String()},
		{"connection", "http://" + garbage.Addr().String()},
		{"tls", tls.URL},
		{"dns", "http://nowhere.invalid/"},
	} {
		t.Run(test.word, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := anywhere()
			if test.word == "timeout" {
				p.Timeout = 300 * time.Millisecond
			}
			s := w.start(p)
			if d := w.awaitState(w.end(test.url), webhook.Failed); d.Attempts != 1 ||
				d.Log[0].Word != test.word || d.Log[0].Status != 0 {
				t.Errorf("on record: %+v", d)
			}
			if got := s.attempts(t, "failed"); got != 1 {
				t.Errorf("metrics count %v", got)
			}
		})
	}
}

func TestACertificateIsChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rc := &receiver{}
	rc.Server = httptest.NewTLSServer(rc.handler(nil))
	t.Cleanup(rc.Close)
	roots := x509.NewCertPool()
	roots.AddCert(rc.Certificate())
	p := webhook.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Ports: anyPort,
		Timeout: 30 * time.Second}
	w.start(p, func(s *webhook.Sender) { s.Trust(roots) })
	w.awaitState(w.end(rc.URL), webhook.Delivered)
	if d := w.awaitState(w.end(strings.Replace(rc.URL, "127.0.0.1", "localhost", 1)),
		webhook.Failed); d.Log[0].Word != "tls" {
		t.Errorf("under a name that it hasn't: %+v", d)
	}
}

// If an egress proxy from the environment were dialed instead of the receiver, the receiver's
// address would not be checked.
func TestNoProxyStandsBetween(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if webhook.TransportOf(w.start(anywhere()).Sender).Proxy != nil {
		t.Error("requests may go through a proxy")
	}
}

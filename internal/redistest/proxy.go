package redistest

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy is a TCP proxy in front of a server, for faults of the network. Its methods are safe for
// concurrent use.
type Proxy struct {
	Addr string // host:port; the same after Refuse and Resume

	t      testing.TB
	target string
	all    sync.WaitGroup // all goroutines of the proxy

	mu       sync.Mutex
	closed   bool               // guarded by mu: the test is over
	listener net.Listener       // guarded by mu; nil while refusing
	pairs    map[*pair]struct{} // guarded by mu: open connections
	open     chan struct{}      // guarded by mu: closed while data flows

	there, back link
}

// link is one direction of the network, shared by all connections.
type link struct {
	mu   sync.Mutex
	rate float64   // guarded by mu: bytes per second; 0: unlimited
	free time.Time // guarded by mu: when everything taken so far has passed
}

// late bounds how far a link catches up after a busy machine has delayed it.
const late = 50 * time.Millisecond

// maxChunk is how much one connection may send before another one may.
const maxChunk = 4 << 10

// take waits until the caller may send, and returns how many of its bytes it may send.
func (l *link) take(bytes int) int {
	l.mu.Lock()
	if l.rate == 0 {
		l.mu.Unlock()
		return bytes
	}
	bytes = min(bytes, maxChunk)
	if late := time.Now().Add(-late); l.free.Before(late) {
		l.free = late
	}
	l.free = l.free.Add(time.Duration(float64(bytes) / l.rate * float64(time.Second)))
	free := l.free
	l.mu.Unlock()
	time.Sleep(time.Until(free))
	return bytes
}

// Throttle limits each direction to rate bytes a second over all connections together, which take
// turns as on a network. 0 means no limit.
func (p *Proxy) Throttle(rate float64) {
	for _, l := range []*link{&p.there, &p.back} {
		l.mu.Lock()
		l.rate = rate
		l.mu.Unlock()
	}
}

// pair is one connection through the proxy.
type pair struct {
	front, back net.Conn
	once        sync.Once
	cut         chan struct{} // closed with the pair
	lame        atomic.Bool   // it passes on nothing any more
}

func (p *pair) close() {
	p.once.Do(func() {
		close(p.cut)
		p.front.Close()
		p.back.Close()
	})
}

// StartProxy starts a proxy on the loopback in front of target (host:port, or the path of a unix
// socket). It ends with t.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{t: t, target: target, pairs: map[*pair]struct{}{}, open: make(chan struct{})}
	close(p.open)
	err := onFreePort(func(port int) error {
		p.Addr = loopback(port)
		return p.listen()
	})
	if err != nil {
		t.Fatalf("redistest: proxy: %v", err)
	}
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.Refuse()
		p.all.Wait()
	})
	return p
}

// URL returns the proxy's URL, in the form of the service's config.
func (p *Proxy) URL() string { return "redis://" + p.Addr + "/0" }

func (p *Proxy) listen() error {
	l, err := net.Listen("tcp", p.Addr)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.listener = l
	p.mu.Unlock()
	p.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.serve(c) })
		}
	})
	return nil
}

func (p *Proxy) serve(front net.Conn) {
	network := "tcp"
	if strings.HasPrefix(p.target, "/") {
		network = "unix"
	}
	back, err := net.DialTimeout(network, p.target, startTimeout)
	if err != nil {
		front.Close() // as with no server, except for the refusal
		return
	}
	c := &pair{front: front, back: back, cut: make(chan struct{})}
	p.mu.Lock()
	refused := p.listener == nil
	p.pairs[c] = struct{}{}
	p.mu.Unlock()
	if refused { // since the connection was accepted
		c.close()
	}
	var both sync.WaitGroup
	both.Go(func() { p.copy(c, back, front, &p.there) })
	both.Go(func() { p.copy(c, front, back, &p.back) })
	both.Wait()
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
}

// copy passes on data while it flows, and closes the pair at the first error.
func (p *Proxy) copy(c *pair, to, from net.Conn, over *link) {
	defer c.close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !p.flows(c) {
			return
		}
		for rest := buf[:n]; len(rest) > 0; {
			chunk := rest[:over.take(len(rest))]
			if _, err := to.Write(chunk); err != nil {
				return
			}
			rest = rest[len(chunk):]
		}
		if err != nil {
			return
		}
	}
}

// flows waits while the proxy hangs or the pair is lame. It returns false if the pair was cut
// meanwhile.
func (p *Proxy) flows(c *pair) bool {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	if c.lame.Load() {
		open = nil
	}
	select {
	case <-open:
		return true
	case <-c.cut:
		return false
	}
}

// Cut drops all open connections. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		c.close()
	}
}

// Lame keeps the open connections open for good and passes on nothing, as if the host at the other
// end were gone. New ones work.
func (p *Proxy) Lame() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		c.lame.Store(true)
	}
}

// Hang keeps connections open, accepts new ones, and passes on nothing in either direction until
// Resume.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default:
	}
}

// Refuse drops all open connections and refuses new ones until Resume, as if no server ran.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.Cut()
}

// Resume ends Hang and Refuse. Data held back by Hang is passed on.
func (p *Proxy) Resume() {
	p.t.Helper()
	p.mu.Lock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
	refusing := p.listener == nil && !p.closed
	p.mu.Unlock()
	if refusing {
		if err := p.listen(); err != nil {
			p.t.Errorf("redistest: proxy: resume: %v", err)
		}
	}
}

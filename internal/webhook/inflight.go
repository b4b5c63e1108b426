package webhook

import (
	"sync"
	"time"
)

// Bounds on the deliveries that one process has in flight, within jobs.MaxDeliveries: to one host,
// and for one client, which may have many hosts. So a receiver that hangs doesn't delay others.
const (
	maxPerHost   = 20
	maxPerClient = 100
)

// Bounds on how long a delivery is put off while its host or client is at its bound. The time grows
// with the number of deliveries that were put off since one ended: a thousand deliveries for a
// receiver that hangs must not be tried every second.
const (
	minPutOff = time.Second
	maxPutOff = time.Minute
)

// inFlight counts deliveries in flight by host and by client. Safe for concurrent use.
type inFlight struct {
	mu     sync.Mutex
	counts map[string]*count // guarded by mu; by host or client
}

type count struct {
	running int
	putOff  int // halved each time that one ends
}

func newInFlight() *inFlight { return &inFlight{counts: map[string]*count{}} }

// begin counts a delivery to a host for a client, and returns a function that must be called at its
// end. If the host or the client is at its bound, end is nil and the delivery must be put off.
func (p *inFlight) begin(host, client string) (end func(), putOff time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, c := p.count("host "+host), p.count("client "+client)
	full := h
	if h.running < maxPerHost {
		if c.running < maxPerClient {
			h.running++
			c.running++
			return func() { p.end("host "+host, "client "+client) }, 0
		}
		full = c
	}
	full.putOff++
	p.forget("host "+host, "client "+client)
	return nil, min(minPutOff+time.Duration(full.putOff)*minPutOff/maxPerHost, maxPutOff)
}

func (p *inFlight) count(name string) *count {
	one := p.counts[name]
	if one == nil {
		one = &count{}
		p.counts[name] = one
	}
	return one
}

func (p *inFlight) end(names ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		one := p.counts[name]
		one.running--
		one.putOff /= 2
	}
	p.forget(names...)
}

// forget drops counts that are zero: clients choose the names, which must not accumulate.
func (p *inFlight) forget(names ...string) {
	for _, name := range names {
		if one := p.counts[name]; one != nil && one.running == 0 {
			delete(p.counts, name)
		}
	}
}

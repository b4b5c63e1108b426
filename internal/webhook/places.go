package webhook

import (
	"sync"
	"time"
)

// Bounds of the deliveries that one process has in flight, within jobs.MaxDeliveries, so that a receiver who hangs holds up nobody
// else: of one host, and of one client, whose hosts may be many.
const (
	maxPerHost   = 20
	maxPerClient = 100
)

// Bounds of how long a delivery is put off that finds no place. It grows with how many were put off since the last place came free: a
// thousand for a receiver who hangs must not be asked about each second.
const (
	minPutOff = time.Second
	maxPutOff = time.Minute
)

// places are those who deliver now. Safe for concurrent use.
type places struct {
	mu    sync.Mutex
	taken map[string]*crowd // guarded by mu; by host or client
}

type crowd struct {
	running int
	putOff  int // since somebody left
}

func newPlaces() *places { return &places{taken: map[string]*crowd{}} }

// take takes a place for a delivery to a host for a client. Where there is none it says how long to put the delivery off; else leave
// must be called at its end.
func (p *places) take(host, client string) (leave func(), putOff time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, c := p.crowd("host "+host), p.crowd("client "+client)
	full := h
	if h.running < maxPerHost {
		if c.running < maxPerClient {
			h.running++
			c.running++
			return func() { p.leave("host "+host, "client "+client) }, 0
		}
		full = c
	}
	full.putOff++
	p.forget("host "+host, "client "+client)
	return nil, min(minPutOff+time.Duration(full.putOff)*minPutOff/maxPerHost, maxPutOff)
}

func (p *places) crowd(name string) *crowd {
	one := p.taken[name]
	if one == nil {
		one = &crowd{}
		p.taken[name] = one
	}
	return one
}

func (p *places) leave(names ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		one := p.taken[name]
		one.running--
		one.putOff /= 2
	}
	p.forget(names...)
}

// forget drops those that nobody is at: names are clients' choice, and must not pile up.
func (p *places) forget(names ...string) {
	for _, name := range names {
		if one := p.taken[name]; one != nil && one.running == 0 {
			delete(p.taken, name)
		}
	}
}

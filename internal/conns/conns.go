// Package conns is a listener for HTTP servers whose connections are bounded, in all and from one
// address, and which can be closed so that no client sees its connection reset.
package conns

import (
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds are those of one listener.
type Bounds struct {
	All        int            // connections at one time; at least 1
	Address    int            // from one address; at least 1
	IPv6Prefix int            // leading bits of an IPv6 address that make one address; 0: 64
	Proxies    []netip.Prefix // from whose addresses there may be as many as in all
}

// Listener accepts connections within its bounds. Where one is reached the connection makes room that
// has been silent for longest, since it was opened or since its last answer: so connections on which
// nothing is ever sent don't put out those of clients. Where all are at work the new one is closed. Each such closing is counted, and logged at most once
// a second. Its ConnState must be the server's. Safe for concurrent use.
type Listener struct {
	net.Listener
	name   string
	bounds Bounds
	log    *slog.Logger
	closed *prometheus.CounterVec

	mu        sync.Mutex
	all       pool                   // guarded by mu
	addresses map[netip.Prefix]*pool // guarded by mu; none without connections
	logged    time.Time              // guarded by mu
}

// pool is a set of connections under one bound.
type pool struct {
	bound     string
	open, max int
	kept      list.List // of *conn: those between two requests, the longest there first
	fresh     list.List // of *conn: those on which nothing was sent yet, the oldest first
}

// conn is a connection that takes a place in each of its pools until it is closed.
type conn struct {
	net.Conn
	l       *Listener
	address netip.Prefix
	pools   []*pool         // guarded by l.mu; nil: it has been closed
	spots   []*list.Element // guarded by l.mu: where it is in one list of each pool; nil: at work
	since   time.Time       // guarded by l.mu: of its last change between idle and at work
	fresh   bool            // guarded by l.mu: nothing was sent yet
}

// Words for metrics and the log.
const (
	boundAll     = "all"
	boundAddress = "address"
	closedIdle   = "idle"
	closedNew    = "new"
)

// Listen listens on a TCP address. name is the listener's in log and metrics; an error is net.Listen's.
func Listen(name, addr string, b Bounds, metrics prometheus.Registerer, log *slog.Logger) (*Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // or Quiet's filter would be refused
	inner, err := config.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s listener: %w", name, err)
	}
	if b.IPv6Prefix == 0 {
		b.IPv6Prefix = 64
	}
	labels := prometheus.Labels{"listener": name}
	l := &Listener{Listener: inner, name: name, bounds: b, log: log, all: pool{bound: boundAll, max: b.All},
		addresses: map[netip.Prefix]*pool{}, closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forebay_connections_closed_total", ConstLabels: labels, Help: "Connections closed since a bound on them was reached, " +
				"in all or of one address: idle ones that made room, and new ones where all were at work."}, []string{"bound", "connection"})}
	for _, bound := range []string{boundAll, boundAddress} {
		for _, which := range []string{closedIdle, closedNew} {
			l.closed.WithLabelValues(bound, which)
		}
	}
	metrics.MustRegister(l.closed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "forebay_connections",
		ConstLabels: labels, Help: "Open connections of clients."}, func() float64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		return float64(l.all.open)
	}), prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "forebay_connections_max", ConstLabels: labels,
		Help: "How many connections there may be."}, func() float64 { return float64(b.All) }))
	return l, nil
}

// Accept is net.Listener's.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, l: l, fresh: true}
		if l.admit(c) {
			return c, nil
		}
		inner.Close()
	}
}

// admit gives a connection its places, those of idle ones where need be.
func (l *Listener) admit(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	pools := []*pool{&l.all}
	if peer, ok := l.peer(c); ok {
		c.address = peer
		p := l.addresses[peer]
		if p == nil {
			p = &pool{bound: boundAddress, max: l.bounds.Address}
		}
		pools = []*pool{p, &l.all} // an address over its bound costs others no place
	}
	for _, p := range pools {
		if p.open < p.max {
			continue
		}
		idle := p.idlest()
		which := closedNew
		if idle != nil {
			which = closedIdle
			l.release(idle)
			idle.Conn.Close()
		}
		l.reached(p, which)
		if idle == nil {
			return false
		}
	}
	if len(pools) > 1 {
		l.addresses[c.address] = pools[0]
	}
	for _, p := range pools {
		p.open++
	}
	c.pools = pools
	l.settle(c)
	return true
}

// peer is the address that a connection counts for, if it does for one.
func (l *Listener) peer(c *conn) (netip.Prefix, bool) {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}, false
	}
	a := tcp.AddrPort().Addr().Unmap().WithZone("")
	if slices.ContainsFunc(l.bounds.Proxies, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return netip.Prefix{}, false
	}
	bits := a.BitLen()
	if a.Is6() {
		bits = l.bounds.IPv6Prefix
	}
	p, err := a.Prefix(bits)
	return p, err == nil
}

// idlest is the connection that has been silent for longest; nil: all are at work. l.mu is held.
func (p *pool) idlest() (longest *conn) {
	for _, in := range []*list.List{&p.kept, &p.fresh} {
		if first := in.Front(); first != nil {
			if c := first.Value.(*conn); longest == nil || c.since.Before(longest.since) {
				longest = c
			}
		}
	}
	return longest
}

// reached counts a closing and logs some. l.mu is held.
func (l *Listener) reached(p *pool, which string) {
	l.closed.WithLabelValues(p.bound, which).Inc()
	if now := time.Now(); now.Sub(l.logged) >= time.Second {
		l.logged = now
		l.log.Warn("a bound on connections is reached", "listener", l.name, "bound", p.bound, "max", p.max, "closed", which)
	}
}

// settle puts a connection that isn't at work where it can be found. l.mu is held.
func (l *Listener) settle(c *conn) {
	l.unsettle(c)
	c.since = time.Now()
	for _, p := range c.pools {
		in := &p.kept
		if c.fresh {
			in = &p.fresh
		}
		c.spots = append(c.spots, in.PushBack(c))
	}
}

// unsettle takes a connection out of the lists of those that aren't at work. l.mu is held.
func (l *Listener) unsettle(c *conn) {
	for i, spot := range c.spots {
		c.pools[i].kept.Remove(spot) // which of the two it is in the list itself knows
		c.pools[i].fresh.Remove(spot)
	}
	c.spots = nil
}

// release gives a connection's places back, once. l.mu is held.
func (l *Listener) release(c *conn) {
	l.unsettle(c)
	for _, p := range c.pools {
		if p.open--; p.open == 0 && p.bound == boundAddress {
			delete(l.addresses, c.address)
		}
	}
	c.pools = nil
}

// ConnState is for http.Server: it tells which connections are at work.
func (l *Listener) ConnState(inner net.Conn, state http.ConnState) {
	c, ok := inner.(*conn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateActive:
		l.unsettle(c)
	case http.StateIdle:
		c.fresh = false
		l.settle(c)
	}
}

// AtWork reports whether a request may be under way: a connection is neither between two of them, nor
// has been silent from its beginning for a second.
func (l *Listener) AtWork() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	newest := l.all.fresh.Back()
	return l.all.open > l.all.kept.Len()+l.all.fresh.Len() ||
		newest != nil && time.Since(newest.Value.(*conn).since) < time.Second
}

// Close is net.Conn's.
func (c *conn) Close() error {
	c.l.mu.Lock()
	c.l.release(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

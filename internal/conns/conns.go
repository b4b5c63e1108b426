// Package conns provides a listener for HTTP servers with bounds on its connections, in total and
// per address. It can be closed without any client seeing its connection reset.
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

// Bounds are the bounds of one listener.
type Bounds struct {
	All        int            // open connections; at least 1
	Address    int            // open connections of one address; at least 1
	IPv6Prefix int            // leading bits of an IPv6 address that count as one address; 0: 64
	Proxies    []netip.Prefix // addresses for which only All holds
}

// Listener accepts connections within its bounds. If a bound is reached, the connection that has
// been silent for longest, since it was opened or since its last answer, is closed to make room. So
// connections that never send anything don't displace those of clients. If all are at work, the new
// one is closed. Both kinds of closing are counted, and logged at most once a second. The server's
// ConnState must be the Listener's. It is safe for concurrent use.
type Listener struct {
	net.Listener
	name   string
	bounds Bounds
	log    *slog.Logger
	closed *prometheus.CounterVec

	mu        sync.Mutex
	all       pool                   // guarded by mu
	addresses map[netip.Prefix]*pool // guarded by mu; only addresses with connections
	logged    time.Time              // guarded by mu
}

// pool is a set of connections under one bound.
type pool struct {
	bound     string
	open, max int
	kept      list.List // of *conn: those between two requests, the longest silent first
	fresh     list.List // of *conn: those that have sent nothing yet, the oldest first
}

// conn is a connection that counts in each of its pools until it is closed.
type conn struct {
	net.Conn
	l       *Listener
	address netip.Prefix
	pools   []*pool         // guarded by l.mu; nil once closed
	spots   []*list.Element // guarded by l.mu: its element in a list of each pool; nil: at work
	since   time.Time       // guarded by l.mu: when it last changed between idle and at work
	fresh   bool            // guarded by l.mu: nothing was sent yet
}

// Values of labels, and of the log.
const (
	boundAll     = "all"
	boundAddress = "address"
	closedIdle   = "idle"
	closedNew    = "new"
)

// Listen listens on a TCP address. name is the listener's name in the log and in metrics. Its
// errors are net.Listen's.
func Listen(name, addr string, b Bounds, metrics prometheus.Registerer,
	log *slog.Logger) (*Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // otherwise Quiet's filter would be refused
	inner, err := config.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s listener: %w", name, err)
	}
	if b.IPv6Prefix == 0 {
		b.IPv6Prefix = 64
	}
	labels := prometheus.Labels{"listener": name}
	l := &Listener{Listener: inner, name: name, bounds: b, log: log,
		all: pool{bound: boundAll, max: b.All}, addresses: map[netip.Prefix]*pool{}}
	l.closed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "forebay_connections_closed_total", ConstLabels: labels,
		Help: "Connections closed since a bound on them was reached, in all or of one address: " +
			"idle ones that made room, and new ones where all were at work.",
	}, []string{"bound", "connection"})
	for _, bound := range []string{boundAll, boundAddress} {
		for _, which := range []string{closedIdle, closedNew} {
			l.closed.WithLabelValues(bound, which)
		}
	}
	metrics.MustRegister(l.closed,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "forebay_connections", ConstLabels: labels,
			Help: "Open connections of clients.",
		}, func() float64 {
			l.mu.Lock()
			defer l.mu.Unlock()
			return float64(l.all.open)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "forebay_connections_max", ConstLabels: labels,
			Help: "How many connections there may be.",
		}, func() float64 { return float64(b.All) }))
	return l, nil
}

// Accept implements net.Listener.
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

// admit counts a connection in its pools, and closes idle ones to make room. It returns false if
// there is no room.
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
		// first: an address over its bound closes no connection of others
		pools = []*pool{p, &l.all}
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

// peer returns the address for which a connection counts, if it counts for one.
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

// idlest returns the connection that has been silent for longest, or nil if all are at work. l.mu
// is held.
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

// reached counts a closing and logs it, at most once a second. l.mu is held.
func (l *Listener) reached(p *pool, which string) {
	l.closed.WithLabelValues(p.bound, which).Inc()
	if now := time.Now(); now.Sub(l.logged) >= time.Second {
		l.logged = now
		l.log.Warn("a bound on connections is reached", "listener", l.name,
			"bound", p.bound, "max", p.max, "closed", which)
	}
}

// settle adds an idle connection to the lists of its pools. l.mu is held.
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

// unsettle removes a connection from the lists of idle ones. l.mu is held.
func (l *Listener) unsettle(c *conn) {
	for i, spot := range c.spots {
		c.pools[i].kept.Remove(spot) // Remove ignores elements of other lists
		c.pools[i].fresh.Remove(spot)
	}
	c.spots = nil
}

// release removes a connection from its pools, once. l.mu is held.
func (l *Listener) release(c *conn) {
	l.unsettle(c)
	for _, p := range c.pools {
		if p.open--; p.open == 0 && p.bound == boundAddress {
			delete(l.addresses, c.address)
		}
	}
	c.pools = nil
}

// ConnState is for http.Server, whose calls report which connections are at work.
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

// AtWork reports whether a request may be under way. It returns false if each connection is between
// two requests, or has been silent since it was opened, for a second or more.
func (l *Listener) AtWork() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	newest := l.all.fresh.Back()
	return l.all.open > l.all.kept.Len()+l.all.fresh.Len() ||
		newest != nil && time.Since(newest.Value.(*conn).since) < time.Second
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.l.mu.Lock()
	c.l.release(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

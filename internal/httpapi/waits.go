package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// Answers that are held back cost Redis nothing while nothing happens: whoever waits is told by Finals when to look again.

// Kinds of answers that are held back, as forebay_held_answers names them.
const (
	heldWait   = "wait"   // Prefer: wait=N
	heldStream = "stream" // Accept: text/event-stream
)

// maxWaiters bounds the answers that are held back at one time. Each takes about 30 KiB, most of it
// its connection's: 300 MB in all.
const maxWaiters = 10_000

// maxHeld are the bounds in force.
var maxHeld = heldBounds{all: maxWaiters, client: maxWaiters / 4,
	anonymous: maxWaiters / 2, address: 250, network: 500}

// heldBounds say how much answers may take up: in all, and of one client, so that no client
// takes all the room. An address costs nothing, so callers without a key have less: an address as
// much as an office behind one has people, a network (an IPv4 /24 or an IPv6 /48, which one site is
// given) twice that, and all of them together no more than leaves clients with a key the rest.
type heldBounds struct{ all, client, anonymous, address, network int }

// of are the names that a client's answers count under, and how much may be counted under each. A
// client with a key has its id alone; other callers have theirs, their network and, as "", all.
func (b heldBounds) of(client identity.Client) (names []string, most []int) {
	if client.Anonymous {
		return []string{client.ID, network(client.Address), ""}, []int{b.address, b.network, b.anonymous}
	}
	return []string{client.ID}, []int{b.client}
}

// waits counts the answers that are held back. Safe for concurrent use.
type waits struct {
	bounds heldBounds

	mu    sync.Mutex
	kinds map[string]int // guarded by mu
	// By the names of heldBounds.of; none at 0; guarded by mu. An id is never the text of a network:
	// it has no slash or begins with "ip:".
	holders map[string]int
}

func newWaits(b heldBounds) *waits {
	return &waits{bounds: b, kinds: map[string]int{}, holders: map[string]int{}}
}

// enter counts one more, where there may be one. leave must be called once it is held back no more.
func (w *waits) enter(kind string, client identity.Client) (leave func(), ok bool) {
	counts, bounds := w.bounds.of(client)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kinds[heldWait]+w.kinds[heldStream] >= w.bounds.all {
		return nil, false
	}
	for i, name := range counts {
		if w.holders[name] >= bounds[i] {
			return nil, false
		}
	}
	w.kinds[kind]++
	for _, name := range counts {
		w.holders[name]++
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.kinds[kind]--
		for _, name := range counts {
			if w.holders[name]--; w.holders[name] == 0 {
				delete(w.holders, name)
			}
		}
	}, true
}

// network is the network that an address of identity.Client belongs to: an IPv4 /24, an IPv6 /48.
func network(address string) string {
	prefix, err := netip.ParsePrefix(address)
	addr := prefix.Addr()
	if err != nil {
		if addr, err = netip.ParseAddr(address); err != nil {
			return address
		}
	}
	bits := 48
	if addr.Is4() {
		bits = 24
	}
	prefix, _ = addr.Prefix(bits) // it has more
	return prefix.String()
}

// held is how many of a kind there are.
func (w *waits) held(kind string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kinds[kind]
}

// vigil is one call's watch over its job.
type vigil struct {
	s      *Server
	c      *call
	line   Line
	id     string
	moved  <-chan struct{}
	lost   <-chan struct{}
	over   *time.Timer
	forget func()
}

// keepVigil begins to watch over the job that a call is about, for some time. The caller must look then, or moves that came just before
// are missed, and end the vigil.
func (s *Server) keepVigil(c *call, line Line, look leaky.Look, span time.Duration) *vigil {
	v := &vigil{s: s, c: c, line: line, id: look.Job.ID, lost: s.Store.Unavailable(), over: time.NewTimer(span)}
	if source := look.Job.Source(); source != v.id {
		v.moved, v.forget = s.Finals.Watch(v.id, source)
	} else {
		v.moved, v.forget = s.Finals.Watch(v.id)
	}
	return v
}

func (v *vigil) end() {
	v.over.Stop()
	v.forget()
}

// look asks where the job stands. It has storeTime of its own.
func (v *vigil) look() (leaky.Look, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.c.R.Context()), web.StoreTime)
	defer cancel()
	return v.line.Look(ctx, v.id)
}

// happening is what one who keeps vigil learns.
type happening int

const (
	jobMoved  happening = iota // look again
	timeOver                   // the vigil's span
	draining                   // the server shuts down
	storeLost                  // nothing will be heard
	callerGone
	beatDue
)

// next waits for something to happen; beat may be nil.
func (v *vigil) next(beat <-chan time.Time) happening {
	select {
	case <-v.moved:
		return jobMoved
	case <-v.over.C:
		return timeOver
	case <-v.s.draining:
		return draining
	case <-v.lost:
		return storeLost
	case <-v.c.R.Context().Done():
		return callerGone
	case <-beat:
		return beatDue
	}
}

// await holds the answer back until the job is done, as long as the client prefers, and returns where the job stands then. It is cut
// short when the client is gone, when the server drains and when the store is lost; then it returns what was known last. Where too many
// answers are held back already, it returns a problem at once.
func (s *Server) await(c *call, line Line, look leaky.Look) (leaky.Look, error) {
	return s.hold(c, line, look, done)
}

func done(look leaky.Look) bool { return look.Standing.State.Final() }

// hold is await for an end of the caller's own.
func (s *Server) hold(c *call, line Line, look leaky.Look, enough func(leaky.Look) bool) (leaky.Look, error) {
	wait := preferredWait(c.R.Header[api.HeaderPrefer])
	if wait == 0 {
		return look, nil
	}
	applied := []string{"wait=" + strconv.Itoa(int(wait/time.Second))}
	if enough(look) {
		c.W.Header()[api.HeaderPreferenceApplied] = applied
		return look, nil
	}
	leave, ok := s.waits.enter(heldWait, c.caller.Client)
	if !ok {
		return look, tooManyHeld()
	}
	defer leave()
	c.W.Header()[api.HeaderPreferenceApplied] = applied
	// The server's time for reading is for requests; it would end the longest waits.
	_ = http.NewResponseController(c.W).SetReadDeadline(time.Now().Add(wait + web.ReadTime))

	began := time.Now()
	defer func() {
		c.Held = time.Since(began)
		c.verdict, c.peeked = nil, nil // what the limits held before is old news
		c.Renew(0)
	}()
	v := s.keepVigil(c, line, look, wait)
	defer v.end()
	for last := false; ; {
		fresh, err := v.look()
		if errors.Is(err, leaky.ErrUnknownJob) {
			delete(c.W.Header(), api.HeaderPreferenceApplied)
			return look, c.ownLookError(look.Job.ID, err)
		}
		if err != nil {
			_ = c.StoreFailed(err) // logged; what was known before is an answer
			return look, nil
		}
		if look = fresh; last || enough(look) {
			return look, nil
		}
		switch v.next(nil) {
		case timeOver:
			last = true // where the job stands in the line has changed meanwhile
		case storeLost, callerGone:
			c.StoreLost = true
			return look, nil
		case draining:
			return look, nil
		}
	}
}

package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"forebay/api"
	"forebay/internal/leaky"
)

// Answers that are held back cost Redis nothing while nothing happens: whoever waits is told by Finals when to look again.

// Kinds of answers that are held back, as forebay_held_answers names them.
const (
	heldWait   = "wait"   // Prefer: wait=N
	heldStream = "stream" // Accept: text/event-stream
)

const (
	// maxWaiters bounds the answers that are held back at one time. Each takes about 30 KiB, most of it its connection's.
	maxWaiters = 10_000
	// maxWaitersEach bounds those of one client, so that no one takes all.
	maxWaitersEach = maxWaiters / 4
)

// waits counts the answers that are held back. Safe for concurrent use.
type waits struct {
	all, each int // how many there may be: of all clients, and of one

	mu      sync.Mutex
	kinds   map[string]int // guarded by mu
	clients map[string]int // guarded by mu; by id; none at 0
}

func newWaits(all, each int) *waits {
	return &waits{all: all, each: each, kinds: map[string]int{}, clients: map[string]int{}}
}

// enter counts one more, where there may be one. leave must be called once it is held back no more.
func (w *waits) enter(kind, client string) (leave func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kinds[heldWait]+w.kinds[heldStream] >= w.all || w.clients[client] >= w.each {
		return nil, false
	}
	w.kinds[kind]++
	w.clients[client]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.kinds[kind]--
		if w.clients[client]--; w.clients[client] == 0 {
			delete(w.clients, client)
		}
	}, true
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
	v := &vigil{s: s, c: c, line: line, id: look.Job.ID, lost: s.Store.Lost(), over: time.NewTimer(span)}
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.c.r.Context()), storeTime)
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
	case <-v.c.r.Context().Done():
		return callerGone
	case <-beat:
		return beatDue
	}
}

// await holds the answer back until the job is done, as long as the client prefers, and returns where the job stands then. It is cut
// short when the client is gone, when the server drains and when the store is lost; then it returns what was known last.
func (s *Server) await(c *call, line Line, look leaky.Look) (leaky.Look, error) {
	return s.hold(c, line, look, done)
}

func done(look leaky.Look) bool { return look.Standing.State.Final() }

// hold is await for an end of the caller's own.
func (s *Server) hold(c *call, line Line, look leaky.Look, enough func(leaky.Look) bool) (leaky.Look, error) {
	wait := preferredWait(c.r.Header[api.HeaderPrefer])
	if wait == 0 {
		return look, nil
	}
	applied := []string{"wait=" + strconv.Itoa(int(wait/time.Second))}
	if enough(look) {
		c.w.Header()[api.HeaderPreferenceApplied] = applied
		return look, nil
	}
	leave, ok := s.waits.enter(heldWait, c.client.ID)
	if !ok {
		return look, nil // too many wait already; the preference isn't applied
	}
	defer leave()
	c.w.Header()[api.HeaderPreferenceApplied] = applied
	// The server's time for reading is for requests; it would end the longest waits.
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(wait + readTime))

	began := time.Now()
	defer func() {
		c.held = time.Since(began)
		c.verdict, c.peeked = nil, nil // what the limits held before is old news
		c.renew(0)
	}()
	v := s.keepVigil(c, line, look, wait)
	defer v.end()
	for last := false; ; {
		fresh, err := v.look()
		if errors.Is(err, leaky.ErrUnknownJob) {
			delete(c.w.Header(), api.HeaderPreferenceApplied)
			return look, c.ownLookError(look.Job.ID, err)
		}
		if err != nil {
			_ = c.storeFailed(err) // logged; what was known before is an answer
			return look, nil
		}
		if look = fresh; last || enough(look) {
			return look, nil
		}
		switch v.next(nil) {
		case timeOver:
			last = true // where the job stands in the line has changed meanwhile
		case storeLost, callerGone:
			c.noStore = true
			return look, nil
		case draining:
			return look, nil
		}
	}
}

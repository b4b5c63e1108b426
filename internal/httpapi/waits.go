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

// Answers that are held back cost Redis nothing while their jobs don't move: Finals notifies their
// job watches of moves.

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

// heldBounds bound the room that answers take: in all, and of one client, so that no client takes
// all of it. Addresses cost nothing, so callers without a key have less: an address has enough for
// the people of an office, and a network (an IPv4 /24 or an IPv6 /48, the size of a site) twice
// that. All callers without a key together leave some room to clients with a key.
type heldBounds struct{ all, client, anonymous, address, network int }

// of returns the names under which a client's answers count, and the bound of each. A client with a
// key has only its id. Other callers have their id, their network, and "" for all of them together.
func (b heldBounds) of(client identity.Client) (names []string, most []int) {
	if client.Anonymous {
		return []string{client.ID, network(client.Address), ""},
			[]int{b.address, b.network, b.anonymous}
	}
	return []string{client.ID}, []int{b.client}
}

// waits counts the answers that are held back. Safe for concurrent use.
type waits struct {
	bounds heldBounds

	mu    sync.Mutex
	kinds map[string]int // guarded by mu
	// By the names of heldBounds.of; none at 0; guarded by mu. An id is never the text of a
	// network: it has no slash or begins with "ip:".
	holders map[string]int
}

func newWaits(b heldBounds) *waits {
	return &waits{bounds: b, kinds: map[string]int{}, holders: map[string]int{}}
}

// enter counts one more answer, if the bounds allow it. leave must be called when it is no longer
// held.
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

// network returns the network to which an address of identity.Client belongs: an IPv4 /24, an IPv6
// /48.
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
	prefix, _ = addr.Prefix(bits) // no error: addresses have more bits
	return prefix.String()
}

// held returns the number of held answers of a kind.
func (w *waits) held(kind string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kinds[kind]
}

// jobWatch is one call's watch over its job.
type jobWatch struct {
	s           *Server
	c           *call
	line        Line
	id          string
	moved       <-chan struct{}
	unavailable <-chan struct{} // closed while the store is
	over        *time.Timer
	forget      func()
}

// watchJob starts a watch over the job that a call is about, for at most span. The caller must then
// look once, since moves just before aren't notified, and must end the watch.
func (s *Server) watchJob(c *call, line Line, look leaky.Look, span time.Duration) *jobWatch {
	w := &jobWatch{s: s, c: c, line: line, id: look.Job.ID,
		unavailable: s.Store.Unavailable(), over: time.NewTimer(span)}
	if source := look.Job.Source(); source != w.id {
		w.moved, w.forget = s.Finals.Watch(w.id, source)
	} else {
		w.moved, w.forget = s.Finals.Watch(w.id)
	}
	return w
}

func (w *jobWatch) end() {
	w.over.Stop()
	w.forget()
}

// look returns where the job stands. It has web.StoreTime of its own.
func (w *jobWatch) look() (leaky.Look, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.c.R.Context()), web.StoreTime)
	defer cancel()
	return w.line.Look(ctx, w.id)
}

// happening is an event that a job watch reports.
type happening int

const (
	jobMoved         happening = iota // look again
	timeOver                          // the watch's span has passed
	draining                          // the server shuts down
	storeUnavailable                  // no moves will be notified
	callerGone
	beatDue
)

// next waits for something to happen; beat may be nil.
func (w *jobWatch) next(beat <-chan time.Time) happening {
	select {
	case <-w.moved:
		return jobMoved
	case <-w.over.C:
		return timeOver
	case <-w.s.draining:
		return draining
	case <-w.unavailable:
		return storeUnavailable
	case <-w.c.R.Context().Done():
		return callerGone
	case <-beat:
		return beatDue
	}
}

// await holds the answer back until the job is done, as long as the client prefers, and returns
// where the job stands then. If the client leaves, the server drains or the store becomes
// unavailable, it returns the last known state early. If too many answers are held back already, it
// returns a problem at once.
func (s *Server) await(c *call, line Line, look leaky.Look) (leaky.Look, error) {
	return s.hold(c, line, look, done)
}

func done(look leaky.Look) bool { return look.Standing.State.Final() }

// hold is await with the caller's own condition.
func (s *Server) hold(c *call, line Line, look leaky.Look,
	enough func(leaky.Look) bool) (leaky.Look, error) {
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
	// The server's read timeout is meant for requests. It would end the longest waits.
	_ = http.NewResponseController(c.W).SetReadDeadline(time.Now().Add(wait + web.ReadTime))

	began := time.Now()
	defer func() {
		c.Held = time.Since(began)
		c.verdict, c.peeked = nil, nil // the limits were read before the wait
		c.Renew(0)
	}()
	watch := s.watchJob(c, line, look, wait)
	defer watch.end()
	for last := false; ; {
		fresh, err := watch.look()
		if errors.Is(err, leaky.ErrUnknownJob) {
			delete(c.W.Header(), api.HeaderPreferenceApplied)
			return look, c.ownLookError(look.Job.ID, err)
		}
		if err != nil {
			_ = c.StoreFailed(err) // logged; the last known state is an answer
			return look, nil
		}
		if look = fresh; last || enough(look) {
			return look, nil
		}
		switch watch.next(nil) {
		case timeOver:
			last = true // where the job stands in the line has changed meanwhile
		case storeUnavailable, callerGone:
			c.StoreLost = true
			return look, nil
		case draining:
			return look, nil
		}
	}
}

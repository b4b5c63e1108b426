package leaky

import (
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/pubsub"
)

// Listener receives the messages of all lines of a process over one pub/sub connection, however
// many jobs are watched. Messages are lost while the connection is down. Watchers are notified when
// that may have happened, so they don't have to poll. Safe for concurrent use.
type Listener struct {
	reader *pubsub.Reader
	wakes  map[string]chan struct{}

	mu       sync.Mutex
	abort    func(id string)                  // guarded by mu
	watching map[string]map[*watcher]struct{} // guarded by mu; by job id
}

// watcher is one call of Watch.
type watcher struct{ moved chan struct{} }

func (w *watcher) notify() {
	select {
	case w.moved <- struct{}{}:
	default: // a notification is pending already
	}
}

// ListenOption is an option of Listen.
type ListenOption func(*listening)

type listening struct{ moves bool }

// WithoutMoves is for processes that don't watch jobs: they don't receive each move of each job.
// Then Watch isn't notified of moves.
func WithoutMoves() ListenOption { return func(o *listening) { o.moves = false } }

// Listen subscribes to the wake-ups, aborts and moves of the backends' jobs. It reconnects by
// itself until Close.
func Listen(rdb redis.UniversalClient, backends []string, options ...ListenOption) *Listener {
	o := listening{moves: true}
	for _, option := range options {
		option(&o)
	}
	l := &Listener{wakes: map[string]chan struct{}{},
		watching: map[string]map[*watcher]struct{}{}}
	topics := map[string]func(string){}
	for _, backend := range backends {
		wake := make(chan struct{}, 1)
		l.wakes[backend] = wake
		topics[wakeChannel(backend)] = func(string) {
			select {
			case wake <- struct{}{}:
			default: // a wake-up is pending already
			}
		}
		topics[abortChannel(backend)] = l.handleAbort
		if o.moves {
			topics[movedChannel(backend)] = l.handleMove
			topics[finalChannel(backend)] = l.handleMove
		}
	}
	l.reader = pubsub.Read(pubsub.Config{Redis: rdb, Topics: topics, Subscribed: l.notifyAll})
	return l
}

// Close ends the connection and waits for the last handler to return.
func (l *Listener) Close() error { return l.reader.Close() }

// Wake returns a channel that has a value when it is worth calling Release for the backend.
// Wake-ups that haven't been received yet become one. For a backend that wasn't given to Listen the
// channel is nil.
func (l *Listener) Wake(backend string) <-chan struct{} { return l.wakes[backend] }

// OnAbort makes the listener call f with the id of each running job that is to be canceled, in
// whatever process it runs. f must not block.
func (l *Listener) OnAbort(f func(id string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abort = f
}

func (l *Listener) handleAbort(id string) {
	l.mu.Lock()
	f := l.abort
	l.mu.Unlock()
	if f != nil {
		f(id)
	}
}

// Watch returns a channel that has a value when any of the jobs has moved: when it runs, waits
// again, is delayed or ends. (Getting a slot doesn't count, because the job runs a moment later.)
// Moves that haven't been received yet become one. It also has a value whenever the connection was
// renewed, because moves may have been missed. forget must be called at the end.
//
// Look at the jobs after Watch, and after each value. Then no move is missed.
func (l *Listener) Watch(ids ...string) (moved <-chan struct{}, forget func()) {
	w := &watcher{moved: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if l.watching[id] == nil {
			l.watching[id] = map[*watcher]struct{}{}
		}
		l.watching[id][w] = struct{}{}
	}
	return w.moved, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, id := range ids {
			delete(l.watching[id], w)
			if len(l.watching[id]) == 0 {
				delete(l.watching, id)
			}
		}
	}
}

func (l *Listener) handleMove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.watching[id] {
		w.notify()
	}
}

func (l *Listener) notifyAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, watchers := range l.watching {
		for w := range watchers {
			w.notify()
		}
	}
}

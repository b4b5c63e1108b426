package leaky

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Listener receives the messages of all lines of a process over one pub/sub connection, however
// many jobs are watched. Messages are lost while the connection is down. Watchers are notified when
// that may have happened, so they don't have to poll. Safe for concurrent use.
type Listener struct {
	rdb      redis.UniversalClient
	channels []string
	silence  time.Duration
	stop     chan struct{}  // closed by Close
	all      sync.WaitGroup // the goroutines that read and ping
	wakes    map[string]chan struct{}
	topics   map[string]func(payload string) // by channel

	mu       sync.Mutex
	pubsub   *redis.PubSub                    // guarded by mu; nil once closed
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

const (
	// A ping is sent every pingEvery, and a connection that is silent for maxSilence is given up:
	// its other end may be gone, and TCP by itself would take a quarter of an hour to notice.
	pingEvery  = 3 * time.Second
	maxSilence = 10 * time.Second
	// connectRest is the pause after a connection has failed.
	connectRest = 100 * time.Millisecond
)

// ListenOption is an option of Listen.
type ListenOption func(*listening)

type listening struct {
	moves   bool
	silence time.Duration
}

// WithoutMoves is for processes that don't watch jobs: they don't receive each move of each job.
// Then Watch isn't notified of moves.
func WithoutMoves() ListenOption { return func(o *listening) { o.moves = false } }

// Listen subscribes to the wake-ups, aborts and moves of the backends' jobs. It reconnects by
// itself until Close.
func Listen(rdb redis.UniversalClient, backends []string, options ...ListenOption) *Listener {
	o := listening{moves: true, silence: maxSilence}
	for _, option := range options {
		option(&o)
	}
	l := &Listener{rdb: rdb, silence: o.silence, stop: make(chan struct{}),
		wakes:  map[string]chan struct{}{},
		topics: map[string]func(string){}, watching: map[string]map[*watcher]struct{}{}}
	on := func(channel string, handle func(string)) {
		l.channels = append(l.channels, channel)
		l.topics[channel] = handle
	}
	for _, backend := range backends {
		wake := make(chan struct{}, 1)
		l.wakes[backend] = wake
		on(wakeChannel(backend), func(string) {
			select {
			case wake <- struct{}{}:
			default: // a wake-up is pending already
			}
		})
		on(abortChannel(backend), l.handleAbort)
		if o.moves {
			on(movedChannel(backend), l.handleMove)
			on(finalChannel(backend), l.handleMove)
		}
	}
	l.pubsub = rdb.Subscribe(context.Background(), l.channels...)
	l.all.Go(l.read)
	l.all.Go(l.ping)
	return l
}

// current returns the connection in use, or nil once the listener is closed.
func (l *Listener) current() *redis.PubSub {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pubsub
}

// read handles messages until Close. It doesn't use go-redis's own loop, which waits forever if the
// other end is gone.
func (l *Listener) read() {
	for p := l.current(); p != nil; p = l.current() {
		message, err := p.ReceiveTimeout(context.Background(), l.silence)
		var broken net.Error
		switch {
		case errors.As(err, &broken) && broken.Timeout():
			l.renew(p)
		case err != nil: // p reconnects by itself
			select {
			case <-time.After(connectRest):
			case <-l.stop:
			}
		default:
			l.handle(message)
		}
	}
}

func (l *Listener) handle(message any) {
	switch m := message.(type) {
	case *redis.Message:
		if handle := l.topics[m.Channel]; handle != nil {
			handle(m.Payload)
		}
	case *redis.Subscription:
		if m.Count >= len(l.channels) { // the last of them
			l.notifyAll()
		}
	}
}

// renew replaces a connection that is taken for dead.
func (l *Listener) renew(dead *redis.PubSub) {
	dead.Close()
	fresh := l.rdb.Subscribe(context.Background(), l.channels...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pubsub == nil { // closed meanwhile
		fresh.Close()
		return
	}
	l.pubsub = fresh
}

func (l *Listener) ping() {
	tick := time.NewTicker(min(pingEvery, l.silence/3))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-l.stop:
			return
		}
		if p := l.current(); p != nil {
			ctx, cancel := context.WithTimeout(context.Background(), pingEvery)
			_ = p.Ping(ctx) // read notices if it fails
			cancel()
		}
	}
}

// Close ends the connection and waits for the last handler to return.
func (l *Listener) Close() error {
	l.mu.Lock()
	p := l.pubsub
	l.pubsub = nil
	l.mu.Unlock()
	if p == nil {
		return nil
	}
	close(l.stop)
	err := p.Close()
	l.all.Wait()
	return err
}

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

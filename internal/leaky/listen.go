package leaky

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Listener is one process's ear for all its lines: one pub/sub connection, however many jobs are waited for. What it
// hears is a hint: messages are lost while the connection is. Whoever watches jobs is told when that may have happened, so that nobody
// has to poll. Safe for concurrent use.
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

// watcher is one who waits for moves.
type watcher struct{ moved chan struct{} }

func (w *watcher) tell() {
	select {
	case w.moved <- struct{}{}:
	default: // it is told already, and will look
	}
}

const (
	// A connection that is quiet for maxSilence is given up, though a ping goes out every pingEvery: its other end may be gone
	// without a word, and TCP alone would take a quarter of an hour to say so.
	pingEvery  = 3 * time.Second
	maxSilence = 10 * time.Second
	// connectRest is the pause after a connection that couldn't be made.
	connectRest = 100 * time.Millisecond
)

// ListenOption changes what a Listener hears.
type ListenOption func(*listening)

type listening struct {
	moves   bool
	silence time.Duration
}

// WithoutMoves is for processes where nobody waits for jobs: they aren't sent each move of each job. Watch hears nothing of jobs then.
func WithoutMoves() ListenOption { return func(o *listening) { o.moves = false } }

// Listen subscribes to the wake-ups, aborts and moves of the backends' jobs. It reconnects by itself until Close.
func Listen(rdb redis.UniversalClient, backends []string, options ...ListenOption) *Listener {
	o := listening{moves: true, silence: maxSilence}
	for _, option := range options {
		option(&o)
	}
	l := &Listener{rdb: rdb, silence: o.silence, stop: make(chan struct{}), wakes: map[string]chan struct{}{},
		topics: map[string]func(string){}, watching: map[string]map[*watcher]struct{}{}}
	on := func(channel string, heard func(string)) {
		l.channels = append(l.channels, channel)
		l.topics[channel] = heard
	}
	for _, backend := range backends {
		wake := make(chan struct{}, 1)
		l.wakes[backend] = wake
		on(wakeChannel(backend), func(string) {
			select {
			case wake <- struct{}{}:
			default: // one wake-up waits already
			}
		})
		on(abortChannel(backend), l.heardAbort)
		if o.moves {
			on(movedChannel(backend), l.heardMove)
			on(finalChannel(backend), l.heardMove)
		}
	}
	l.pubsub = rdb.Subscribe(context.Background(), l.channels...)
	l.all.Go(l.read)
	l.all.Go(l.ping)
	return l
}

// current is the connection in use; nil once the listener is closed.
func (l *Listener) current() *redis.PubSub {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pubsub
}

// read hands on what comes, until Close. It isn't go-redis's own loop since that one waits for ever on an end that is gone.
func (l *Listener) read() {
	for p := l.current(); p != nil; p = l.current() {
		message, err := p.ReceiveTimeout(context.Background(), l.silence)
		var broken net.Error
		switch {
		case errors.As(err, &broken) && broken.Timeout():
			l.renew(p)
		case err != nil: // p connects again by itself
			select {
			case <-time.After(connectRest):
			case <-l.stop:
			}
		default:
			l.heard(message)
		}
	}
}

func (l *Listener) heard(message any) {
	switch m := message.(type) {
	case *redis.Message:
		if heard := l.topics[m.Channel]; heard != nil {
			heard(m.Payload)
		}
	case *redis.Subscription:
		if m.Count >= len(l.channels) { // to the last of them
			l.tellAll()
		}
	}
}

// renew puts a new connection in the place of one that is as good as dead.
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
			_ = p.Ping(ctx) // read notices what comes of it
			cancel()
		}
	}
}

// Close ends the subscription and waits for the last handler to return.
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

// Wake has a value when the backend's drain is worth asking now. Wake-ups that nobody has taken yet become one.
// The channel is nil, and never ready, for a backend that Listen wasn't given.
func (l *Listener) Wake(backend string) <-chan struct{} { return l.wakes[backend] }

// OnAbort has f called with the id of each running job that is to be canceled, whichever process runs it. f must not block.
func (l *Listener) OnAbort(f func(id string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abort = f
}

func (l *Listener) heardAbort(id string) {
	l.mu.Lock()
	f := l.abort
	l.mu.Unlock()
	if f != nil {
		f(id)
	}
}

// Watch tells when any of the jobs moves from now on: when it runs, waits again, is delayed or ends. (That it gets its slot isn't told: it
// runs a moment later.) Moves that nobody has taken from the channel yet become one. It also has a value whenever the subscription was
// made anew, for then moves may have been missed. forget must be called once the caller no longer waits.
//
// Look at the jobs after Watch, and after each value: then nothing is missed and nobody polls.
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

func (l *Listener) heardMove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.watching[id] {
		w.tell()
	}
}

func (l *Listener) tellAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, watchers := range l.watching {
		for w := range watchers {
			w.tell()
		}
	}
}

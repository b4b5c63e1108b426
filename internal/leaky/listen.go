package leaky

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Listener is one process's ear for all its lines: one pub/sub connection, however many jobs are waited for. What it
// hears is a hint that saves a poll: a message can be lost while the connection is, so whoever waits also asks now
// and then. Safe for concurrent use.
type Listener struct {
	pubsub *redis.PubSub
	ended  chan struct{} // closed when the reading goroutine has ended
	wakes  map[string]chan struct{}
	topics map[string]func(payload string) // by channel

	mu      sync.Mutex
	abort   func(id string)          // guarded by mu
	waiting map[string]*finalWaiters // guarded by mu; by job id
}

type finalWaiters struct {
	done  chan struct{}
	count int
}

// Listen subscribes to the wake-ups, aborts and ends of the backends' jobs. It reconnects by itself until Close.
func Listen(rdb redis.UniversalClient, backends []string) *Listener {
	l := &Listener{ended: make(chan struct{}), wakes: map[string]chan struct{}{}, topics: map[string]func(string){}, waiting: map[string]*finalWaiters{}}
	var channels []string
	on := func(channel string, heard func(string)) {
		channels = append(channels, channel)
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
		on(finalChannel(backend), l.heardFinal)
	}
	l.pubsub = rdb.Subscribe(context.Background(), channels...)
	go l.read(l.pubsub.Channel(redis.WithChannelSize(1000)))
	return l
}

func (l *Listener) read(messages <-chan *redis.Message) {
	defer close(l.ended)
	for m := range messages {
		if heard := l.topics[m.Channel]; heard != nil {
			heard(m.Payload)
		}
	}
}

// Close ends the subscription and waits for the last handler to return.
func (l *Listener) Close() error {
	err := l.pubsub.Close()
	<-l.ended
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

// Done returns a channel that closes when the job reaches its final state from now on. forget must be called once
// the caller no longer waits. Look at the job after Done, not before it, or its end may be missed.
func (l *Listener) Done(id string) (done <-chan struct{}, forget func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waiting[id]
	if w == nil {
		w = &finalWaiters{done: make(chan struct{})}
		l.waiting[id] = w
	}
	w.count++
	return w.done, sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		w.count--
		if w.count == 0 && l.waiting[id] == w {
			delete(l.waiting, id)
		}
	})
}

func (l *Listener) heardFinal(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.waiting[id]; w != nil {
		close(w.done)
		delete(l.waiting, id)
	}
}

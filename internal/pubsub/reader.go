// Package pubsub reads messages that processes publish through Redis, and notices when its
// connection is dead.
package pubsub

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// A ping is sent every pingEvery, and a connection that is silent for maxSilence is given up:
	// its other end may be gone, and TCP by itself would take a quarter of an hour to notice.
	pingEvery  = 3 * time.Second
	maxSilence = 10 * time.Second
	// connectRest is the pause after a connection has failed.
	connectRest = 100 * time.Millisecond
)

// Config has the channels of a Reader and the functions that it calls. It calls one at a time. Each
// must return soon, because the Reader reads no message meanwhile.
type Config struct {
	Redis redis.UniversalClient
	// Topics has for each channel the function that is called with each message's payload.
	Topics map[string]func(payload string)
	// Subscribed, if it isn't nil, is called once all channels are subscribed to: at the start, and
	// each time that the connection was replaced and messages may have been missed.
	Subscribed func()
	// Silence is how long a connection may be silent, answers to pings included, before it is given
	// up; 0: 10 s.
	Silence time.Duration
}

// Reader reads the messages of some channels over one connection, which it replaces when it breaks
// or falls silent. Messages that are published while it has none are lost. It is safe for
// concurrent use.
type Reader struct {
	config   Config
	channels []string
	stop     chan struct{}  // closed by Close
	all      sync.WaitGroup // the goroutines that read and ping

	mu     sync.Mutex
	pubsub *redis.PubSub // guarded by mu; nil once closed
}

// Read subscribes to the channels of c, and the Reader calls its functions until Close. Read tries
// to connect first, for the client's dial timeout at most. The Reader goes on trying if that fails.
func Read(c Config) *Reader {
	if c.Silence == 0 {
		c.Silence = maxSilence
	}
	r := &Reader{config: c, channels: slices.Sorted(maps.Keys(c.Topics)),
		stop: make(chan struct{})}
	r.pubsub = r.subscribe()
	r.all.Go(r.read)
	r.all.Go(r.ping)
	return r
}

// Close ends the connection and waits for the last call of a function of Config to return, so no
// such function may call it. Further calls do nothing.
func (r *Reader) Close() error {
	r.mu.Lock()
	p := r.pubsub
	r.pubsub = nil
	r.mu.Unlock()
	if p == nil {
		return nil
	}
	close(r.stop)
	err := p.Close()
	r.all.Wait()
	return err
}

func (r *Reader) subscribe() *redis.PubSub {
	return r.config.Redis.Subscribe(context.Background(), r.channels...)
}

// current returns the connection in use, or nil once the reader is closed.
func (r *Reader) current() *redis.PubSub {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pubsub
}

// read handles messages until Close. It doesn't use go-redis's own loop, which waits forever if the
// other end is gone.
func (r *Reader) read() {
	for p := r.current(); p != nil; p = r.current() {
		message, err := p.ReceiveTimeout(context.Background(), r.config.Silence)
		var broken net.Error
		switch {
		case errors.As(err, &broken) && broken.Timeout():
			r.renew(p)
		case err != nil: // p reconnects by itself
			select {
			case <-time.After(connectRest):
			case <-r.stop:
			}
		default:
			r.handle(message)
		}
	}
}

func (r *Reader) handle(message any) {
	switch m := message.(type) {
	case *redis.Message:
		if handle := r.config.Topics[m.Channel]; handle != nil {
			handle(m.Payload)
		}
	case *redis.Subscription:
		// The last of them.
		if m.Count >= len(r.channels) && r.config.Subscribed != nil {
			r.config.Subscribed()
		}
	}
}

// renew replaces a connection that is presumed dead.
func (r *Reader) renew(dead *redis.PubSub) {
	defer dead.Close() // after it is replaced: Close returns errors of the current one only
	fresh := r.subscribe()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pubsub == nil { // closed meanwhile
		fresh.Close()
		return
	}
	r.pubsub = fresh
}

func (r *Reader) ping() {
	tick := time.NewTicker(min(pingEvery, r.config.Silence/3))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.stop:
			return
		}
		if p := r.current(); p != nil {
			ctx, cancel := context.WithTimeout(context.Background(), pingEvery)
			_ = p.Ping(ctx) // read notices if it fails
			cancel()
		}
	}
}

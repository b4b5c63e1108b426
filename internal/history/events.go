package history

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/api"
)

//go:embed scripts/event.lua
var eventLua string

var eventScript = redis.NewScript(eventLua)

const (
	// MaxEvents bounds the events that are kept, as event.lua and add.lua have it.
	MaxEvents = 10_000
	// maxQueued bounds the events that a process keeps while it can't reach Redis.
	maxQueued = 100
	// maxText bounds the texts of an event in bytes, and maxSettings their number.
	maxText     = 500
	maxSettings = 20
	// retryEvery is how often a process that couldn't write tries again.
	retryEvery = time.Second
	// unique is how long an event that is recorded isn't recorded again, when a reply was lost.
	unique = 10 * time.Minute
	// prompt is how late an event may be written to count as just happened.
	prompt = time.Second
	// lookEvery is how often the store is looked at while it is lost. A look costs nothing.
	lookEvery = 100 * time.Millisecond
)

// Events are what happened in the service's operation, for all processes together: the last 48 h,
// 10,000 at most. Safe for concurrent use. A nil *Events records nothing.
type Events struct {
	rdb redis.UniversalClient
	log *slog.Logger
	now func() time.Time // on Redis's clock

	wake chan struct{} // has a value when there is something to write

	mu      sync.Mutex
	queue   []queued // guarded by mu: the oldest first
	dropped int      // guarded by mu: of queue

	mirror mirror
}

// queued is an event that isn't written yet.
type queued struct {
	api.OperationEvent
	at     time.Time     // when it happened
	mark   string        // what it is known by
	within time.Duration // how long an event with this mark isn't recorded again
}

// NewEvents returns Events that are kept in Redis. Those of Record get there only while Run runs.
// now is the time on Redis's clock.
func NewEvents(rdb redis.UniversalClient, now func() time.Time, log *slog.Logger) *Events {
	e := &Events{rdb: rdb, log: log, now: now, wake: make(chan struct{}, 1)}
	e.lookAnew()
	return e
}

// Record notes an event that this process alone knows of. ID and Time are set when it is written.
// It never waits for Redis. While Redis is unavailable 100 events are kept, and further ones are
// counted.
func (e *Events) Record(event api.OperationEvent) { e.add(event, rand.Text(), unique) }

// RecordOnce is Record for an event that other processes record too: the first of all with this
// type and mark in some time is kept.
func (e *Events) RecordOnce(event api.OperationEvent, mark string, within time.Duration) {
	sum := sha256.Sum256([]byte(event.Type + " " + mark))
	e.add(event, base64.RawURLEncoding.EncodeToString(sum[:16]), within)
}

func (e *Events) add(event api.OperationEvent, mark string, within time.Duration) {
	if e == nil {
		return
	}
	bound(&event)
	e.mu.Lock()
	if len(e.queue) >= maxQueued {
		e.queue, e.dropped = e.queue[1:], e.dropped+1
	}
	e.queue = append(e.queue, queued{event, time.Now(), mark, within})
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// bound cuts what is too long: an operator may give any reason.
func bound(event *api.OperationEvent) {
	for _, text := range []*string{&event.Backend, &event.By, &event.Reason, &event.Text} {
		*text = cut(*text)
	}
	for _, settings := range []*map[string]string{&event.Before, &event.After} {
		kept := map[string]string{}
		for name, value := range *settings {
			if len(kept) < maxSettings {
				kept[cut(name)] = cut(value)
			}
		}
		if *settings = kept; len(kept) == 0 {
			*settings = nil
		}
	}
}

func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return text[:maxText] + "…" // a broken character is replaced when it is encoded
}

// Run writes events to Redis until ctx ends, and those that are left once after.
func (e *Events) Run(ctx context.Context) {
	for ctx.Err() == nil {
		var again <-chan time.Time
		if err := e.write(ctx); err != nil {
			e.log.Debug("history: an event is not written yet", "error", err)
			again = time.After(retryEvery)
		}
		select {
		case <-e.wake:
		case <-again:
		case <-ctx.Done():
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	if err := e.write(last); err != nil {
		e.log.Warn("history: events are lost with this process", "error", err)
	}
}

// write writes all that is noted, in order. What was dropped was older than all of it.
func (e *Events) write(ctx context.Context) error {
	for {
		e.mu.Lock()
		dropped := e.dropped
		if len(e.queue) == 0 && dropped == 0 {
			e.mu.Unlock()
			return nil
		}
		var next queued
		if dropped == 0 {
			next = e.queue[0]
		}
		e.mu.Unlock()
		if dropped > 0 {
			next = queued{OperationEvent: api.OperationEvent{Type: api.EventsDropped,
				Text: strconv.Itoa(dropped) + " events"}, at: time.Now(), mark: rand.Text(),
				within: unique}
		}
		if err := e.writeOne(ctx, next); err != nil {
			return err
		}
		e.mu.Lock()
		e.dropped -= dropped
		if len(e.queue) > 0 && e.queue[0].mark == next.mark { // it wasn't dropped meanwhile
			e.queue = e.queue[1:]
		}
		e.mu.Unlock()
	}
}

func (e *Events) writeOne(ctx context.Context, q queued) error {
	bounded, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	text, err := json.Marshal(q.OperationEvent)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	ago := time.Since(q.at)
	if ago < prompt {
		ago = 0
	}
	err = eventScript.Run(bounded, e.rdb, []string{keyEvents, prefixOnce + q.mark}, text,
		ago.Microseconds(), q.within.Milliseconds()).Err()
	if err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return nil
}

// Store is the connection to Redis, as package store has it.
type Store interface {
	Healthy() bool
	Unavailable() <-chan struct{} // closed once it is unavailable
	Reason() string
}

// outageApart is the time in which the outages that several processes notice count as one.
const outageApart = 10 * time.Second

// WatchStore records outages of the store, until ctx ends: each when it is over, as it can't be
// before.
func (e *Events) WatchStore(ctx context.Context, s Store) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.Unavailable():
		case <-ctx.Done():
			return
		}
		began := time.Now()
		e.RecordOnce(api.OperationEvent{Type: api.EventStoreLost, Text: s.Reason()}, "",
			outageApart)
		for !s.Healthy() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		e.RecordOnce(api.OperationEvent{Type: api.EventStoreFound,
			Text: "after " + time.Since(began).Round(lookEvery).String()}, "", outageApart)
	}
}

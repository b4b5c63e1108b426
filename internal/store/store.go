// Package store is the connection to Redis: one server, a master behind sentinels, a cluster, or
// one embedded in the process. It reports whether Redis answers now, and whether it is fit to keep
// jobs.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

const (
	// Redis is probed every probeEvery, each probe for at most probeTimeout. An outage is noticed
	// within their sum.
	probeEvery   = 250 * time.Millisecond
	probeTimeout = 500 * time.Millisecond
	// recheckEvery is how often a healthy Redis is inspected again: its settings and its role may
	// change.
	recheckEvery = 10 * time.Second
	// writeEvery is how often a write is tried: a Redis that is full, or has become a replica,
	// answers PING but takes no writes.
	writeEvery = time.Second
	// unprobed is the reason before the first probe has ended.
	unprobed = "not probed yet"
)

// Store is the connection to one Redis. It is safe for concurrent use.
type Store struct {
	log      *slog.Logger
	target   target
	client   redis.UniversalClient
	executor redis.UniversalClient
	embedded *miniredis.Miniredis // nil unless embedded
	maxKeys  int64                // embedded
	strays   *misplaced

	stop  context.CancelFunc
	all   sync.WaitGroup // background goroutines
	close func() error   // runs shut, once

	inspected time.Time // used by probe only
	written   time.Time // used by probe only: the time of the last trial write

	mu       sync.RWMutex
	reason   string        // guarded by mu: why unhealthy; "" if healthy
	since    time.Time     // guarded by mu: when reason last became or ceased to be ""
	outage   chan struct{} // guarded by mu: closed while reason isn't ""
	warnings []string      // guarded by mu
	refusal  string        // guarded by mu: why Redis takes no writes; "" if it does
}

// Open connects to the Redis that c names. Its only errors are those of c.Check, which show no
// secret.
//
// If Redis is absent, hung or too old, Open logs that, Healthy returns false, and the Store keeps
// trying until Close. Open takes at most half a second, less if ctx ends. go-redis's own messages
// go to log at debug level, for the whole process.
func Open(ctx context.Context, c Config, log *slog.Logger) (*Store, error) {
	return open(ctx, c, log, maxEmbeddedKeys)
}

func open(ctx context.Context, c Config, log *slog.Logger, maxKeys int64) (*Store, error) {
	redis.SetLogger(libraryLog{log})
	s := &Store{log: log, maxKeys: maxKeys, reason: unprobed, since: time.Now(),
		outage: make(chan struct{})}
	close(s.outage)
	var err error
	if c.URL == "" {
		s.embedded, s.target, err = embed()
	} else {
		s.target, err = c.target()
	}
	if err != nil {
		return nil, err
	}
	s.client = s.target.client(frontPool, frontTimeout)
	s.executor = s.target.client(executorPool, executorTimeout)
	s.strays = newMisplaced(func(warning string) { log.Error("redis: " + warning) })
	s.client.AddHook(s.strays)
	s.executor.AddHook(s.strays)
	s.close = sync.OnceValue(s.shut)

	var watching context.Context
	watching, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if s.embedded != nil {
		log.Warn("redis: embedded in this process: nothing is kept when it ends")
		s.warnings = []string{"The store is embedded: nothing is kept when the process ends."}
		s.all.Go(func() { age(watching, s.embedded) })
	}
	s.probe(ctx)
	s.all.Go(func() { s.watch(watching) })
	return s, nil
}

// Client returns the client for admission and other calls that a caller waits for. It repeats no
// command. A hung Redis is an error within about 500 ms, or when the context ends.
func (s *Store) Client() redis.UniversalClient { return s.client }

// Executor returns the client for asynq. It has a pool of its own, so that it can't delay Client,
// and timeouts of 2 s.
func (s *Store) Executor() redis.UniversalClient { return s.executor }

// Embedded reports whether Redis is inside this process and keeps no data.
func (s *Store) Embedded() bool { return s.embedded != nil }

// Cluster reports whether Redis is a cluster, where a script's keys must share a hash slot.
func (s *Store) Cluster() bool { return s.target.kind == cluster }

// Healthy reports whether the last probe succeeded: Redis answered within 500 ms and is fit. An
// outage is noticed within 750 ms, and its end within 250 ms of Redis's first answer. Healthy reads
// memory only: check it before a call for which a caller would otherwise wait in vain.
func (s *Store) Healthy() bool { return s.Reason() == "" }

// Reason returns why the store is not healthy; "" if it is. It may contain Redis's address, so it
// is for the operator, not for clients.
func (s *Store) Reason() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.reason
}

// Since returns when the store last became healthy, or ceased to be.
func (s *Store) Since() time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.since
}

// Unavailable returns a channel that is closed while the store isn't healthy, or as soon as it no
// longer is. After a recovery, Unavailable returns a new channel. With it, a goroutine that waits
// for a message from Redis need not poll for outages.
func (s *Store) Unavailable() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.outage
}

// Writable reports whether Redis took the last trial write, within the last second or so. If it
// didn't (it is full, or has become a replica), jobs can't be admitted, but existing data can still
// be read.
func (s *Store) Writable() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.refusal == ""
}

// Warnings returns sentences about faults of a Redis that works: it may evict jobs, or doesn't
// persist them, or a key holds another program's value.
func (s *Store) Warnings() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return append(slices.Clone(s.warnings), s.strays.warnings()...)
}

// Close ends the probes and closes all connections. An embedded Redis ends with its data. Further
// calls do nothing.
func (s *Store) Close() error { return s.close() }

func (s *Store) shut() error {
	s.stop()
	s.all.Wait()
	err := errors.Join(s.client.Close(), s.executor.Close())
	if s.embedded != nil {
		s.embedded.Close()
	}
	return err
}

// watch probes until ctx ends.
func (s *Store) watch(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.probe(ctx)
		}
	}
}

// probe pings Redis and, on first contact, after an outage and at intervals, checks whether it is
// fit.
func (s *Store) probe(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := s.ping(bounded)
	var found node
	if s.embedded != nil {
		found.version = "embedded"
	}
	if err == nil && s.embedded == nil &&
		(!s.Healthy() || time.Since(s.inspected) >= recheckEvery) {
		if found, err = inspect(bounded, s.client); err == nil {
			s.inspected = time.Now()
			s.warn(found.warnings)
		}
	}
	if err == nil && s.embedded == nil && time.Since(s.written) >= writeEvery {
		s.written = time.Now()
		s.tryWrite(bounded)
	}
	if ctx.Err() != nil {
		return // stopping: the error would be ours, not Redis's
	}
	s.record(err, found.version)
}

// tryWrite checks whether Redis takes writes. Only Redis's own errors count: a write that failed on
// the way is left to the next probe.
func (s *Store) tryWrite(ctx context.Context) {
	err := s.client.Set(ctx, "fb:probe", 1, 10*writeEvery).Err()
	var refused redis.Error
	if err != nil && !errors.As(err, &refused) {
		return
	}
	refusal := ""
	if err != nil {
		refusal = err.Error()
	}
	s.mu.Lock()
	was := s.refusal
	s.refusal = refusal
	s.mu.Unlock()
	switch {
	case refusal != "" && was == "":
		s.log.Error("redis: takes no writes", "redis", s.target.String(), "reason", refusal)
	case refusal == "" && was != "":
		s.log.Info("redis: takes writes again", "redis", s.target.String())
	}
}

// ping uses the front's own pool, so it fails when the front would.
func (s *Store) ping(ctx context.Context) error {
	if s.embedded != nil {
		n, err := s.client.DBSize(ctx).Result()
		if err == nil && n > s.maxKeys {
			err = unfit(fmt.Sprintf(
				"the embedded store is full, with over %d keys: set redis.url to a Redis server",
				s.maxKeys))
		}
		return err
	}
	c, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return s.client.Ping(ctx).Err()
	}
	err := c.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		return master.Ping(ctx).Err()
	})
	if err != nil {
		return err
	}
	// A cluster that is down answers PING, but no command with a key.
	return c.Exists(ctx, "fb:probe").Err()
}

// record applies a probe's result. It logs each change of health, and a Redis that is back but
// unfit.
func (s *Store) record(err error, version string) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	s.mu.Lock()
	was, since := s.reason, s.since
	s.reason = reason
	if (was == "") != (reason == "") {
		s.since = time.Now()
		if reason == "" {
			s.outage = make(chan struct{})
		} else {
			close(s.outage)
		}
	}
	s.mu.Unlock()
	var fault unfit
	switch {
	case reason == "" && was != "":
		s.log.Info("redis: healthy", "redis", s.target.String(), "version", version,
			"after", time.Since(since).Round(time.Millisecond))
	case reason != "" && (was == "" || was == unprobed), errors.As(err, &fault) && reason != was:
		s.log.Error("redis: not healthy", "redis", s.target.String(), "reason", reason)
	}
}

// warn sets the warnings and logs the new ones.
func (s *Store) warn(warnings []string) {
	s.mu.Lock()
	old := s.warnings
	s.warnings = warnings
	s.mu.Unlock()
	for _, w := range warnings {
		if !slices.Contains(old, w) {
			s.log.Warn("redis: "+w, "redis", s.target.String())
		}
	}
}

// libraryLog receives the messages that go-redis would write to stderr. They are logged at debug
// level, since each error also reaches its caller.
type libraryLog struct{ log *slog.Logger }

func (l libraryLog) Printf(ctx context.Context, format string, args ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, fmt.Sprintf(format, args...), "from", "go-redis")
	}
}

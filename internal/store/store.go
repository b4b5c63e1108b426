// Package store is the connection to Redis: one server, a master behind sentinels, a cluster, or one embedded in the
// process. It knows whether Redis answers at this moment, and whether it is fit to keep jobs.
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
	// Redis is probed this often, each probe at most this long: a Redis that hangs or goes is noticed within the sum.
	probeEvery   = 250 * time.Millisecond
	probeTimeout = 500 * time.Millisecond
	// recheckEvery is how often a healthy Redis is inspected again: its settings and its role can change under us.
	recheckEvery = 10 * time.Second
	// A write is tried this often: a Redis that is full, or has become a replica, answers PING and takes no job.
	writeEvery = time.Second
	// unprobed is the reason until the first probe has ended.
	unprobed = "not probed yet"
)

// Store is a connection to Redis. Safe for concurrent use.
type Store struct {
	log      *slog.Logger
	target   target
	client   redis.UniversalClient
	executor redis.UniversalClient
	embedded *miniredis.Miniredis // nil unless embedded
	maxKeys  int64                // embedded
	strays   *misplaced

	stop  context.CancelFunc
	all   sync.WaitGroup // the background goroutines
	close func() error   // once

	inspected time.Time // the watcher's own
	written   time.Time // the watcher's own: when a write was tried last

	mu       sync.RWMutex
	reason   string        // guarded by mu: why unhealthy; "" when healthy
	since    time.Time     // guarded by mu: when reason became or ceased to be ""
	lost     chan struct{} // guarded by mu: closed while reason isn't ""
	warnings []string      // guarded by mu
	refusal  string        // guarded by mu: why Redis takes no writes; "" when it does
}

// Open connects to the Redis that c names. A Config that Check finds fault with is an error, which
// repeats no secret.
//
// A Redis that is absent, hung or too old is no error: Open says so in the log, Healthy is false, and the Store goes on
// trying until Close. Open takes at most half a second; ctx cuts that short. go-redis's own messages go to log at debug
// level, for the whole process.
func Open(ctx context.Context, c Config, log *slog.Logger) (*Store, error) {
	return open(ctx, c, log, maxEmbeddedKeys)
}

func open(ctx context.Context, c Config, log *slog.Logger, maxKeys int64) (*Store, error) {
	redis.SetLogger(libraryLog{log})
	s := &Store{log: log, maxKeys: maxKeys, reason: unprobed, since: time.Now(), lost: make(chan struct{})}
	close(s.lost)
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

// Client is for admission and everything else that a caller waits for. It repeats no command, and a Redis that hangs is
// an error within about 500 ms, sooner where the context says so.
func (s *Store) Client() redis.UniversalClient { return s.client }

// Executor is for asynq: a pool of its own, so that nothing there can hold up Client. Its timeouts are 2 s.
func (s *Store) Executor() redis.UniversalClient { return s.executor }

// Embedded reports whether Redis is inside this process and keeps nothing.
func (s *Store) Embedded() bool { return s.embedded != nil }

// Cluster reports whether Redis is a cluster, where a script's keys must share a hash slot.
func (s *Store) Cluster() bool { return s.target.kind == cluster }

// Healthy reports whether the last probe succeeded: Redis answered within 500 ms and is fit. A Redis that goes is
// noticed within 750 ms, one that returns within 250 ms of its first answer. It costs nothing: ask before every call
// that a caller would otherwise wait for in vain.
func (s *Store) Healthy() bool { return s.Reason() == "" }

// Reason says why the store is not healthy; "" when it is. It may name Redis's address: for the operator, not for clients.
func (s *Store) Reason() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.reason
}

// Lost returns a channel that is closed once the store isn't healthy any more; it is closed already while the store isn't. Once it is
// healthy again Lost returns another one. So whoever waits for Redis's word needn't ask whether it can come.
func (s *Store) Lost() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lost
}

// Writable reports whether Redis took the last write that was tried, within the last second or so. Where it didn't (it is full, or has become a
// replica) jobs can't be admitted, though what is there can still be read.
func (s *Store) Writable() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.refusal == ""
}

// Warnings are sentences on what is wrong with a Redis that works: it may evict jobs, or doesn't persist them, or a key
// holds what another program has put there.
func (s *Store) Warnings() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return append(slices.Clone(s.warnings), s.strays.warnings()...)
}

// Close ends the probes and closes all connections; an embedded Redis ends and forgets. Further calls do nothing.
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

// probe asks Redis for a sign of life and, on first contact, after an outage and now and then, whether it is fit.
func (s *Store) probe(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := s.ping(bounded)
	var found node
	if s.embedded != nil {
		found.version = "embedded"
	}
	if err == nil && s.embedded == nil && (!s.Healthy() || time.Since(s.inspected) >= recheckEvery) {
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
		return // stopping: the error would be ours
	}
	s.record(err, found.version)
}

// tryWrite learns whether Redis takes writes. Only its own word counts: a write that got lost is the next probe's business.
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

// ping goes through the front's own pool, so it fails when the front would.
func (s *Store) ping(ctx context.Context) error {
	if s.embedded != nil {
		n, err := s.client.DBSize(ctx).Result()
		if err == nil && n > s.maxKeys {
			err = unfit(fmt.Sprintf("the embedded store is full, with over %d keys: set redis.url to a Redis server", s.maxKeys))
		}
		return err
	}
	c, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return s.client.Ping(ctx).Err()
	}
	err := c.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error { return master.Ping(ctx).Err() })
	if err != nil {
		return err
	}
	return c.Exists(ctx, "fb:probe").Err() // a cluster that is down answers PING, but no command with a key
}

// record takes a probe's result. It logs each change of health, and a Redis that is back but unfit.
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
			s.lost = make(chan struct{})
		} else {
			close(s.lost)
		}
	}
	s.mu.Unlock()
	var verdict unfit
	switch {
	case reason == "" && was != "":
		s.log.Info("redis: healthy", "redis", s.target.String(), "version", version, "after", time.Since(since).Round(time.Millisecond))
	case reason != "" && (was == "" || was == unprobed), errors.As(err, &verdict) && reason != was:
		s.log.Error("redis: not healthy", "redis", s.target.String(), "reason", reason)
	}
}

// warn keeps the warnings and logs those that are new.
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

// libraryLog takes what go-redis would write to stderr. At debug level: each error also reaches its caller.
type libraryLog struct{ log *slog.Logger }

func (l libraryLog) Printf(ctx context.Context, format string, args ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, fmt.Sprintf(format, args...), "from", "go-redis")
	}
}

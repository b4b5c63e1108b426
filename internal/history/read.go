package history

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// freshFor is how long a chunk that changes is remembered, and freshEach the least time for
	// each backend: so the readings of a process are less than four commands a second, however many
	// read whatever.
	freshFor  = time.Second
	freshEach = 300 * time.Millisecond
	// A chunk changes until hotFor after its end. Then only what a process has kept while it
	// couldn't reach Redis is added: until coldAfter, such a chunk is read every lateEvery.
	hotFor    = 10 * time.Second
	lateEvery = 30 * time.Second
	coldAfter = keptBuckets*5*time.Second + time.Minute
	// maxCached bounds the chunks that are remembered, of 9 KB at most.
	maxCached = 600
)

// cache remembers chunks as they were read.
type cache struct {
	turn   chan struct{} // has a value while one reads: the others then find what it found
	fresh  time.Duration
	chunks map[string]cached // by key; guarded by turn
}

type cached struct {
	cells map[string]string // never changed
	at    time.Time
}

func newCache(backends int) cache {
	return cache{turn: make(chan struct{}, 1), chunks: map[string]cached{},
		fresh: max(freshFor, time.Duration(backends)*freshEach)}
}

// Read returns the points of a span of one backend. Concurrent and repeated readings share calls to
// Redis. One takes up to 26 commands, in one round trip.
func (t *Tallies) Read(ctx context.Context, backend string, s Span) ([]Point, error) {
	if !s.To.After(s.From) {
		return nil, nil
	}
	at := s.tier()
	first := floorDiv(at.bucket(s.From)-lookback, perChunk)
	last := floorDiv(at.bucket(s.To.Add(-1)), perChunk)
	found, err := t.chunks(ctx, at, backend, first, last)
	if err != nil {
		return nil, fmt.Errorf("read the history of %s: %w", backend, err)
	}
	return found.fold(s), nil
}

// chunks returns the chunks from first to last, as they are in Redis or were a moment ago.
func (t *Tallies) chunks(ctx context.Context, at tier, backend string, first, last int64) (
	table, error) {
	found := table{at, map[int64]map[string]string{}}
	c := &t.reading
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return found, ctx.Err()
	}
	began, now := time.Now(), t.Now()
	missing := map[int64]*redis.MapStringStringCmd{}
	for n := first; n <= last; n++ {
		end := at.at((n + 1) * perChunk)
		known, ok := c.chunks[at.key(backend, n)]
		if ok && c.holds(known.at, began, now.Sub(end)) {
			found.chunks[n] = known.cells
		} else {
			missing[n] = nil
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	_, err := t.config.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n := range missing {
			missing[n] = p.HGetAll(ctx, at.key(backend, n))
		}
		return nil
	})
	if err != nil {
		return found, err
	}
	if len(c.chunks)+len(missing) > maxCached {
		clear(c.chunks) // they are read again as they are needed
	}
	for n, cells := range missing {
		found.chunks[n] = cells.Val()
		c.chunks[at.key(backend, n)] = cached{cells.Val(), began}
	}
	return found, nil
}

// holds reports whether a chunk that was read at a time still is as it was, ended being how long
// ago it ended.
func (c *cache) holds(read, now time.Time, ended time.Duration) bool {
	age := now.Sub(read)
	switch {
	case ended > coldAfter:
		// It was read after it could change last, or is read once more.
		return age < ended-coldAfter || age < lateEvery
	case ended > hotFor:
		return age < min(lateEvery, max(ended-hotFor, c.fresh))
	}
	return age < c.fresh
}

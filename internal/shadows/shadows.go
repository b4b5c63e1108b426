// Package shadows counts what shadow limits would have refused: which clients' requests for which
// operations, how often, and when last.
//
// The counts are kept in Redis for all processes together, by the hour, for 24 hours and the
// current one. Each hour has at most 10,000 counts, about 1.5 MB; beyond that the smallest are
// dropped. A process writes its counts once a second, and holds at most 10,000 in memory until
// then.
package shadows

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	shownHours = 24
	maxShown   = 1000   // counts: an operator won't page through more
	maxKept    = 10_000 // counts of one hour in Redis
	// maxNoted bounds the counts between two flushes. More clients than that are over a limit in
	// one second only if someone makes up addresses.
	maxNoted   = 10_000
	flushEvery = time.Second
)

// Books count the requests that shadow limits would have refused. Safe for concurrent use.
type Books struct {
	rdb redis.UniversalClient
	log *slog.Logger

	mu      sync.Mutex
	noted   map[entry]int64 // guarded by mu: not yet in Redis
	dropped int64           // guarded by mu
}

// entry is what a shadow limit would have refused.
type entry struct{ limit, client, operation string }

// Count is how often a shadow limit would have refused a client's requests for an operation.
type Count struct {
	Limit, Client, Operation string
	Count                    int64
	Last                     time.Time // to the second
}

// New returns Books in Redis. Counts get there only while Run runs.
func New(rdb redis.UniversalClient, log *slog.Logger) *Books {
	return &Books{rdb: rdb, log: log, noted: map[entry]int64{}}
}

// Note counts one request that a shadow limit would have refused. It never waits for Redis. It
// notes up to 10,000 entries a second and drops the rest; Run logs how many.
func (b *Books) Note(limit, client, operation string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := entry{limit, client, operation}
	if _, known := b.noted[e]; !known && len(b.noted) >= maxNoted {
		b.dropped++
		return
	}
	b.noted[e]++
}

// Run writes what was noted to Redis, each second until ctx ends and then once more.
func (b *Books) Run(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.flush(ctx, time.Now())
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushEvery)
			defer cancel()
			b.flush(last, time.Now())
			return
		}
	}
}

// flush writes what was noted. What can't be written stays noted.
func (b *Books) flush(ctx context.Context, now time.Time) {
	b.mu.Lock()
	all, dropped := b.noted, b.dropped
	b.noted, b.dropped = map[entry]int64{}, 0
	b.mu.Unlock()
	if dropped > 0 {
		b.log.Warn("shadow limits: more callers than can be noted", "dropped", dropped)
	}
	if len(all) == 0 {
		return
	}
	counts, last := keys(now)
	_, err := b.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for e, n := range all {
			member := e.limit + " " + e.operation + " " + e.client
			p.ZIncrBy(ctx, counts, float64(n), member)
			p.ZAdd(ctx, last, redis.Z{Score: float64(now.Unix()), Member: member})
		}
		for _, key := range []string{counts, last} {
			p.ZRemRangeByRank(ctx, key, 0, -maxKept-1)
			p.Expire(ctx, key, (shownHours+1)*time.Hour)
		}
		return nil
	})
	if err == nil {
		return
	}
	b.log.Warn("shadow limits: not written", "error", err)
	b.mu.Lock()
	defer b.mu.Unlock()
	for e, n := range all {
		if len(b.noted) < maxNoted {
			b.noted[e] += n
		}
	}
}

// keys returns the keys of the hour that now is in: of the counts and of the times of the last
// refusals, both by limit, operation and client.
func keys(now time.Time) (counts, last string) {
	hour := strconv.FormatInt(now.Unix()/3600, 10)
	return "fb:{shadows}:count:" + hour, "fb:{shadows}:last:" + hour
}

// Top returns at most 1000 counts of the last 24 hours and the current one, the largest first.
func (b *Books) Top(ctx context.Context) ([]Count, error) { return b.top(ctx, time.Now()) }

func (b *Books) top(ctx context.Context, now time.Time) ([]Count, error) {
	var counts, lasts []*redis.ZSliceCmd
	_, err := b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for h := range shownHours + 1 {
			count, last := keys(now.Add(-time.Duration(h) * time.Hour))
			counts = append(counts, p.ZRevRangeWithScores(ctx, count, 0, maxShown-1))
			lasts = append(lasts, p.ZRevRangeWithScores(ctx, last, 0, maxKept-1))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read shadow limits: %w", err)
	}
	found := map[string]*Count{}
	for h := range counts {
		for _, z := range counts[h].Val() {
			member, _ := z.Member.(string)
			parts := strings.SplitN(member, " ", 3)
			if len(parts) != 3 {
				continue
			}
			if found[member] == nil {
				found[member] = &Count{Limit: parts[0], Operation: parts[1], Client: parts[2]}
			}
			found[member].Count += int64(z.Score)
		}
		for _, z := range lasts[h].Val() {
			member, _ := z.Member.(string)
			if c := found[member]; c != nil && c.Last.Unix() < int64(z.Score) {
				c.Last = time.Unix(int64(z.Score), 0)
			}
		}
	}
	top := make([]Count, 0, len(found))
	for _, c := range found {
		top = append(top, *c)
	}
	slices.SortFunc(top, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Limit, b.Limit),
			cmp.Compare(a.Client, b.Client), cmp.Compare(a.Operation, b.Operation))
	})
	return top[:min(len(top), maxShown)], nil
}

package limits

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

// Shadows remembers, for all processes together, whom shadow limits would have refused. Safe for concurrent use.
type Shadows struct {
	rdb redis.UniversalClient
	log *slog.Logger

	mu      sync.Mutex
	noted   map[shadow]int64 // guarded by mu: not yet in Redis
	dropped int64            // guarded by mu
}

// shadow is whom a shadow limit would have refused, and what.
type shadow struct{ limit, client, operation string }

// ShadowCount is how often a shadow limit would have refused a client's requests for an operation.
type ShadowCount struct {
	Limit, Client, Operation string
	Count                    int64
	Last                     time.Time // to the second
}

const (
	shadowHours  = 24     // that are shown
	maxShadows   = 1000   // that are shown: what an operator may page through
	keptShadows  = 10_000 // of one hour in Redis: about 1.5 MB
	notedShadows = 10_000 // between two flushes: more clients than that are over a limit in a second only where somebody mints them
	flushShadows = time.Second
)

// NewShadows returns a Shadows that keeps its counts in Redis. Without Run none gets there.
func NewShadows(rdb redis.UniversalClient, log *slog.Logger) *Shadows {
	return &Shadows{rdb: rdb, log: log, noted: map[shadow]int64{}}
}

// Note counts one request that a shadow limit would have refused. It never blocks on Redis.
func (s *Shadows) Note(limit, client, operation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	who := shadow{limit, client, operation}
	if _, known := s.noted[who]; !known && len(s.noted) >= notedShadows {
		s.dropped++
		return
	}
	s.noted[who]++
}

// Run writes what was noted to Redis, each second until ctx ends and once after.
func (s *Shadows) Run(ctx context.Context) {
	tick := time.NewTicker(flushShadows)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.flush(ctx, time.Now())
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushShadows)
			defer cancel()
			s.flush(last, time.Now())
			return
		}
	}
}

// flush writes what was noted. What can't be written is noted still.
func (s *Shadows) flush(ctx context.Context, now time.Time) {
	s.mu.Lock()
	noted, dropped := s.noted, s.dropped
	s.noted, s.dropped = map[shadow]int64{}, 0
	s.mu.Unlock()
	if dropped > 0 {
		s.log.Warn("shadow limits: more callers than can be noted", "dropped", dropped)
	}
	if len(noted) == 0 {
		return
	}
	counts, last := shadowKeys(now)
	_, err := s.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for who, n := range noted {
			member := who.limit + " " + who.operation + " " + who.client
			p.ZIncrBy(ctx, counts, float64(n), member)
			p.ZAdd(ctx, last, redis.Z{Score: float64(now.Unix()), Member: member})
		}
		for _, key := range []string{counts, last} {
			p.ZRemRangeByRank(ctx, key, 0, -keptShadows-1)
			p.Expire(ctx, key, (shadowHours+1)*time.Hour)
		}
		return nil
	})
	if err == nil {
		return
	}
	s.log.Warn("shadow limits: not written", "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	for who, n := range noted {
		if len(s.noted) < notedShadows {
			s.noted[who] += n
		}
	}
}

// shadowKeys are the keys of the hour that now lies in: how often, and when last, by limit, operation and client.
func shadowKeys(now time.Time) (counts, last string) {
	hour := strconv.FormatInt(now.Unix()/3600, 10)
	return "fb:{shadows}:count:" + hour, "fb:{shadows}:last:" + hour
}

// Top is whom shadow limits would have refused in the last 24 hours and the begun one, the most often refused first; at most
// 1000.
func (s *Shadows) Top(ctx context.Context) ([]ShadowCount, error) { return s.top(ctx, time.Now()) }

func (s *Shadows) top(ctx context.Context, now time.Time) ([]ShadowCount, error) {
	var counts, lasts []*redis.ZSliceCmd
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for h := range shadowHours + 1 {
			count, last := shadowKeys(now.Add(-time.Duration(h) * time.Hour))
			counts = append(counts, p.ZRevRangeWithScores(ctx, count, 0, maxShadows-1))
			lasts = append(lasts, p.ZRevRangeWithScores(ctx, last, 0, keptShadows-1))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read shadow limits: %w", err)
	}
	found := map[string]*ShadowCount{}
	for h := range counts {
		for _, z := range counts[h].Val() {
			member, _ := z.Member.(string)
			parts := strings.SplitN(member, " ", 3)
			if len(parts) != 3 {
				continue
			}
			if found[member] == nil {
				found[member] = &ShadowCount{Limit: parts[0], Operation: parts[1], Client: parts[2]}
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
	top := make([]ShadowCount, 0, len(found))
	for _, c := range found {
		top = append(top, *c)
	}
	slices.SortFunc(top, func(a, b ShadowCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Client, b.Client), cmp.Compare(a.Operation, b.Operation))
	})
	return top[:min(len(top), maxShadows)], nil
}

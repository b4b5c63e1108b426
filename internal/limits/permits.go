package limits

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
)

// On a single Redis, the script that charges a job's limits also writes the job's record, and the
// script that ends the job gives its permits back. On a cluster, no script reaches both, and a
// permit may be left without a job (cluster.go).
//
// Permits that these steps miss, such as those of jobs that Redis has lost, are given back when
// their limit is full: a process that finds a limit full checks whether the jobs that hold its
// permits have ended.

// permitLease is how long a permit may be held for a job that isn't on record. After that, a
// process that finds the limit full gives it back.
const permitLease = 10 * time.Second

const (
	// maxTended is how many permits are checked at a time. 10,000 would take Redis's time from all
	// other callers.
	maxTended = 512
	// tendAtOnce is how many jobs are looked up concurrently. Their lookups share script calls.
	tendAtOnce = 32
	// tendEvery is the time between two checks of a key if the first gave permits back. A flood of
	// refused requests must not become a flood of lookups.
	tendEvery = 100 * time.Millisecond
	// tendAgain is the time if it gave none back. No client is asked to retry sooner.
	tendAgain = time.Second
	// maxTendedBy bounds the keys whose next check is remembered.
	maxTendedBy = 10_000
)

// Fate is the state of a job that holds a permit.
type Fate struct {
	Known bool          // it is on record
	Ended bool          // it is in its final state
	Wait  time.Duration // until its predicted end; 0: there is no prediction
}

// Fates returns the fate of a job, by its id. It must be safe for concurrent use.
type Fates func(ctx context.Context, job string) (Fate, error)

// permits gives back permits of concurrency limits whose jobs have ended.
type permits struct {
	rdb   redis.UniversalClient
	fates Fates

	mu   sync.Mutex
	next map[string]time.Time // guarded by mu: when a key may be tended again
}

// Tend makes the limiter give back permits that their jobs didn't return when they ended. It looks
// jobs up with fates. It must be called before the first decision.
func (l *Limiter) Tend(rdb redis.UniversalClient, fates Fates) {
	l.permits = &permits{rdb: rdb, fates: fates, next: map[string]time.Time{}}
}

// permit is where one concurrency limit of a verdict stands.
type permit struct {
	standing int // its index in the verdict's Standings
	key      string
	room     int64
}

// Holds returns the permits that the verdict's charge took for its job, to be given back at the
// job's end. There are none if they are counted in this process alone.
func (v Verdict) Holds() jobs.Holds { return v.charge.holds() }

func (c *charged) holds() jobs.Holds {
	if c == nil || !c.by.shared {
		return jobs.Holds{}
	}
	return c.questions[0].holds
}

// wanted returns the permits that the question will take if it is spent.
func (q *question) wanted(apart bool) (h jobs.Holds) {
	for i, r := range q.rules {
		if r.kind == kindConcurrency && q.member != "" && q.mode == spend {
			h.Member, h.Apart, h.Keys = q.member, apart, append(h.Keys, q.keys[i])
		}
	}
	return h
}

// freed tends the concurrency limits that refused the verdict's request. It reports whether one of
// them has room now. If none has, it adds the predicted waits to the verdict.
func (l *Limiter) freed(ctx context.Context, v *Verdict) (freed bool) {
	if l.permits == nil || v.Allowed {
		return false
	}
	for _, at := range v.permits {
		s := &v.Standings[at.standing]
		if !s.Violated || s.Rule.limit.Shadow {
			continue
		}
		found, ok := l.permits.tend(ctx, at.key, v.At)
		if !ok {
			continue
		}
		if at.room+int64(found.freed) >= 1 {
			freed = true
		} else if n := int(-at.room) - found.freed; n < len(found.waits) {
			s.RetryAfter = max(s.RetryAfter, found.waits[n])
		}
	}
	if !freed && len(v.permits) > 0 {
		v.conclude()
	}
	return freed
}

// tended is the result of a check of one key.
type tended struct {
	freed int
	waits []time.Duration // of the jobs under way, until their predicted ends, shortest first
}

// tend looks up the jobs that hold permits of a key, and gives back the permits of those that have
// ended. A job that isn't on record may be about to be written, so it keeps its permit for a lease.
// ok is false if the key was tended a moment ago.
func (p *permits) tend(ctx context.Context, key string, now time.Time) (found tended, ok bool) {
	if !p.due(key) {
		return tended{}, false
	}
	members, err := p.rdb.ZRangeWithScores(ctx, key, 0, maxTended-1).Result()
	if err != nil || len(members) == 0 {
		return tended{}, err == nil
	}
	fates, failed := p.ask(ctx, members)
	var gone []any
	var alive []redis.Z
	for i, m := range members {
		unseen := now.UnixMicro() - int64(m.Score)
		stale := unseen >= permitLease.Microseconds() || unseen < 0 // < 0: the clock stepped back
		switch fate := fates[i]; {
		case failed[i] != nil:
		case fate.Ended, !fate.Known && stale:
			gone = append(gone, m.Member)
		case fate.Known:
			found.waits = append(found.waits, fate.Wait)
			if stale {
				alive = append(alive, redis.Z{Score: float64(now.UnixMicro()), Member: m.Member})
			}
		}
	}
	slices.Sort(found.waits)
	_, err = p.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		if len(gone) > 0 {
			pipe.ZRem(ctx, key, gone...)
		}
		if len(alive) > 0 {
			pipe.ZAddXX(ctx, key, alive...)
		}
		return nil
	})
	if err == nil && len(gone) > 0 {
		found.freed = len(gone)
		p.soon(key)
	}
	return found, true
}

// ask looks up the members' jobs, tendAtOnce at a time.
func (p *permits) ask(ctx context.Context, members []redis.Z) ([]Fate, []error) {
	fates, failed := make([]Fate, len(members)), make([]error, len(members))
	var all sync.WaitGroup
	slots := make(chan struct{}, tendAtOnce)
	for i, m := range members {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			member, isText := m.Member.(string)
			if !isText {
				failed[i] = errors.New("not a member")
				return
			}
			job, _, _ := strings.Cut(member, "~") // the rest differs between duplicate requests
			fates[i], failed[i] = p.fates(ctx, job)
		})
	}
	all.Wait()
	return fates, failed
}

// due reports whether a key may be tended now. If so, it isn't due again for tendAgain.
func (p *permits) due(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.next[key]) {
		return false
	}
	if len(p.next) >= maxTendedBy {
		clear(p.next)
	}
	p.next[key] = now.Add(tendAgain)
	return true
}

// soon makes a key due after tendEvery, because permits were given back there.
func (p *permits) soon(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next[key] = time.Now().Add(tendEvery)
}

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

// On a single Redis, the script that charges a job's limits also writes the job's record, and the script that ends
// the job gives its permits back. On a cluster, no script reaches both, and a permit may be left without a job
// (cluster.go).
//
// Permits that these steps miss, such as those of jobs that Redis has lost, come back when a limit is found full: the
// process that finds it full asks whether the jobs that hold its permits have ended.

// PlaceLease is how long a permit may be taken for a job that isn't on record, until a process that finds the limit full gives it back.
const PlaceLease = 10 * time.Second

const (
	maxTended   = 512                    // places that are looked after in one go: with 10,000 it would take Redis's time from all others
	tendAtOnce  = 32                     // jobs that are asked about at one time; their questions share script calls
	tendEvery   = 100 * time.Millisecond // and no sooner again for one limit's key: a flood of refused requests must not become one of questions
	tendAgain   = time.Second            // nor where that freed nothing, before the least Retry-After
	maxTendedBy = 10_000                 // keys whose last time is remembered
)

// Fate is what became of a job.
type Fate struct {
	Known bool          // it is on record
	Ended bool          // it is in its final state
	Wait  time.Duration // until its predicted end; 0: nobody knows
}

// Fates tells what became of a job, by its id. It must be safe for concurrent use.
type Fates func(ctx context.Context, job string) (Fate, error)

// places looks after the places of concurrency limits.
type places struct {
	rdb   redis.UniversalClient
	fates Fates

	mu   sync.Mutex
	next map[string]time.Time // guarded by mu: when a key may be tended again
}

// Tend has the limiter look after places whose jobs have ended unheard of, by asking fates. It must be called before the first
// decision.
func (l *Limiter) Tend(rdb redis.UniversalClient, fates Fates) {
	l.places = &places{rdb: rdb, fates: fates, next: map[string]time.Time{}}
}

// place is where a concurrency limit of a verdict stands.
type place struct {
	standing int // of the verdict's
	key      string
	room     int64
}

// Holds are the permits that the verdict's charge took for its job, so that they can be given back at its end. None where they are of
// this process alone.
func (v Verdict) Holds() jobs.Holds { return v.charge.holds() }

func (c *charged) holds() jobs.Holds {
	if c == nil || !c.by.shared {
		return jobs.Holds{}
	}
	return c.questions[0].holds
}

// permits is what a question of that mode would hold if it is spent.
func (q *question) permits(apart bool) (h jobs.Holds) {
	for i, r := range q.rules {
		if r.kind == kindConcurrency && q.member != "" && q.mode == spend {
			h.Member, h.Apart, h.Keys = q.member, apart, append(h.Keys, q.keys[i])
		}
	}
	return h
}

// after looks after the places of a verdict. It reports whether a limit that refused it has room now; where it hasn't, the verdict learns
// when it may.
func (p *places) after(ctx context.Context, v *Verdict) (freed bool) {
	for _, at := range v.places {
		s := &v.Standings[at.standing]
		if !s.Violated || v.Allowed || s.Rule.limit.Shadow {
			continue
		}
		found, ok := p.tend(ctx, at.key, v.At)
		if !ok {
			continue
		}
		if at.room+int64(found.freed) >= 1 {
			freed = true
		} else if n := int(-at.room) - found.freed; n < len(found.waits) {
			s.RetryAfter = max(s.RetryAfter, found.waits[n])
		}
	}
	if !freed && !v.Allowed {
		v.conclude()
	}
	return freed
}

// tended is what was found at one key.
type tended struct {
	freed int
	waits []time.Duration // of the jobs that live, until their predicted end, shortest first
}

// tend asks about the jobs of a key and takes the permits of those that have ended. A job that isn't on record may be on its way there: it keeps its place for a lease. Not ok: it was just done.
func (p *places) tend(ctx context.Context, key string, now time.Time) (found tended, ok bool) {
	if !p.turn(key) {
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
		stale := unseen >= PlaceLease.Microseconds() || unseen < 0 // a clock that stepped back
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

// ask asks about the members' jobs, many at a time.
func (p *places) ask(ctx context.Context, members []redis.Z) ([]Fate, []error) {
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
			job, _, _ := strings.Cut(member, "~") // what follows tells twins with one id apart
			fates[i], failed[i] = p.fates(ctx, job)
		})
	}
	all.Wait()
	return fates, failed
}

// turn reports whether a key may be tended now.
func (p *places) turn(key string) bool {
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

// soon lets a key be tended again soon: places were freed there.
func (p *places) soon(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next[key] = time.Now().Add(tendEvery)
}

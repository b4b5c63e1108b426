package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"forebay/internal/jobs"
)

// A place of a concurrency limit is taken by the charge, and given back by the script that ends its job (package leaky). Where that can't
// be, because a process died between the charge and the job's record, or a cluster keeps the two apart, nobody tells of the
// place's end. So whoever finds a limit full, or a place that wasn't looked at for a lease, asks what became of the jobs.

// PlaceLease is how long a place may outlive its job at most, from when anybody asks for the limit.
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
	busy sync.WaitGroup
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
	due      bool // its oldest place wasn't looked at for a lease
}

// Holds are the places that the verdict's charge took for its job, so that they can be given back by whoever ends it. None where they
// lie on another node than the job, or in this process.
func (v Verdict) Holds() jobs.Holds {
	var h jobs.Holds
	if v.charge == nil || !v.charge.by.shared || v.charge.by.split {
		return h
	}
	for i, q := range v.charge.questions {
		for j, r := range q.rules {
			if r.kind == kindConcurrency && q.member != "" && v.charge.answers[i].spentOn(q, j) {
				h.Member, h.Keys = q.member, append(h.Keys, q.keys[j])
			}
		}
	}
	return h
}

// after looks after the places of a verdict. It reports whether a limit that refused it has room now; where it hasn't, the verdict learns
// when it may.
func (p *places) after(ctx context.Context, v *Verdict) (freed bool) {
	for _, at := range v.places {
		s := &v.Standings[at.standing]
		switch {
		case s.Violated && !v.Allowed && !s.Rule.limit.Shadow:
			found, ok := p.tend(ctx, at.key, v.At, true)
			if !ok {
				continue
			}
			if at.room+int64(found.freed) >= 1 {
				freed = true
			} else if n := int(-at.room) - found.freed; n < len(found.waits) {
				s.RetryAfter = max(s.RetryAfter, found.waits[n])
			}
		case at.due:
			p.busy.Go(func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decideWithin)
				defer cancel()
				p.tend(ctx, at.key, v.At, false)
			})
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

// tend asks about the jobs of a key, all or only those whose last sign of life is a lease old, and takes the places of those that have
// ended. A job that isn't on record may be on its way there: it keeps its place for a lease. Not ok: it was just done.
func (p *places) tend(ctx context.Context, key string, now time.Time, all bool) (found tended, ok bool) {
	if !p.turn(key) {
		return tended{}, false
	}
	until := "+inf"
	if !all {
		until = fmt.Sprint(now.Add(-PlaceLease).UnixMicro())
	}
	members, err := p.rdb.ZRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{Min: "-inf", Max: until, Count: maxTended}).Result()
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

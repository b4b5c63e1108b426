package limits

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Several regions, each with a Redis of its own, keep limits together by telling each other what they have spent. Decisions stay local: what
// the others spent is taken from the region's own counts when it is heard. From a spend until every region has heard of it passes
// one interval at most: half of one until it is told, half of one until it is heard. So over all regions a limit is overshot
// by at most what arrives within an interval.
//
// What was spent goes through a stream on a central Redis. Each process tells its own; in each region one process at a time, whoever has the
// lease, hears the others' and debits it. Places of concurrency are a region's own.
//
// Where the centre is lost, the region goes on with its share of every limit, until the centre is back.

//go:embed tell.lua
var tellLua string

//go:embed hear.lua
var hearLua string

var (
	tellScript = redis.NewScript(tellLua)
	hearScript = redis.NewScript(hearLua)
	// leaveScript ends the lease of the process ARGV[1] on KEYS[1].
	leaveScript = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end`)
)

const (
	spentKey   = "fb:{regions}:spent" // at the centre: the stream of what was spent
	regionsKey = "fb:{regions}:seen"  // at the centre: when each region told last
	cursorKey  = "fb:{region}:cursor" // in each region: what it has heard of the stream
	hearerKey  = "fb:{region}:hearer" // in each region: the process that hears
	heardKey   = "fb:{region}:heard"  // in each region: there while it has heard of the others not long ago
	knownKey   = "fb:{region}:known"  // in each region: how many regions there were, for processes that start without the centre

	// lostAfter is how many intervals without the centre make it lost. In them the region still has the whole of every limit.
	lostAfter = 3
	// regionGone is how long a region that tells nothing counts as one that shares.
	regionGone = 30 * time.Second
	// spentLasts bounds the stream in time, at least, and in intervals: a region that was away for longer misses what the others
	// spent meanwhile.
	spentLasts     = 2 * time.Minute
	spentIntervals = 20
	// spentMost bounds the stream's length, at some 100 kB an entry.
	spentMost = 5_000
	// toldAtOnce bounds the keys of one entry, some 100 bytes each.
	toldAtOnce = 1000
	// maxSpent bounds the keys that wait to be told: a flood of callers while the centre is away must not fill the memory.
	maxSpent = 200_000
	// maxTold bounds the cost of one entry's key, so that no sum of theirs overflows; no region can spend as much in an interval.
	maxTold = 1 << 50
	// heardAtOnce bounds the entries that are heard in one go.
	heardAtOnce = 100
	// debitsAtOnce is how many debits are on their way at one time; they share script calls.
	debitsAtOnce = maxBatch
)

// Region keeps a region's limits together with those of the others. Safe for concurrent use.
type Region struct {
	name    string
	process string // tells the region's processes apart
	limiter *Limiter
	own     redis.UniversalClient
	centre  redis.UniversalClient
	every   time.Duration
	share   float64 // 0: one part of as many as there are regions
	log     *slog.Logger
	clock   func() time.Time

	met     atomic.Int64 // when the centre was last reached, ns since 1970 by this process's clock; 0: never
	regions atomic.Int64
	lost    atomic.Bool
	shares  variants[int64]

	mu      sync.Mutex
	spent   map[string]spending // guarded by mu: by key, not yet told
	dropped int64               // guarded by mu
}

// spending is what was spent of one key. It carries how the key counts, so that a region needn't know the rule.
type spending struct {
	Parameters [5]int64 `json:"p"`
	Cost       int64    `json:"c"`
	At         int64    `json:"t"` // of the newest
}

// RegionConfig is what a Region is made of.
type RegionConfig struct {
	Name    string                // of the region
	Process string                // of the process, unlike any other's
	Own     redis.UniversalClient // the region's
	Centre  redis.UniversalClient // common to all regions
	Every   time.Duration         // the interval
	Share   float64               // of every limit, while the centre is lost; 0: the same for each of the regions last seen
	Log     *slog.Logger
}

// Together has the limiter keep its limits together with other regions'. It must be called before the first decision, and
// Region.Run has to run.
func (l *Limiter) Together(c RegionConfig) *Region {
	r := &Region{name: c.Name, process: c.Process, limiter: l, own: c.Own, centre: c.Centre, every: c.Every, share: c.Share, log: c.Log,
		clock: time.Now, spent: map[string]spending{}}
	r.met.Store(r.clock().UnixNano())
	l.region = r
	return r
}

// Regions is how many regions were there when the centre was last reached; 0: it never was.
func (r *Region) Regions() int { return int(r.regions.Load()) }

// Lost reports whether the centre is lost, and the region goes on with its share of every limit.
func (r *Region) Lost() bool { return r.lost.Load() }

// Run tells and hears until ctx ends, and tells once more then.
func (r *Region) Run(ctx context.Context) {
	r.recall(ctx)
	tick := time.NewTicker(r.every / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.exchange(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), decideWithin)
			defer cancel()
			// Another process of the region shall hear at once. Nobody reads the answer: else the lease's end does it.
			leaveScript.Run(last, r.own, []string{hearerKey}, r.process)
			if err := r.tell(last); err != nil {
				r.log.Warn("region: what was spent last is not told", "error", err)
			}
			return
		}
	}
}

// recall learns how many regions there were from what the region has noted.
func (r *Region) recall(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, decideWithin)
	defer cancel()
	if n, err := r.own.Get(ctx, knownKey).Int64(); err == nil {
		r.regions.CompareAndSwap(0, n)
	}
}

// exchange is one turn.
func (r *Region) exchange(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, max(r.every, decideWithin))
	defer cancel()
	err := r.tell(ctx)
	if err == nil {
		var heard bool
		// Whoever tells but can't hear doesn't know what the others spend: that is as bad as a lost centre.
		if heard, err = r.hear(ctx); heard {
			r.met.Store(r.clock().UnixNano())
		}
	}
	away := r.clock().Sub(time.Unix(0, r.met.Load()))
	lost := away > lostAfter*r.every
	if was := r.lost.Swap(lost); was != lost && lost {
		r.log.Warn("region: the centre is lost; going on with a share of every limit", "share", r.part(), "error", err)
	} else if was != lost {
		r.log.Info("region: the centre is back", "regions", r.Regions())
	}
}

// note takes down what a decision has charged (sign 1) or given back (-1), but for a cost of kept:
// the change of what it spent.
func (r *Region) note(c *charged, sign, kept int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, q := range c.questions {
		for j, rule := range q.rules {
			if rule.kind == kindConcurrency || !c.answers[i].spentOn(q, j) {
				continue
			}
			s, known := r.spent[q.keys[j]]
			if !known && len(r.spent) >= maxSpent {
				r.dropped++
				continue
			}
			change := sign * q.takes(j)
			if !rule.limit.Bytes {
				change += kept
			}
			r.spent[q.keys[j]] = spending{rule.widest, s.Cost + change, max(s.At, c.answers[i].now)}
		}
	}
}

// tell tells the others what was spent since the last time. After an error it will be told again; then the others may hear of it twice, and
// admit less for it.
func (r *Region) tell(ctx context.Context) error {
	r.mu.Lock()
	spent, dropped := r.spent, r.dropped
	r.spent, r.dropped = map[string]spending{}, 0
	r.mu.Unlock()
	if dropped > 0 {
		r.log.Warn("region: more limits than can be told of", "dropped", dropped)
	}
	for {
		part := make(map[string]spending, min(len(spent), toldAtOnce))
		for key, s := range spent {
			if len(part) == toldAtOnce {
				break
			}
			delete(spent, key)
			if s.Cost != 0 {
				part[key] = s
			}
		}
		text := ""
		if len(part) > 0 {
			encoded, err := json.Marshal(part)
			if err != nil {
				return fmt.Errorf("encode what was spent: %w", err)
			}
			text = string(encoded)
		}
		n, err := tellScript.Run(ctx, r.centre, []string{spentKey, regionsKey}, r.name, text, regionGone.Microseconds(), max(spentLasts, spentIntervals*r.every).Milliseconds(), spentMost).Int64()
		if err != nil {
			r.putBack(part)
			r.putBack(spent)
			return fmt.Errorf("tell the centre: %w", err)
		}
		if r.regions.Swap(n) != n {
			r.own.Set(ctx, knownKey, n, rememberClient)
		}
		if len(spent) == 0 {
			return nil
		}
	}
}

func (r *Region) putBack(spent map[string]spending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, s := range spent {
		if newer, known := r.spent[key]; known {
			s.Cost, s.At = s.Cost+newer.Cost, max(s.At, newer.At)
		} else if len(r.spent) >= maxSpent {
			r.dropped++
			continue
		}
		r.spent[key] = s
	}
}

// hear debits what the other regions have spent, if this is the process that does so. It reports whether the region has heard of the
// others within lostAfter intervals, by whichever process.
func (r *Region) hear(ctx context.Context) (heard bool, err error) {
	// A hearer that dies is missed for little more than an interval.
	lease := max(3*r.every/2, time.Second)
	answer, err := hearScript.Run(ctx, r.own, []string{hearerKey, cursorKey, heardKey}, r.process, lease.Milliseconds()).StringSlice()
	if err != nil {
		return false, fmt.Errorf("take the hearer's lease: %w", err)
	}
	if len(answer) != 3 {
		return false, fmt.Errorf("take the hearer's lease: %d values", len(answer))
	}
	cursor := answer[1]
	if answer[0] == "" {
		return answer[2] != "", nil // another process of the region hears
	}
	if cursor == "" { // a new region: what was spent before it was there isn't its business
		last, err := r.centre.XRevRangeN(ctx, spentKey, "+", "-", 1).Result()
		if err != nil {
			return false, fmt.Errorf("hear the centre: %w", err)
		}
		cursor = "0-0"
		if len(last) > 0 {
			cursor = last[0].ID
		}
	}
	for {
		entries, err := r.centre.XRangeN(ctx, spentKey, "("+cursor, "+", heardAtOnce).Result()
		if err != nil {
			return false, fmt.Errorf("hear the centre: %w", err)
		}
		if err := r.debit(ctx, entries); err != nil {
			return false, err
		}
		if len(entries) > 0 {
			cursor = entries[len(entries)-1].ID
		}
		// A process that dies before this debits twice: the region admits less for it, once.
		_, err = r.own.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, cursorKey, cursor, rememberClient)
			p.Set(ctx, heardKey, r.process, lostAfter*r.every)
			return nil
		})
		if err != nil {
			return false, fmt.Errorf("keep what was heard: %w", err)
		}
		if len(entries) < heardAtOnce {
			return true, nil
		}
	}
}

// debit takes what others have spent from the region's counts.
func (r *Region) debit(ctx context.Context, entries []redis.XMessage) error {
	total := map[string]spending{}
	for _, e := range entries {
		if e.Values["region"] == r.name {
			continue
		}
		var spent map[string]spending
		text, _ := e.Values["spent"].(string)
		if err := json.Unmarshal([]byte(text), &spent); err != nil {
			r.log.Warn("region: an entry that can't be read", "region", e.Values["region"], "error", err)
			continue
		}
		for key, s := range spent {
			t := total[key]
			total[key] = spending{s.Parameters, t.Cost + max(-maxTold, min(maxTold, s.Cost)), max(t.At, s.At)}
		}
	}
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	slots := make(chan struct{}, debitsAtOnce)
	by := time.Now().Add(max(r.every, decideWithin))
	for key, s := range total {
		s.Cost = max(-MaxAmount, min(MaxAmount, s.Cost)) // no limit has more to take
		if s.Cost == 0 || s.Parameters[0] < kindBucket || s.Parameters[0] > kindLog {
			continue
		}
		rule := &Rule{parameters: s.Parameters, kind: s.Parameters[0], unit: s.Parameters[1]}
		q := &question{mode: refund, cost: -s.Cost, at: s.At, by: by, rules: []*Rule{rule}, keys: []string{key}}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if _, err := r.limiter.ask(ctx, q); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return fmt.Errorf("debit what others spent: %w", *err)
	}
	return nil
}

// rules are the rules of a request as they hold now: whole, or this region's share of them.
func (r *Region) rules(whole []*Rule) []*Rule {
	if !r.lost.Load() {
		return whole
	}
	n := r.regions.Load()
	rules := make([]*Rule, len(whole))
	for i, rule := range whole {
		if rule.kind == kindConcurrency {
			rules[i] = rule // places are a region's own
			continue
		}
		rules[i] = r.shares.of(rule, n, r.part())
	}
	return rules
}

// part is the region's share of a limit.
func (r *Region) part() float64 {
	if r.share > 0 {
		return r.share
	}
	return 1 / float64(max(1, r.regions.Load()))
}

// Package region makes several regions count their limits together. Each region has a Redis of its
// own and decides by it alone. Afterwards the regions send each other what they have spent, and
// each debits its own counts with what the others spent.
//
// They do so through a stream on a central Redis. Every half interval, each process sends to the
// stream what it has spent. In each region one process at a time, the holder of the lease, receives
// what the other regions sent and debits it. So at most one interval passes from a charge until
// every region has debited it, and the sum over all regions exceeds a limit by at most what arrives
// within an interval. Permits of concurrency limits are not exchanged: each region counts its own.
//
// While the central Redis, the centre, is unavailable, the region applies its share of every limit.
package region

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

	"github.com/forebay/forebay/internal/limits"
)

//go:embed send.lua
var sendLua string

//go:embed receive.lua
var receiveLua string

var (
	sendScript    = redis.NewScript(sendLua)
	receiveScript = redis.NewScript(receiveLua)
	// leaveScript ends the lease of the process ARGV[1] on KEYS[1].
	leaveScript = redis.NewScript(
		`if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end`)
)

// The keys at the centre.
const (
	spentKey   = "fb:{regions}:spent" // the stream of what was spent
	regionsKey = "fb:{regions}:seen"  // when each region last sent
)

// The keys in each region.
const (
	cursorKey   = "fb:{region}:cursor" // how much of the stream the region has received
	receiverKey = "fb:{region}:hearer" // the process with the lease
	receivedKey = "fb:{region}:heard"  // exists if the region has received from the others lately
	knownKey    = "fb:{region}:known"  // how many regions there were, to start without the centre
)

const (
	// lostAfter is how many intervals without the centre make it lost. During them the region still
	// applies the whole of every limit.
	lostAfter = 3
	// answerWithin bounds a call at the start and at the end, and an exchange if the interval is
	// shorter.
	answerWithin = 800 * time.Millisecond
	// remembered is how long a region keeps its cursor and its count of regions while no process
	// runs.
	remembered = 400 * 24 * time.Hour
	// regionGone is how long a region that sends nothing still counts.
	regionGone = 30 * time.Second
	// The stream goes back by spentLasts, or so many intervals if that is longer: a region that was
	// away for longer misses what the others spent meanwhile.
	spentLasts     = 2 * time.Minute
	spentIntervals = 20
	// spentMost bounds the stream's length, at some 100 kB an entry.
	spentMost = 5_000
	// sentAtOnce bounds the keys of one entry, some 100 bytes each.
	sentAtOnce = 1000
	// maxSpent bounds the keys that wait to be sent: a flood of callers while the centre is away
	// must not fill the memory.
	maxSpent = 200_000
	// maxCost bounds the cost of each key in an entry, so that no sum overflows. No region can
	// spend as much in an interval.
	maxCost = 1 << 50
	// receivedAtOnce bounds the entries that are received in one call.
	receivedAtOnce = 100
)

// Exchange makes a region count together with the others. It is the limits.Region of the region's
// Limiter. Safe for concurrent use.
type Exchange struct {
	name    string
	process string // tells the region's processes apart
	limiter *limits.Limiter
	own     redis.UniversalClient
	centre  redis.UniversalClient
	every   time.Duration
	share   float64 // 0: an equal part for each region
	log     *slog.Logger
	clock   func() time.Time

	met     atomic.Int64 // when the centre was last reached, in ns since 1970 by clock
	regions atomic.Int64
	lost    atomic.Bool

	mu      sync.Mutex
	spent   map[string]spending // guarded by mu: by key, not yet sent
	dropped int64               // guarded by mu
}

// spending is what was spent of one key, as regions send it: a limits.Debit without its key.
type spending struct {
	Parameters [5]int64 `json:"p"`
	Cost       int64    `json:"c"`
	At         int64    `json:"t"` // of the newest
}

// Config has the dependencies and settings of an Exchange.
type Config struct {
	Limiter *limits.Limiter       // of the region
	Name    string                // of the region
	Process string                // of the process, unlike any other's
	Own     redis.UniversalClient // the region's
	Centre  redis.UniversalClient // common to all regions
	Every   time.Duration         // the interval
	// Share is the region's part of every limit while the centre is lost, at most 1. 0: an equal
	// part for each of the regions last seen.
	Share float64
	Log   *slog.Logger
}

// Join makes the config's Limiter count together with other regions while Exchange.Run runs. It
// must be called before the Limiter's first decision.
func Join(c Config) *Exchange {
	x := &Exchange{name: c.Name, process: c.Process, limiter: c.Limiter, own: c.Own,
		centre: c.Centre, every: c.Every, share: c.Share, log: c.Log, clock: time.Now,
		spent: map[string]spending{}}
	x.met.Store(x.clock().UnixNano())
	c.Limiter.Join(x)
	return x
}

// Regions returns how many regions there were when the centre was last reached; 0: it never was.
func (x *Exchange) Regions() int { return int(x.regions.Load()) }

// Lost reports whether the centre is lost, so that the region applies its share of every limit.
func (x *Exchange) Lost() bool { return x.lost.Load() }

// Share returns the region's share of every limit while the centre is lost.
func (x *Exchange) Share() float64 {
	if x.share > 0 {
		return x.share
	}
	return 1 / float64(max(1, x.regions.Load()))
}

// Spent notes what is to be sent, for up to 200,000 keys. It drops the rest, and logs how many.
func (x *Exchange) Spent(debits []limits.Debit) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range debits {
		s, known := x.spent[d.Key]
		if !known && len(x.spent) >= maxSpent {
			x.dropped++
			continue
		}
		x.spent[d.Key] = spending{d.Parameters, s.Cost + d.Cost, max(s.At, d.At)}
	}
}

// Run sends and receives every half interval until ctx ends, and then sends once more.
func (x *Exchange) Run(ctx context.Context) {
	x.recall(ctx)
	tick := time.NewTicker(x.every / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			x.exchange(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
			defer cancel()
			// Another process of the region can receive at once. If this fails, the lease runs out.
			leaveScript.Run(last, x.own, []string{receiverKey}, x.process)
			if err := x.send(last); err != nil {
				x.log.Warn("region: what was spent last is not told", "error", err)
			}
			return
		}
	}
}

// recall reads from the region's own Redis how many regions there were.
func (x *Exchange) recall(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if n, err := x.own.Get(ctx, knownKey).Int64(); err == nil {
		x.regions.CompareAndSwap(0, n)
	}
}

// within bounds one exchange with the centre.
func (x *Exchange) within() time.Duration { return max(x.every, answerWithin) }

// exchange sends and receives once.
func (x *Exchange) exchange(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, x.within())
	defer cancel()
	err := x.send(ctx)
	if err == nil {
		var received bool
		// A region that can send but not receive doesn't know what the others spend, as if the
		// centre were lost.
		if received, err = x.receive(ctx); received {
			x.met.Store(x.clock().UnixNano())
		}
	}
	away := x.clock().Sub(time.Unix(0, x.met.Load()))
	lost := away > lostAfter*x.every
	if was := x.lost.Swap(lost); was != lost && lost {
		x.log.Warn("region: the centre is lost; going on with a share of every limit",
			"share", x.Share(), "error", err)
	} else if was != lost {
		x.log.Info("region: the centre is back", "regions", x.Regions())
	}
}

// send sends the others what was spent since the last time. After an error it is sent again; the
// others may then receive it twice, and so admit less.
func (x *Exchange) send(ctx context.Context) error {
	x.mu.Lock()
	spent, dropped := x.spent, x.dropped
	x.spent, x.dropped = map[string]spending{}, 0
	x.mu.Unlock()
	if dropped > 0 {
		x.log.Warn("region: more limits than can be told of", "dropped", dropped)
	}
	keys, lasts := []string{spentKey, regionsKey}, max(spentLasts, spentIntervals*x.every)
	for {
		part := make(map[string]spending, min(len(spent), sentAtOnce))
		for key, s := range spent {
			if len(part) == sentAtOnce {
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
		n, err := sendScript.Run(ctx, x.centre, keys, x.name, text,
			regionGone.Microseconds(), lasts.Milliseconds(), spentMost).Int64()
		if err != nil {
			x.putBack(part)
			x.putBack(spent)
			return fmt.Errorf("tell the centre: %w", err)
		}
		if x.regions.Swap(n) != n {
			x.own.Set(ctx, knownKey, n, remembered)
		}
		if len(spent) == 0 {
			return nil
		}
	}
}

func (x *Exchange) putBack(spent map[string]spending) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, s := range spent {
		if newer, known := x.spent[key]; known {
			s.Cost, s.At = s.Cost+newer.Cost, max(s.At, newer.At)
		} else if len(x.spent) >= maxSpent {
			x.dropped++
			continue
		}
		x.spent[key] = s
	}
}

// receive debits what the other regions have spent, if this process has the lease. It reports
// whether the region, by any of its processes, has received within lostAfter intervals.
func (x *Exchange) receive(ctx context.Context) (received bool, err error) {
	// A receiver that dies is missed for little more than an interval.
	lease := max(3*x.every/2, time.Second)
	keys := []string{receiverKey, cursorKey, receivedKey}
	reply := receiveScript.Run(ctx, x.own, keys, x.process, lease.Milliseconds())
	answer, err := reply.StringSlice()
	if err != nil {
		return false, fmt.Errorf("take the hearer's lease: %w", err)
	}
	if len(answer) != 3 {
		return false, fmt.Errorf("take the hearer's lease: %d values", len(answer))
	}
	cursor := answer[1]
	if answer[0] == "" {
		return answer[2] != "", nil // another process of the region receives
	}
	if cursor == "" { // a new region: what was spent before doesn't concern it
		last, err := x.centre.XRevRangeN(ctx, spentKey, "+", "-", 1).Result()
		if err != nil {
			return false, fmt.Errorf("hear the centre: %w", err)
		}
		cursor = "0-0"
		if len(last) > 0 {
			cursor = last[0].ID
		}
	}
	for {
		entries, err := x.centre.XRangeN(ctx, spentKey, "("+cursor, "+", receivedAtOnce).Result()
		if err != nil {
			return false, fmt.Errorf("hear the centre: %w", err)
		}
		if err := x.limiter.Debit(ctx, x.debits(entries), x.within()); err != nil {
			return false, fmt.Errorf("debit what others spent: %w", err)
		}
		if len(entries) > 0 {
			cursor = entries[len(entries)-1].ID
		}
		// If the process dies before this, the entries are debited twice, and the region admits
		// that much less.
		_, err = x.own.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, cursorKey, cursor, remembered)
			p.Set(ctx, receivedKey, x.process, lostAfter*x.every)
			return nil
		})
		if err != nil {
			return false, fmt.Errorf("keep what was heard: %w", err)
		}
		if len(entries) < receivedAtOnce {
			return true, nil
		}
	}
}

// debits sums up entries of other regions, into one debit for each key. An entry that can't be read
// is logged and skipped.
func (x *Exchange) debits(entries []redis.XMessage) []limits.Debit {
	total := map[string]spending{}
	for _, e := range entries {
		if e.Values["region"] == x.name {
			continue
		}
		var spent map[string]spending
		text, _ := e.Values["spent"].(string)
		if err := json.Unmarshal([]byte(text), &spent); err != nil {
			x.log.Warn("region: an entry that can't be read",
				"region", e.Values["region"], "error", err)
			continue
		}
		for key, s := range spent {
			t := total[key]
			cost := t.Cost + max(-maxCost, min(maxCost, s.Cost))
			total[key] = spending{s.Parameters, cost, max(t.At, s.At)}
		}
	}
	debits := make([]limits.Debit, 0, len(total))
	for key, s := range total {
		debits = append(debits,
			limits.Debit{Key: key, Parameters: s.Parameters, Cost: s.Cost, At: s.At})
	}
	return debits
}

package history

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/add.lua
var addLua string

var addScript = redis.NewScript(addLua)

const (
	// maxPhase spreads the processes' calls after a bucket's end. What a process counted in that
	// time is in the bucket before: a tenth of a bucket at most.
	maxPhase = 500 * time.Millisecond
	// middle is how long ago the middle of the bucket was that is over at a call.
	middle = 2500 * time.Millisecond
	// maxRows bounds the rows of one call: Redis works on each for some 50 µs.
	maxRows = 16
	// keptBuckets bounds what a process keeps for each backend while it can't reach Redis: for 10
	// minutes by the bucket, and all that is later in the last of those.
	keptBuckets = 120
	// callTime bounds a call. Redis's client has a timeout of its own, but may wait for a
	// connection.
	callTime = 2 * time.Second
)

// Counts of decisions. A refusal's is rejected and its reason, as Rejected returns it.
const (
	Accepted = "accepted" // without those answered with a fresh stored answer
	Fresh    = "fresh"
	Degraded = "degraded"
	rejected = "rejected:"
)

// Rejected is the count of a refusal: its reason is the name of a limit, or another word from a
// closed list. Reasons come from the config, so they are bounded; a chunk keeps six of them apart.
func Rejected(reason string) string { return rejected + reason }

// Sample is a backend's line at one moment, as all processes see it.
type Sample struct {
	Waiting, Capacity int64
	OldestWait        time.Duration
	// Rates per second; +Inf is unlimited. Override is 0 where there is none.
	Configured, Override, Effective float64
	Paused, Probing                 bool
	Cause                           string // of what feedback took from the rate; "": none
	Totals
}

// Totals are counts since the line exists, or differences of them.
type Totals struct{ Started, Throttled, Succeeded, Failed, Canceled, Expired int64 }

// Config has the parts of a Tallies.
type Config struct {
	Redis redis.UniversalClient
	// Process names this process to people: what it is, its host, its pid and its version.
	Process  string
	Backends []string // those whose history can be read
	// Sample reads a backend's line.
	Sample func(ctx context.Context, backend string) (Sample, error)
	Log    *slog.Logger
}

// Tallies count by backend and time, for all processes together. Safe for concurrent use.
type Tallies struct {
	config  Config
	process string // the name in Redis: with a nonce, since pids come again

	mu       sync.Mutex
	counters map[counterKey]*atomic.Int64 // guarded by mu

	flushing sync.Mutex // held by a Flush; guards the fields down to failing
	pending  []row      // not yet sent, the oldest first
	unsure   []row      // of the call number, whose reply is missing
	number   int64      // of the last call
	failing  bool       // the last call failed

	ahead atomic.Int64 // how far Redis's clock is ahead of this process's, ns

	reading cache
}

type counterKey struct{ backend, count string }

// row is what is to be written to one bucket.
type row struct {
	backend string
	at      time.Time // in the bucket
	add     map[string]int64
	set     map[string]uint32
}

// New returns Tallies that are kept in Redis. Counts get there only while Run runs.
func New(c Config) *Tallies {
	return &Tallies{config: c, process: c.Process + " " + rand.Text()[:8],
		counters: map[counterKey]*atomic.Int64{}, reading: newCache(len(c.Backends))}
}

// ProcessName is how a process of this host is called in events.
func ProcessName(kind, version string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s %s pid %d %s", kind, host, os.Getpid(), version)
}

// Counter is what to add a backend's decisions to. The same arguments give the same counter.
func (t *Tallies) Counter(backend, count string) *atomic.Int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := counterKey{backend, count}
	if t.counters[key] == nil {
		t.counters[key] = new(atomic.Int64)
	}
	return t.counters[key]
}

// Now is the time on Redis's clock, as far as this process knows it.
func (t *Tallies) Now() time.Time { return time.Now().Add(time.Duration(t.ahead.Load())) }

// Run reports to Redis soon after each 5 s bucket, until ctx ends and once after. It says there
// that the process has begun, and at the end that it has ended.
func (t *Tallies) Run(ctx context.Context) {
	phase := mathrand.N(maxPhase)
	for ; ctx.Err() == nil; sleep(ctx, t.next(phase)) {
		t.Flush(ctx)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	t.report(last, true)
}

// next is the time from now to the phase after the bucket's end.
func (t *Tallies) next(phase time.Duration) time.Duration {
	now := t.Now()
	return fine.at(fine.bucket(now.Add(-phase)) + 1).Add(phase).Sub(now)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Flush writes what was counted since the last one, and samples the lines if no other process has
// for the bucket that is over. What can't be written is kept, and written later to its own bucket.
func (t *Tallies) Flush(ctx context.Context) { t.report(ctx, false) }

func (t *Tallies) report(ctx context.Context, leave bool) {
	t.flushing.Lock()
	defer t.flushing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	t.drain(time.Now().Add(-middle))
	err := t.send(ctx, leave)
	if err != nil && !t.failing && !leave {
		t.config.Log.Warn("history: not written; it is kept for later", "error", err)
	}
	t.failing = err != nil
}

// drain moves what the counters have to rows of the bucket that at is in. Callers hold flushing.
func (t *Tallies) drain(at time.Time) {
	found := map[string]map[string]int64{}
	t.mu.Lock()
	for key, c := range t.counters {
		if n := c.Swap(0); n > 0 {
			if found[key.backend] == nil {
				found[key.backend] = map[string]int64{}
			}
			found[key.backend][key.count] = n
		}
	}
	t.mu.Unlock()
	for _, backend := range slices.Sorted(maps.Keys(found)) {
		t.keep(row{backend: backend, at: at, add: found[backend]})
	}
}

// keep adds a row to those that are to be sent.
func (t *Tallies) keep(r row) {
	own, last := 0, -1
	for i := range t.pending {
		if t.pending[i].backend == r.backend && t.pending[i].add != nil {
			own, last = own+1, i
		}
	}
	if own < keptBuckets {
		t.pending = append(t.pending, r)
		return
	}
	for name, n := range r.add {
		t.pending[last].add[name] += n
	}
}

// send makes calls until nothing is left to send, and samples if it is asked to.
func (t *Tallies) send(ctx context.Context, leave bool) error {
	for {
		if len(t.unsure) == 0 {
			n := min(len(t.pending), maxRows)
			t.unsure, t.pending = t.pending[:n:n], t.pending[n:]
			t.number++
		}
		sample, err := t.call(ctx, leave && len(t.pending) == 0)
		if err != nil {
			return err
		}
		t.unsure = nil
		if sample {
			t.sample(ctx)
		}
		if len(t.pending) == 0 {
			t.pending = nil // its array could hold many rows
			return nil
		}
	}
}

// call sends the rows that may not have arrived yet.
func (t *Tallies) call(ctx context.Context, leave bool) (sample bool, err error) {
	type wireRow struct {
		Backend string            `json:"b"`
		Ago     int64             `json:"ago"`
		Add     map[string]int64  `json:"add,omitempty"`
		Set     map[string]uint32 `json:"set,omitempty"`
	}
	rows, sent := make([]wireRow, len(t.unsure)), time.Now()
	for i, r := range t.unsure {
		rows[i] = wireRow{r.backend, sent.Sub(r.at).Microseconds(), r.add, r.set}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return false, fmt.Errorf("encode tallies: %w", err)
	}
	last := "0"
	if leave {
		last = "1"
	}
	reply, err := addScript.Run(ctx, t.config.Redis,
		[]string{keyProcesses, keySampler, keyEvents}, prefix, t.process, t.number, text,
		middle.Microseconds(), last).Slice()
	if err != nil {
		return false, fmt.Errorf("write tallies: %w", err)
	}
	if len(reply) != 2 {
		return false, fmt.Errorf("write tallies: the script answers %v", reply)
	}
	micros, _ := reply[0].(string)
	var now int64
	if _, err := fmt.Sscan(micros, &now); err != nil {
		return false, fmt.Errorf("write tallies: the script's time: %w", err)
	}
	half := time.Since(sent) / 2
	t.ahead.Store(int64(time.UnixMicro(now).Sub(sent.Add(half))))
	return reply[1] == int64(1), nil
}

// sample reads all lines, for the bucket that is over. A line that can't be read is left out.
func (t *Tallies) sample(ctx context.Context) {
	for _, backend := range t.config.Backends {
		s, err := t.config.Sample(ctx, backend)
		if err != nil {
			t.config.Log.Debug("history: no sample", "backend", backend, "error", err)
			continue
		}
		t.pending = append(t.pending,
			row{backend: backend, at: time.Now().Add(-middle), set: s.cells()})
	}
}

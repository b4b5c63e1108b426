package redistest

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
)

// CheckBooks fails t, naming every difference, unless the backend's books balance. It reads all of
// them in one atomic step, so it may be called at any moment, even while jobs run. The rules:
//
//   - accepted = waiting + delayed + in flight + succeeded + failed + canceled + expired + lost
//   - A job is in at most one of line, delayed and inflight. It then has a record without a TTL,
//     and a state that agrees.
//   - A record without a TTL is in exactly one of them. One with a TTL is in none, and its state
//     is final.
//   - Each lease ends, within an hour.
//   - The hash share counts the waiting and delayed jobs of each client.
//   - Each job in failed has a record and has failed. Each failed job on record is in failed,
//     unless its operation keeps it at least as long as failed jobs are listed. Its keys end
//     together.
//   - A subscription's record has no TTL as long as its job, which counts it, has none. The keys
//     by which a job is found to be joined, and its subscriptions, belong to a job on record.
//   - A client's list holds its own jobs alone, and each of its jobs on record, except for jobs
//     that callers share. Callers without a key have no list.
//   - The bytes counted are those of the jobs on record: per client for live jobs, and per job
//     for ended ones.
//   - A claim on a decision ends, within 2 s.
//   - Each key has a TTL or is one of the line's own.
func CheckBooks(t testing.TB, rdb redis.UniversalClient, backend string) {
	t.Helper()
	// also in a Cleanup
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startTimeout)
	defer cancel()
	b, err := readBooks(ctx, rdb, backend)
	if err != nil {
		t.Errorf("redistest: the books of %s: %v", backend, err)
		return
	}
	if wrong := b.differences(); len(wrong) > 0 {
		t.Errorf("the books of %s don't balance:\n\t%s", backend, strings.Join(wrong, "\n\t"))
	}
}

// longestLease is far more than any lease: one that ends later never ends.
const longestLease = time.Hour

//go:embed snapshot.lua
var snapshotSource string

var snapshot = redis.NewScript(snapshotSource)

// books holds all keys of one backend at one moment.
type books struct {
	now    float64 // µs
	zsets  map[string]map[string]float64
	hashes map[string]map[string]string
	lists  map[string][]string
	joints map[string]string        // job ids by the name under which they are joined
	heads  map[string]string        // by job id: the start of its record; not of subscriptions
	shared map[string]string        // by subscription id: the start of its record
	states map[string]jobs.State    // by job id
	sizes  map[string]int64         // of strings, by key without its prefix
	ttls   map[string]time.Duration // by key without its prefix; only keys that have one
	names  []string                 // all keys, without their prefix
}

func readBooks(ctx context.Context, rdb redis.UniversalClient, backend string) (books, error) {
	prefix := jobs.KeyPrefix(backend)
	reply, err := snapshot.Run(ctx, rdb, []string{prefix + "line"}, prefix+"*").Slice()
	if err != nil {
		return books{}, err
	}
	b := books{
		zsets:  map[string]map[string]float64{},
		hashes: map[string]map[string]string{},
		lists:  map[string][]string{},
		joints: map[string]string{},
		heads:  map[string]string{},
		shared: map[string]string{},
		states: map[string]jobs.State{},
		sizes:  map[string]int64{},
		ttls:   map[string]time.Duration{},
	}
	if b.now, err = strconv.ParseFloat(reply[0].(string), 64); err != nil {
		return books{}, err
	}
	for entry := range slices.Chunk(reply[1:], 4) {
		name := strings.TrimPrefix(entry[0].(string), prefix)
		b.names = append(b.names, name)
		if ttl := entry[2].(int64); ttl >= 0 {
			b.ttls[name] = time.Duration(ttl) * time.Millisecond
		}
		if err := b.keep(name, entry[1].(string), entry[3].([]any)); err != nil {
			return books{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	slices.Sort(b.names)
	return b, nil
}

func (b *books) keep(name, kind string, content []any) error {
	switch kind {
	case "string":
		head := content[0].(string)
		b.sizes[name] = content[1].(int64)
		if id, ok := strings.CutPrefix(name, "job:"); !ok {
		} else if jobOf(head) != "" {
			b.shared[id] = head
		} else {
			b.heads[id] = head
		}
		if join, ok := strings.CutPrefix(name, "joint:"); ok {
			b.joints[join] = head
		}
	case "list":
		for _, entry := range content {
			b.lists[name] = append(b.lists[name], entry.(string))
		}
	case "hash":
		fields := map[string]string{}
		for pair := range slices.Chunk(content, 2) {
			fields[pair[0].(string)] = pair[1].(string)
		}
		b.hashes[name] = fields
		if id, ok := strings.CutPrefix(name, "state:"); ok {
			b.states[id] = jobs.State(fields["st"])
		}
	case "zset":
		members := map[string]float64{}
		for pair := range slices.Chunk(content, 2) {
			score, err := strconv.ParseFloat(pair[1].(string), 64)
			if err != nil {
				return err
			}
			members[pair[0].(string)] = score
		}
		b.zsets[name] = members
	}
	return nil
}

// places are the zsets of live jobs, with the states that agree with each.
var places = []struct {
	name   string
	states []jobs.State
}{
	{"line", []jobs.State{"", jobs.Waiting}}, // no state hash: the job has never left the line
	{"delayed", []jobs.State{jobs.Delayed}},
	{"inflight", []jobs.State{jobs.Released, jobs.Running}},
}

var finals = []jobs.State{jobs.Succeeded, jobs.Failed, jobs.Canceled, jobs.Expired}

// differences describes what is wrong, one line each. It is empty if the books balance.
func (b *books) differences() []string {
	return slices.Concat(b.sums(), b.placed(), b.recorded(), b.leases(), b.shares(), b.failed(),
		b.joined(), b.subscriptions(), b.listed(), b.stored(), b.owned())
}

// sums compares the counters with each other and with the jobs on record.
func (b *books) sums() (wrong []string) {
	count := func(field string) int {
		text, ok := b.hashes["books"][field]
		n, err := strconv.Atoi(text)
		if ok && (err != nil || n < 0) {
			wrong = append(wrong, fmt.Sprintf("books.%s is %q", field, text))
		}
		return n
	}
	sum := 0
	var terms []string
	add := func(name string, n int) {
		sum += n
		terms = append(terms, fmt.Sprintf("%d %s", n, name))
	}
	for _, p := range places {
		add(p.name, len(b.zsets[p.name]))
	}
	ended := map[jobs.State]int{}
	for id := range b.heads {
		ended[b.states[id]]++
	}
	for _, state := range finals {
		n := count(string(state))
		add(string(state), n)
		if ended[state] > n {
			wrong = append(wrong,
				fmt.Sprintf("%d jobs on record are %s, books count %d", ended[state], state, n))
		}
	}
	add("lost", count("lost"))
	if accepted := count("accepted"); accepted != sum {
		wrong = append(wrong,
			fmt.Sprintf("%d accepted, but %s make %d", accepted, strings.Join(terms, " + "), sum))
	}
	return wrong
}

// placed checks the entries of the zsets against the records.
func (b *books) placed() (wrong []string) {
	in := map[string]string{} // by job id: the zset seen first
	for _, p := range places {
		for _, id := range slices.Sorted(maps.Keys(b.zsets[p.name])) {
			if other, twice := in[id]; twice {
				wrong = append(wrong, fmt.Sprintf("%s is in %s and in %s", id, other, p.name))
			}
			in[id] = p.name
			if _, ok := b.heads[id]; !ok {
				wrong = append(wrong, fmt.Sprintf("%s is in %s and has no record", id, p.name))
			}
			if state, ok := b.states[id]; !slices.Contains(p.states, state) || ok && state == "" {
				wrong = append(wrong,
					fmt.Sprintf("%s is in %s and its state is %q", id, p.name, state))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.zsets["deadlines"])) {
		// A past one is dropped by the next release.
		if at := b.zsets["deadlines"][id]; at > b.now && in[id] != "line" {
			wrong = append(wrong, fmt.Sprintf("%s has a deadline ahead and doesn't wait", id))
		}
	}
	return wrong
}

// recorded checks the records against the zsets.
func (b *books) recorded() (wrong []string) {
	for _, id := range slices.Sorted(maps.Keys(b.heads)) {
		var in []string
		for _, p := range places {
			if _, ok := b.zsets[p.name][id]; ok {
				in = append(in, p.name)
			}
		}
		state := b.states[id]
		_, ends := b.ttls["job:"+id]
		switch {
		case !ends && len(in) == 0:
			wrong = append(wrong, fmt.Sprintf(
				"%s has a record without a TTL and is nowhere; its state is %q", id, state))
		case !ends && state.Final():
			wrong = append(wrong, fmt.Sprintf("%s is %s and its record has no TTL", id, state))
		case ends && len(in) > 0:
			wrong = append(wrong,
				fmt.Sprintf("%s has a record with a TTL and is in %s", id, strings.Join(in, ", ")))
		case ends && !state.Final():
			wrong = append(wrong,
				fmt.Sprintf("%s has a record with a TTL and its state is %q", id, state))
		}
	}
	return wrong
}

func (b *books) leases() (wrong []string) {
	latest := b.now + float64(longestLease.Microseconds())
	for _, id := range slices.Sorted(maps.Keys(b.zsets["inflight"])) {
		if end := b.zsets["inflight"][id]; math.IsNaN(end) || math.IsInf(end, 0) || end > latest {
			wrong = append(wrong,
				fmt.Sprintf("%s has a lease until %v µs, now is %.0f", id, end, b.now))
		}
	}
	return wrong
}

// shares counts waiting and delayed jobs by the client tag in their records.
func (b *books) shares() (wrong []string) {
	held := map[string]int{}
	for _, name := range []string{"line", "delayed"} {
		for id := range b.zsets[name] {
			if head, ok := b.heads[id]; ok {
				held[clientOf(head)]++
			}
		}
	}
	share := b.hashes["share"]
	for _, client := range slices.Sorted(maps.Keys(share)) {
		if got := share[client]; got != strconv.Itoa(held[client]) || held[client] == 0 {
			wrong = append(wrong, fmt.Sprintf(
				"share of client %s is %s, it has %d jobs in line and delayed",
				client, got, held[client]))
		}
	}
	for _, client := range slices.Sorted(maps.Keys(held)) {
		if _, ok := share[client]; !ok {
			wrong = append(wrong, fmt.Sprintf(
				"client %s has no share, it has %d jobs in line and delayed",
				client, held[client]))
		}
	}
	return wrong
}

// clientOf reads the fifth field of a record: the tag of the client that owns the job
// (jobs/record.go).
func clientOf(head string) string {
	if fields := strings.SplitN(head, " ", 6); len(fields) == 6 {
		return fields[4]
	}
	return "(unreadable record)"
}

// failed checks the list of failed jobs against those on record.
func (b *books) failed() (wrong []string) {
	listed := b.zsets["failed"]
	for _, id := range slices.Sorted(maps.Keys(listed)) {
		if state := b.states[id]; b.heads[id] == "" || state != jobs.Failed {
			wrong = append(wrong, fmt.Sprintf("%s is in failed and its state is %q", id, state))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.heads)) {
		if b.states[id] != jobs.Failed {
			continue
		}
		if _, ok := listed[id]; !ok && b.keptLonger(id) {
			wrong = append(wrong, fmt.Sprintf("%s has failed and is not in failed", id))
		}
		record := b.ttls["job:"+id]
		for _, key := range []string{"state:" + id, "result:" + id} {
			if ttl, ends := b.ttls[key]; ends && (ttl-record).Abs() > time.Second {
				wrong = append(wrong, fmt.Sprintf("%s has failed; its record ends in %v, %s in %v",
					id, record, key, ttl))
			}
		}
	}
	return wrong
}

// keptLonger reports whether a failed job is kept longer than its operation asks, because it is
// listed.
func (b *books) keptLonger(id string) bool {
	fields := strings.SplitN(b.heads[id], " ", 5)
	if len(fields) < 5 {
		return false
	}
	state := b.hashes["state:"+id]
	number := func(text string) float64 {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return math.NaN()
		}
		return n
	}
	return number(state["exp"])-number(state["fin"]) > 1000*number(fields[3])
}

// owned looks for keys that no script would ever remove.
func (b *books) owned() (wrong []string) {
	for _, name := range b.names {
		if _, ends := b.ttls[name]; ends {
			continue
		}
		switch name {
		case "line", "delayed", "inflight", "deadlines", "flows", "share", "pace", "books",
			"failed", "sweep", "callbacks", "permits", "stored":
			continue
		}
		if strings.HasPrefix(name, "job:") {
			continue // checked by recorded, or by subscriptions
		}
		if strings.HasPrefix(name, "shares:") || strings.HasPrefix(name, "callers:") {
			continue // checked by subscriptions
		}
		if id, ok := strings.CutPrefix(name, "state:"); ok {
			if _, ends := b.ttls["job:"+id]; b.heads[id] != "" && !ends {
				continue
			}
		}
		wrong = append(wrong, fmt.Sprintf("key %s has no TTL and no owner", name))
	}
	return wrong
}

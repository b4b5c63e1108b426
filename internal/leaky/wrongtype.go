package leaky

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
)

// kinds are the types of the line's keys, in the order of keys.
var kinds = []string{
	keyLine: "zset", keyDelayed: "zset", keyInflight: "zset", keyDeadlines: "zset",
	keyFlows: "zset", keyShare: "hash", keyPace: "hash", keyBooks: "hash", keyFailed: "zset",
	keySweep: "hash",
}

const (
	// looksForType is how many jobs of each set are checked: a script that fails because of a job
	// does so near the head.
	looksForType = 50
	// typeEvery bounds how often a line checks its keys: each call may fail, and a check takes
	// Redis about a millisecond.
	typeEvery = time.Second
	// marksLooked is how many of a client's newest jobs are searched for the one in a page's Mark.
	marksLooked = 10_000
)

// suspects holds the keys of the wrong type that a line found last.
type suspects struct {
	mu    sync.Mutex
	until time.Time // guarded by mu: found is valid until then
	found string    // guarded by mu: a sentence; "": nothing
	named string    // guarded by mu: the sentence of the last error that has one
	at    time.Time // guarded by mu: when that was
}

// misplacedFor is how long Misplaced names a key after the last error because of it.
const misplacedFor = time.Minute

// Misplaced returns a sentence that names the keys of this line with a value of the wrong type, and
// a remedy, if a script has failed because of one in the last minute; otherwise "". Safe for
// concurrent use.
func (l *Line) Misplaced() string {
	l.suspects.mu.Lock()
	defer l.suspects.mu.Unlock()
	if time.Since(l.suspects.at) > misplacedFor {
		return ""
	}
	return l.suspects.named
}

// wrongType adds to a script's error the names of the keys with a value of the wrong type, which
// Redis doesn't report, and a remedy. It checks the keys of the jobs in the call's arguments. At
// most once a second it also checks the line's keys, the jobs at their heads, and the jobs that a
// list looks at.
func (l *Line) wrongType(ctx context.Context, script *redis.Script, args []any, err error) error {
	var ids []string
	want := map[string]string{}
	joins := false // the next argument is an Offer's Join
	for _, arg := range args {
		text, isText := arg.(string)
		if joins && isText {
			want[jobs.KeyPrefix(l.settings.Backend)+"joint:"+text], joins = "string", false
			continue
		}
		switch strings.TrimPrefix(text, "$") {
		case kindShared, kindRefresh:
			joins = script == offerScript
		}
		if _, ok := jobs.ParseID(text); ok {
			ids = append(ids, text)
		} else if len(text) == len(clientTag("")) {
			want[jobs.KeyPrefix(l.settings.Backend)+"mine:"+text] = "list"
			want[jobs.KeyPrefix(l.settings.Backend)+"kept:"+text] = "zset"
		}
	}
	found := l.findWrongTypes(ctx, want, ids)
	l.suspects.mu.Lock()
	defer l.suspects.mu.Unlock()
	if now := time.Now(); found == "" && now.After(l.suspects.until) {
		want, ids = l.ownKeys(ctx)
		ids = append(ids, l.listed(ctx, script, args)...)
		l.suspects.until, l.suspects.found = now.Add(typeEvery), l.findWrongTypes(ctx, want, ids)
	}
	if found = cmp.Or(found, l.suspects.found); found == "" {
		return err
	}
	l.suspects.named, l.suspects.at = found, time.Now()
	return fmt.Errorf("%s: %w", found, err)
}

// ownKeys returns the types of the line's keys, and the jobs at their heads.
func (l *Line) ownKeys(ctx context.Context) (want map[string]string, ids []string) {
	prefix := jobs.KeyPrefix(l.settings.Backend)
	want = map[string]string{prefix + "callbacks": "zset", prefix + "stored": "hash",
		prefix + "previews": "zset"}
	minute := time.Now().Unix() / 60
	for ago := range int64(2) {
		want[fmt.Sprint(prefix, "minute:", minute-ago)] = "hash"
	}
	for i, key := range l.keys {
		want[key] = kinds[i]
		if kinds[i] == "zset" && i != keyFlows {
			// On an error its type is wrong, which is found next.
			ids = append(ids, l.rdb.ZRange(ctx, key, 0, looksForType-1).Val()...)
		}
	}
	return want, ids
}

// listed returns the jobs that a call for a list with these arguments looks at: it may fail because
// of any of them.
func (l *Line) listed(ctx context.Context, script *redis.Script, args []any) (ids []string) {
	switch script {
	case mineScript:
		mine, last := jobs.KeyPrefix(l.settings.Backend)+"mine:"+args[0].(string), int64(-1)
		if at, ok := args[1].(int64); ok { // it goes on behind a job
			entry := string(binary.BigEndian.AppendUint64(nil, uint64(at))[1:]) + args[2].(string)
			place, err := l.rdb.LPos(ctx, mine, entry,
				redis.LPosArgs{Rank: -1, MaxLen: marksLooked}).Result()
			if err != nil || place == 0 {
				break // the place of another backend's job isn't known
			}
			last = place - 1
		}
		first := last - MaxWork + 1
		if last >= 0 {
			first = max(first, 0)
		}
		// On an error its type is wrong, which is found by itself.
		for _, entry := range l.rdb.LRange(ctx, mine, first, last).Val() {
			if bytes := []byte(entry); len(bytes) == 7+16 {
				ids = append(ids, jobs.IDOf(l.settings.Backend, [16]byte(bytes[7:])))
			}
		}
	case listScript:
		key, behind := l.keys[args[0].(int)-1],
			redis.ZRangeArgs{Start: "-inf", Stop: "+inf", ByScore: true, Count: MaxWork}
		behind.Key, behind.Rev = key, args[1] == "1"
		switch score := args[2].(string); {
		case score != "" && behind.Rev:
			behind.Stop = score
		case score != "":
			behind.Start = score
		}
		ids = l.rdb.ZRangeArgs(ctx, behind).Val()
	}
	return ids
}

// findWrongTypes returns a sentence that names those of the given keys, and of the keys of the
// given jobs, that have the wrong type, and a remedy; "" for none.
func (l *Line) findWrongTypes(ctx context.Context, want map[string]string, ids []string) string {
	prefix := jobs.KeyPrefix(l.settings.Backend)
	// On an error a type is wrong, which is found next.
	records, _ := l.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, id := range ids {
			pipe.GetRange(ctx, jobs.RecordKey(l.settings.Backend, id), 0, 95)
		}
		return nil
	})
	for i, id := range ids {
		if fields := strings.Fields(records[i].(*redis.StringCmd).Val()); len(fields) > 4 {
			want[prefix+"mine:"+fields[4]] = "list"
			want[prefix+"kept:"+fields[4]] = "zset"
		}
		want[jobs.RecordKey(l.settings.Backend, id)] = "string"
		want[jobs.StateKey(l.settings.Backend, id)] = "hash"
		want[prefix+"shares:"+id] = "hash"
		want[prefix+"callers:"+id] = "hash"
		want[prefix+"result:"+id] = "string"
		want[prefix+"gone:"+id] = "string"
	}
	keys := slices.Sorted(maps.Keys(want))
	types, err := l.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			pipe.Type(ctx, key)
		}
		return nil
	})
	if err != nil {
		return ""
	}
	var wrong []string
	for i, key := range keys {
		if is := types[i].(*redis.StatusCmd).Val(); is != "none" && is != want[key] {
			wrong = append(wrong, fmt.Sprintf("%s is a %s, not a %s", key, is, want[key]))
		}
	}
	if len(wrong) == 0 {
		return ""
	}
	return strings.Join(wrong[:min(len(wrong), 5)], ", ") +
		": Forebay didn't write that; remove it (DEL), or move it away (RENAME)"
}

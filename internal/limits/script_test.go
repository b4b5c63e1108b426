package limits

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/redistest"
)

// keyOf returns r's key for alice.
func keyOf(t testing.TB, r *Rule) string {
	t.Helper()
	q, err := request(1, r).question(peek)
	if err != nil {
		t.Fatal(err)
	}
	return q.keys[0]
}

// C24: ten million in 30 days are counted exactly, by this process and by the next, and no digit is
// lost in Redis. A log's amount is at most MaxLog, but its times have as many digits as any number
// here.
func TestLargeNumbersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	for name, rdb := range map[string]redis.UniversalClient{
		"redis": redistest.Client(t), "miniredis": redistest.Miniredis(t),
	} {
		t.Run(name, func(t *testing.T) {
			const month = 30 * 24 * time.Hour
			each(t, 10_000_000, month, func(t *testing.T, r *Rule) {
				for i, want := range []int64{9_999_999, 9_999_998} {
					// Each time a new process.
					l := newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience)
					v := decide(t, l, request(1, r))
					s := v.Standings[0]
					if !v.Allowed || s.Remaining != want {
						t.Errorf("%d remain, not %d", s.Remaining, want)
					}
					reset := time.Duration(i+1) * month / 10_000_000
					if !r.limit.Algorithm.HasBurst() {
						reset = month - micros(time.Now().UnixMicro()%month.Microseconds())
					}
					if off := (s.Reset - reset).Abs(); off > time.Second {
						t.Errorf("reset is %v off", off)
					}
				}
				kept, err := rdb.Get(t.Context(), keyOf(t, r)).Result()
				if err != nil || !regexp.MustCompile(`^\d+( \d+)+$`).MatchString(kept) {
					t.Errorf("Redis holds %q, %v", kept, err)
				}
			})
		})
	}
}

// C27: after Redis loses its scripts, or restarts, no request fails, and the counts go on.
func TestALostScriptCacheIsNoticedByNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	l := newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience)
	each(t, 1000, MaxWindow, func(t *testing.T, r *Rule) {
		admitted(t, l, 10, r)
		done := make(chan struct{})
		var n atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					if _, err := l.Decide(t.Context(), request(1, r)); err != nil {
						t.Errorf("after SCRIPT FLUSH: %v", err)
						return
					}
					n.Add(1)
				}
			})
		}
		for range 5 {
			if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
				t.Error(err)
			}
			for seen := n.Load(); n.Load() < seen+20 && !t.Failed(); {
				time.Sleep(time.Millisecond)
			}
		}
		close(done)
		all.Wait()
		before := peekAt(t, l, request(1, r)).Standings[0].Remaining

		server.Restart()
		for rdb.Ping(t.Context()).Err() != nil { // until the pool has dropped its dead connections
			time.Sleep(time.Millisecond)
		}
		if v := decide(t, l, request(1, r)); v.Allowed && v.Standings[0].Remaining != before-1 ||
			!v.Allowed && before != 0 {
			t.Errorf("%d remained before the restart, %d after one more",
				before, v.Standings[0].Remaining)
		}
	})
}

// A batch of 64 requests of one client over three limits reads each key once and writes it once.
func TestABatchReadsAndWritesEachKeyOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := &script{rdb: rdb, slack: keySlack}
	rules := []*Rule{
		bucketOf(t, 100, time.Hour, 0), counterOf(t, 100, time.Hour), counterOf(t, 60, MaxWindow),
	}
	batch := make([]*question, maxBatch)
	for i := range batch {
		batch[i] = ask(t, request(1, rules...))
	}
	calls := func() map[string]int { return commandCalls(t, rdb) }
	answers, _ := s.decide(t.Context(), batch)
	spent := 0
	for _, a := range answers {
		if a.err != nil {
			t.Fatal(a.err)
		}
		if a.spent {
			spent++
		}
	}
	if spent != 60 {
		t.Errorf("%d of 64 spent, not 60", spent)
	}
	// For the first EVALSHA, Redis didn't know the script.
	if n := calls(); n["evalsha"]+n["eval"] != 2 || n["mget"] != 1 || n["set"] != 3 {
		t.Errorf("Redis ran %v", n)
	}
	// Refused requests write nothing.
	if _, err := s.decide(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if n := calls(); n["evalsha"] != 2 || n["mget"] != 2 || n["set"] != 3 {
		t.Errorf("after 64 refusals Redis has run %v", n)
	}
	// Many limits make more calls, each of bounded size.
	many := make([]*Rule, 10)
	for i := range many {
		many[i] = bucketOf(t, 100, time.Hour, 0)
	}
	for i := range batch {
		r := request(1, many...)
		r.Subject.Client = strconv.Itoa(i)
		batch[i] = ask(t, r)
	}
	answers, _ = s.decide(t.Context(), batch)
	for i, a := range answers {
		if a.err != nil || !a.spent {
			t.Fatalf("question %d of 640 keys: %+v", i, a)
		}
	}
	if n := calls(); n["evalsha"] != 4 || n["set"] != 643 {
		t.Errorf("after 640 keys Redis has run %v", n)
	}
}

// A request to a log costs Redis the same however long the log is: it reads the entries that have
// left, and the oldest one that hasn't.
func TestALogIsNotReadWhole(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	c := newClock()
	l := newLimiter(&script{rdb: rdb, clock: c.now.Load, slack: time.Hour}, false, patience)
	r := compile(t, Limit{Algorithm: SlidingWindowLog, Amount: 5000, Window: time.Hour})
	for range 3000 {
		admitted(t, l, 1, r)
		c.pass(time.Millisecond)
	}
	before := commandCalls(t, rdb)
	admitted(t, l, 100, r)
	after := commandCalls(t, rdb)
	for command, most := range map[string]int{
		"mget": 1, "lindex": 2, "lrange": 1, "ltrim": 1, "lpush": 1, "rpush": 1, "lset": 1,
		"pexpire": 1,
	} {
		if n := after[command] - before[command]; n > 100*most {
			t.Errorf("100 requests ran %s %d times", command, n)
		}
	}
}

// ask returns the question of a request, as a source takes it.
func ask(t *testing.T, r Request) *question {
	t.Helper()
	q, err := r.question(spend)
	if err != nil {
		t.Fatal(err)
	}
	q.by = time.Now().Add(patience)
	return q
}

// A question whose caller has given up is not asked. Those after it are.
func TestALateQuestionIsNotCharged(t *testing.T) {
	t.Parallel()
	s := &script{rdb: redistest.Client(t), slack: keySlack}
	r := bucketOf(t, 10, MaxWindow, 0)
	late, inTime := ask(t, request(3, r)), ask(t, request(1, r))
	late.by = time.Now().Add(-time.Millisecond)
	for _, batch := range [][]*question{{late}, {late, late, inTime}} {
		answers, err := s.decide(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range answers {
			wantErr := batch[i].by.Equal(late.by)
			if (a.err != nil) != wantErr || a.spent == wantErr {
				t.Errorf("question %d: %+v", i, a)
			}
		}
	}
	v := peekAt(t, newLimiter(s, false, patience), request(1, r))
	if n := v.Standings[0].Remaining; n != 9 {
		t.Errorf("%d remain, not 9", n)
	}
}

// commandCalls returns how often the server ran each command.
func commandCalls(t *testing.T, rdb redis.UniversalClient) map[string]int {
	t.Helper()
	info, err := rdb.Info(context.WithoutCancel(t.Context()), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]int{}
	command := regexp.MustCompile(`cmdstat_(\w+):calls=(\d+)`)
	for _, m := range command.FindAllStringSubmatch(info, -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		calls[m[1]] = n
	}
	return calls
}

// A reply against the script's contract is an error for all questions of its batch. No verdict
// comes of it.
func TestAStrangeReplyIsAnError(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	rdb.AddHook(shorten{})
	l := newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience)
	v, err := l.Decide(t.Context(), request(1, bucketOf(t, 1, time.Hour, 0)))
	if err == nil || v.Allowed {
		t.Errorf("%+v, %v", v, err)
	}
}

// passing is a hook that does nothing.
type passing struct{}

func (passing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (passing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (passing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// shorten drops the last value of every script's reply.
type shorten struct{ passing }

func (shorten) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if reply, ok := cmd.(*redis.IntSliceCmd); ok && err == nil {
			reply.SetVal(reply.Val()[:len(reply.Val())-1])
		}
		return err
	}
}

// C30: the script makes up no key. All are KEYS, or a local name for one of them.
func TestTheScriptTouchesOnlyItsKeys(t *testing.T) {
	t.Parallel()
	call := regexp.MustCompile(`call\('([A-Z]+)'(?:, (unpack\(KEYS\)|\w+(?:\[k\])?))?`)
	calls := call.FindAllStringSubmatch(limitsLua, -1)
	if n := strings.Count(limitsLua, "call("); n != len(calls) || n < 10 {
		t.Errorf("%d of %d calls understood", len(calls), n)
	}
	for _, call := range calls {
		command, key := call[1], call[2]
		if key != "KEYS[k]" && key != "key" && (command != "MGET" || key != "unpack(KEYS)") {
			t.Errorf("%s of %q: a key that isn't in KEYS breaks on a cluster", command, key)
		}
	}
	for _, name := range regexp.MustCompile(`\bkey\b[^\n]*=[^\n]*`).FindAllString(limitsLua, -1) {
		if !strings.Contains(name, "= KEYS[k]") {
			t.Errorf("%s: not one of KEYS", name)
		}
	}
}

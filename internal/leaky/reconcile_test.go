package leaky_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

// broken is a line with each kind of job, for a test to break.
type broken struct {
	*bench
	waiting, dated, delayed, released, running, failed, done string // job ids
	prefix                                                   string
}

func newBroken(t *testing.T) *broken {
	b := &broken{bench: newLine(t, nil)}
	b.prefix = jobs.KeyPrefix(b.Settings().Backend)
	b.accept("acme")
	b.failed = b.fail("x")
	b.done = b.accept("acme")
	b.end(b.begun(), "me", jobs.Succeeded)
	b.delayed = b.accept("acme")
	b.settle(leaky.Settlement{Ticket: b.begun(), Owner: "me", To: jobs.Delayed, Delay: time.Hour})
	b.running = b.accept("zeta")
	b.begun()
	b.released = b.accept("acme")
	b.release()
	b.pause(true)
	b.waiting = b.accept("acme")
	o := b.job("acme")
	o.StartWithin = time.Hour
	b.offer(o)
	b.dated = o.Job.ID
	b.accept("zeta")
	return b
}

func (b *broken) do(cmd func(redis.Pipeliner)) {
	b.t.Helper()
	if _, err := b.rdb.Pipelined(b.t.Context(), func(p redis.Pipeliner) error {
		cmd(p)
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *broken) put(zset, id string, score float64) {
	b.t.Helper()
	b.do(func(p redis.Pipeliner) {
		p.ZAdd(b.t.Context(), b.prefix+zset, redis.Z{Member: id, Score: score})
	})
}

func (b *broken) remove(keys ...string) {
	b.t.Helper()
	b.do(func(p redis.Pipeliner) {
		for _, key := range keys {
			p.Del(b.t.Context(), b.prefix+key)
		}
	})
}

func (b *broken) in(zset, id string) bool {
	b.t.Helper()
	_, err := b.rdb.ZScore(b.t.Context(), b.prefix+zset, id).Result()
	if err != nil && err != redis.Nil {
		b.t.Fatal(err)
	}
	return err == nil
}

// Everything that Redis may have lost is found, reported, counted and repaired, and nothing else is
// changed. The books, which newLine checks at the end, balance again.
func TestLostKeysAreRepaired(t *testing.T) {
	t.Parallel()
	acme, zeta := leaky.ClientTag("acme"), leaky.ClientTag("zeta")
	record := func(id string) string { return "job:" + id }
	state := func(id string) string { return "state:" + id }
	type repair = leaky.Repair
	for name, c := range map[string]struct {
		harm func(b *broken)
		want func(b *broken) []repair
		then func(b *broken) bool
	}{
		"a waiting job's record": {
			func(b *broken) { b.remove(record(b.dated)) },
			func(b *broken) []repair {
				return []repair{{leaky.NoRecord, b.dated}, {leaky.WrongShare, acme},
					{leaky.WrongBytes, acme}}
			},
			func(b *broken) bool {
				return b.report().Lost == 1 && !b.in("line", b.dated) && !b.in("deadlines", b.dated)
			},
		},
		"a delayed job's record": {
			func(b *broken) { b.remove(record(b.delayed)) },
			func(b *broken) []repair {
				return []repair{{leaky.NoRecord, b.delayed}, {leaky.WrongShare, acme},
					{leaky.WrongBytes, acme}}
			},
			func(b *broken) bool { return b.report().Lost == 1 && !b.in("delayed", b.delayed) },
		},
		"a running job's keys": {
			func(b *broken) { b.remove(record(b.running), state(b.running)) },
			func(b *broken) []repair {
				return []repair{{leaky.NoRecord, b.running}, {leaky.WrongBytes, zeta}}
			},
			func(b *broken) bool { return b.report().Lost == 1 && !b.in("inflight", b.running) },
		},
		"a failed job's record": {
			func(b *broken) { b.remove(record(b.failed), state(b.failed)) },
			func(b *broken) []repair { return []repair{{leaky.NoRecord, b.failed}} },
			func(b *broken) bool {
				return b.report().Lost == 0 && b.report().Failed == 1 && !b.in("failed", b.failed)
			},
		},
		"a running job in the line too": {
			func(b *broken) { b.put("line", b.running, 0) },
			func(b *broken) []repair { return []repair{{leaky.Misplaced, b.running}} },
			func(b *broken) bool { return b.in("inflight", b.running) && !b.in("line", b.running) },
		},
		"a waiting job in flight too": {
			func(b *broken) { b.put("inflight", b.waiting, 1e18) },
			func(b *broken) []repair { return []repair{{leaky.Misplaced, b.waiting}} },
			func(b *broken) bool { return b.in("line", b.waiting) && !b.in("inflight", b.waiting) },
		},
		"a delayed job in the line instead": {
			func(b *broken) {
				b.put("line", b.delayed, 0)
				b.do(func(p redis.Pipeliner) {
					p.ZRem(b.t.Context(), b.prefix+"delayed", b.delayed)
				})
			},
			func(b *broken) []repair { return []repair{{leaky.Misplaced, b.delayed}} },
			func(b *broken) bool { return b.in("delayed", b.delayed) && !b.in("line", b.delayed) },
		},
		"a delayed job in the line, with a deadline": {
			func(b *broken) {
				b.do(func(p redis.Pipeliner) {
					p.HSet(b.t.Context(), b.prefix+state(b.dated), "st", "delayed")
				})
			},
			func(b *broken) []repair { return []repair{{leaky.Misplaced, b.dated}} },
			func(b *broken) bool { return b.in("delayed", b.dated) && !b.in("deadlines", b.dated) },
		},
		"a running job in the line instead": {
			func(b *broken) {
				b.put("line", b.running, 0)
				b.do(func(p redis.Pipeliner) {
					p.ZRem(b.t.Context(), b.prefix+"inflight", b.running)
					p.HIncrBy(b.t.Context(), b.prefix+"share", zeta, 1)
				})
			},
			func(b *broken) []repair { return []repair{{leaky.Misplaced, b.running}} },
			func(b *broken) bool { return b.in("inflight", b.running) && !b.in("line", b.running) },
		},
		"a released job's state": {
			func(b *broken) { b.remove(state(b.released)) },
			func(b *broken) []repair { return []repair{{leaky.Misplaced, b.released}} },
			func(b *broken) bool {
				return b.in("line", b.released) && !b.in("inflight", b.released)
			},
		},
		"a finished job in the line again": {
			func(b *broken) { b.put("line", b.done, 0) },
			func(b *broken) []repair { return []repair{{leaky.Misplaced, b.done}} },
			func(b *broken) bool {
				return b.look(b.done).Standing.State == jobs.Succeeded && b.report().Lost == 0
			},
		},
		"a failed job in flight, for ever": {
			func(b *broken) {
				b.put("inflight", b.failed, 1e18)
				b.do(func(p redis.Pipeliner) {
					p.ZRem(b.t.Context(), b.prefix+"failed", b.failed)
					p.Persist(b.t.Context(), b.prefix+record(b.failed))
					p.Persist(b.t.Context(), b.prefix+state(b.failed))
				})
			},
			func(b *broken) []repair { return []repair{{leaky.Misplaced, b.failed}} },
			func(b *broken) bool {
				return b.in("failed", b.failed) && b.redrive(b.failed) == leaky.Redriven
			},
		},
		"a waiting job among the failed": {
			func(b *broken) { b.put("failed", b.waiting, 1) },
			func(b *broken) []repair { return []repair{{leaky.Misplaced, b.waiting}} },
			func(b *broken) bool { return b.in("line", b.waiting) && !b.in("failed", b.waiting) },
		},
		"a deadline of a job that runs": {
			func(b *broken) { b.put("deadlines", b.running, 1) },
			func(b *broken) []repair { return []repair{{leaky.NoWait, b.running}} },
			func(b *broken) bool {
				return !b.in("deadlines", b.running) && b.in("deadlines", b.dated)
			},
		},
		"the counts of waiting jobs": {
			func(b *broken) { b.remove("share") },
			func(b *broken) []repair {
				return []repair{{leaky.WrongShare, acme}, {leaky.WrongShare, zeta}}
			},
			func(b *broken) bool {
				return b.rdb.HGet(b.t.Context(), b.prefix+"share", acme).Val() == "3"
			},
		},
		"counts that are wrong": {
			func(b *broken) {
				b.do(func(p redis.Pipeliner) {
					p.HSet(b.t.Context(), b.prefix+"share", acme, 7, "abc", 2)
				})
			},
			func(b *broken) []repair {
				return []repair{{leaky.WrongShare, acme}, {leaky.WrongShare, "abc"}}
			},
			func(b *broken) bool { return b.rdb.HLen(b.t.Context(), b.prefix+"share").Val() == 2 },
		},
		"the bytes of jobs": {
			func(b *broken) { b.remove("stored") },
			func(b *broken) []repair {
				return []repair{{leaky.WrongBytes, acme}, {leaky.WrongBytes, zeta}}
			},
			func(b *broken) bool { return b.rdb.HLen(b.t.Context(), b.prefix+"stored").Val() == 2 },
		},
		"bytes that are wrong": {
			func(b *broken) {
				b.do(func(p redis.Pipeliner) {
					p.HSet(b.t.Context(), b.prefix+"stored", acme, 7, "abc", 2)
				})
			},
			func(b *broken) []repair {
				return []repair{{leaky.WrongBytes, acme}, {leaky.WrongBytes, "abc"}}
			},
			func(b *broken) bool { return b.rdb.HLen(b.t.Context(), b.prefix+"stored").Val() == 2 },
		},
		"jobs that were counted and are nowhere": {
			func(b *broken) {
				b.do(func(p redis.Pipeliner) {
					p.HIncrBy(b.t.Context(), b.prefix+"books", "accepted", 3)
				})
			},
			func(b *broken) []repair { return []repair{{leaky.WrongSum, "3"}} },
			func(b *broken) bool { return b.report().Lost == 3 },
		},
		"fewer were counted than redriven": {
			func(b *broken) {
				b.do(func(p redis.Pipeliner) {
					p.HSet(b.t.Context(), b.prefix+"books", "failed", 0)
				})
				b.redrive(b.failed)
			},
			func(b *broken) []repair { return []repair{{leaky.WrongSum, "1"}} },
			func(b *broken) bool { r := b.report(); return r.Failed == 0 && r.Accepted == 8 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroken(t)
			b.checkRight()
			c.harm(b)
			before := b.report()
			got, want := b.round(), c.want(b)
			slices.SortFunc(got, byWhat)
			slices.SortFunc(want, byWhat)
			if !slices.Equal(got, want) {
				t.Errorf("repairs %v, want %v", got, want)
			}
			after := b.report()
			kinds := map[string]int64{}
			for _, r := range want {
				kinds[r.Kind]++
			}
			for kind, n := range after.Repairs {
				if n != before.Repairs[kind]+kinds[kind] {
					t.Errorf("%d repairs of kind %s were counted", n, kind)
				}
			}
			if after.Difference != 0 {
				t.Errorf("the books: %+v", after)
			}
			if !c.then(b) {
				t.Errorf("it isn't as it should be: %+v", after)
			}
			b.pause(false)
			b.pass(time.Hour)
			b.drainer(time.Millisecond).empty()
		})
	}
}

func byWhat(a, b leaky.Repair) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.What, b.What))
}

// Jobs that ended before the counters were lost are not counted any more; the others are.
func TestLostCountersBeginAnew(t *testing.T) {
	t.Parallel()
	b := newUnchecked(t, redistest.Client(t), nil)
	b.accept("acme")
	b.fail("x")
	b.fill("acme", 3)
	if err := b.rdb.Del(t.Context(),
		jobs.KeyPrefix(b.Settings().Backend)+"books").Err(); err != nil {
		t.Fatal(err)
	}
	if got := b.round(); !slices.Equal(got, []leaky.Repair{{Kind: leaky.WrongSum, What: "-3"}}) {
		t.Errorf("repairs %v", got)
	}
	if r := b.report(); r.Accepted != 3 || r.Lost != 0 || r.Difference != 0 {
		t.Errorf("the books: %+v", r)
	}
	b.checkRight()
}

// Jobs that were counted as lost and are there after all (a replica that was ahead comes back)
// don't count as lost any more.
func TestJobsCountedAsLostAreFoundAgain(t *testing.T) {
	t.Parallel()
	b := newBroken(t)
	score := b.rdb.ZScore(t.Context(), b.prefix+"line", b.waiting).Val()
	b.do(func(p redis.Pipeliner) { p.ZRem(t.Context(), b.prefix+"line", b.waiting) })
	b.round()
	if r := b.report(); r.Lost != 1 {
		t.Fatalf("the books: %+v", r)
	}
	b.put("line", b.waiting, score)
	b.round()
	if r := b.report(); r.Lost != 0 || r.Difference != 0 {
		t.Errorf("the books: %+v", r)
	}
}

// A client whose jobs were lost with the line doesn't queue behind their turns.
func TestALostLineLeavesNoFlows(t *testing.T) {
	t.Parallel()
	b := newUnchecked(t, redistest.Client(t), func(s *leaky.Settings) { s.Capacity = 1000 })
	prefix := jobs.KeyPrefix(b.Settings().Backend)
	b.pause(true)
	b.fill("acme", 500)
	if err := b.rdb.Del(t.Context(), prefix+"line").Err(); err != nil {
		t.Fatal(err)
	}
	b.fill("zeta", 3)
	got := b.round()
	want := []leaky.Repair{{Kind: leaky.WrongShare, What: leaky.ClientTag("acme")},
		{Kind: leaky.WrongBytes, What: leaky.ClientTag("acme")},
		{Kind: leaky.WrongSum, What: "500"},
		{Kind: leaky.NoFlow, What: leaky.ClientTag("acme") + ":normal"}}
	if !slices.Equal(got, want) {
		t.Errorf("repairs %v, want %v", got, want)
	}
	if place := b.offer(b.job("acme")); place.Position > 2 {
		t.Errorf("a new job of the client whose jobs are gone is at %d", place.Position)
	}
	if r := b.report(); r.Lost != 500 || r.Difference != 0 {
		t.Errorf("the books: %+v", r)
	}
	b.checkRight()
}

// However many jobs there are, one call looks at 500, and the next goes on.
func TestReconcilingIsDoneInParts(t *testing.T) {
	t.Parallel()
	rdb := ownServer(t)
	b := newLineOn(t, rdb, func(s *leaky.Settings) { s.Capacity, s.MaxWait = 10_000, 24*time.Hour })
	b.pause(true)
	ids := b.fill("acme", 1800)
	prefix := jobs.KeyPrefix(b.Settings().Backend)
	gone := []string{ids[3], ids[700], ids[701], ids[1799]}
	for _, id := range gone {
		if err := rdb.Del(t.Context(), prefix+"job:"+id).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for n := 1; ; n++ {
		b.pass(5 * time.Second)
		if err := rdb.ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		r := b.reconcile()
		if total := calls(t, b)["total"]; total > 2200 {
			t.Errorf("%d commands in one call", total)
		}
		for _, repair := range r.Repairs {
			got = append(got, repair.What)
		}
		if r.Round {
			if n != 4 {
				t.Errorf("a round took %d calls", n)
			}
			break
		}
	}
	if !slices.Equal(got, gone) {
		t.Errorf("repairs of %v, want %v", got, gone)
	}
	// The client's count can be repaired once one call can look at all waiting jobs.
	b.pause(false)
	b.tune(leaky.Override{Rate: &leaky.Unlimited, Concurrency: new(1000)})
	for d := b.drainer(0); b.status().Waiting > 400; {
		d.ask()
		b.pass(time.Millisecond)
		for len(d.calls) > 0 {
			d.finish()
		}
	}
	b.pause(true)
	if got := b.round(); len(got) != 2 || got[0].Kind != leaky.WrongShare ||
		got[1].Kind != leaky.WrongBytes {
		t.Errorf("repairs %v", got)
	}
}

// Any number of workers may call. The work doesn't grow with them.
func TestOneCallerAtATimeReconciles(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.accept("acme")
	for _, c := range []struct {
		pass  time.Duration
		rests bool
	}{{0, false}, {0, true}, {5*time.Second - time.Microsecond, true}, {time.Microsecond, false},
		{-time.Hour, false}} {
		b.pass(c.pass)
		if r := b.reconcile(); r.Resting != c.rests || r.Round == c.rests {
			t.Errorf("after %v: %+v", c.pass, r)
		}
	}
}

// The check costs the same for any number of jobs.
func TestTheBooksAreFromOneMoment(t *testing.T) {
	t.Parallel()
	rdb := ownServer(t)
	b := &broken{bench: newLineOn(t, rdb, nil)}
	b.fill("acme", 90)
	if err := rdb.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r := b.report()
	if total := calls(t, b.bench)["total"]; total > 12 {
		t.Errorf("%d commands", total)
	}
	if r.Accepted != 90 || r.Waiting != 90 || r.Difference != 0 || !r.At.Equal(b.now) ||
		len(r.Repairs) != len(leaky.RepairKinds) {
		t.Errorf("%+v", r)
	}
	prefix := jobs.KeyPrefix(b.Settings().Backend)
	rdb.HIncrBy(t.Context(), prefix+"books", "accepted", 2)
	if r := b.report(); r.Difference != 2 {
		t.Errorf("with two too many: %s", fmt.Sprint(r))
	}
	rdb.HIncrBy(t.Context(), prefix+"books", "accepted", -2)
}

// A job whose place Redis has lost is put back when it is looked at. Canceling such a job doesn't
// change other counts.
func TestAJobWithoutAPlaceIsPutBackByALook(t *testing.T) {
	t.Parallel()
	b, rdb := newLine(t, nil), redistest.Client(t)
	pause := func(paused bool) {
		t.Helper()
		if err := b.Tune(t.Context(), leaky.Override{Paused: &paused}, "test"); err != nil {
			t.Fatal(err)
		}
	}
	pause(true)
	ids := b.fill("acme", 3)
	rdb.Del(t.Context(), jobs.KeyPrefix(b.Settings().Backend)+"line")
	b.release() // the line is idle: its clients have no jobs
	if outcome := b.cancel(ids[2]); outcome != leaky.Canceled {
		t.Errorf("cancel = %s", outcome)
	}
	for i, id := range ids[:2] {
		if look := b.look(id); look.Position == 0 || look.WaitingOn != leaky.OnPaused ||
			look.Standing.State != jobs.Waiting {
			t.Errorf("job %d is at %d, waiting on %q", i, look.Position, look.WaitingOn)
		}
	}
	if s := b.status(); s.Waiting != 2 {
		t.Errorf("%d jobs wait, want 2", s.Waiting)
	}
	if n := rdb.HGet(t.Context(), jobs.KeyPrefix(b.Settings().Backend)+"share",
		leaky.ClientTag("acme")).Val(); n != "2" {
		t.Errorf("the client's count is %q", n)
	}
	pause(false)
	if n := len(b.release().Tickets); n == 0 {
		t.Error("what was put back isn't released")
	}
}

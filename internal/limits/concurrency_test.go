package limits

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/redistest"
)

func permitsOf(t testing.TB, amount int64) *Rule {
	t.Helper()
	return compile(t, Limit{Algorithm: Concurrency, Amount: amount})
}

// hold asks for a permit for a job.
func hold(t testing.TB, l *Limiter, job string, rules ...*Rule) Verdict {
	t.Helper()
	r := request(1, rules...)
	r.Job = job
	return decide(t, l, r)
}

// A concurrency limit counts jobs, whatever they cost, from the charge to the refund.
func TestPermitsAreHeldByJobs(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		r := permitsOf(t, 3)
		var held []Verdict
		for i := range 3 {
			q := request(1000, r) // far over the amount: a job is one job
			q.Job = fmt.Sprint("job ", i)
			v := decide(t, l, q)
			if s := v.Standings[0]; !v.Allowed || s.Remaining != int64(2-i) || s.Reset != 0 {
				t.Fatalf("job %d: %+v", i, v)
			}
			held = append(held, v)
		}
		v := hold(t, l, "one more", r)
		if s := v.Standings[0]; v.Allowed || v.Never || v.Reason != r.limit.Name ||
			v.RetryAfter < time.Second || s.Reset != 0 || s.Remaining != 0 {
			t.Errorf("one more: %+v", v)
		}
		c.pass(30 * 24 * time.Hour) // time alone frees nothing
		if hold(t, l, "one more", r).Allowed {
			t.Error("a permit was freed without a refund")
		}
		for range 2 { // giving it back twice gives back one
			if err := l.Refund(t.Context(), held[1]); err != nil {
				t.Fatal(err)
			}
		}
		if n := peekAt(t, l, request(1, r)).Standings[0].Remaining; n != 1 {
			t.Errorf("%d permits free, not 1", n)
		}
		if !hold(t, l, "one more", r).Allowed || hold(t, l, "and another", r).Allowed {
			t.Error("one free permit must hold one job")
		}
	})
}

// A job holds one permit, however often it is requested: a retried request isn't a second job.
func TestAJobHoldsOnePermit(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		r := permitsOf(t, 2)
		first := hold(t, l, "same", r)
		for range 5 {
			if v := hold(t, l, "same", r); !v.Allowed || v.Standings[0].Remaining != 1 {
				t.Fatalf("%+v", v)
			}
		}
		if !hold(t, l, "other", r).Allowed {
			t.Error("the second permit is taken")
		}
		if err := l.Refund(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if n := peekAt(t, l, request(1, r)).Standings[0].Remaining; n != 1 {
			t.Errorf("%d permits free, not 1", n)
		}
	})
}

// A request that makes no job takes no permit. Its verdict has the limit's state, and it is refused
// if no permit is free.
func TestWithoutAJobNoPermitIsHeld(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		r := permitsOf(t, 1)
		if in := admitted(t, l, 10, r); in != 10 {
			t.Errorf("%d of 10 admitted to a free permit that none of them takes", in)
		}
		hold(t, l, "job", r)
		if in := admitted(t, l, 10, r); in != 0 {
			t.Errorf("%d of 10 admitted where no permit is free", in)
		}
	})
}

// Permits and windows are decided together: if the window is full, no permit is taken, and if no
// permit is free, the window isn't charged.
func TestPermitsAreAllOrNothingToo(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		each(t, 3, time.Hour, func(t *testing.T, window *Rule) {
			permits := permitsOf(t, 2)
			for i, want := range []struct {
				permits, window int64
				reason          string
			}{{1, 2, ""}, {0, 1, ""}, {0, 1, permits.limit.Name}, {0, 1, permits.limit.Name}} {
				v := hold(t, l, fmt.Sprint(i), window, permits)
				if v.Reason != want.reason || v.Standings[0].Remaining != want.window ||
					v.Standings[1].Remaining != want.permits {
					t.Errorf("job %d: %+v", i, v)
				}
			}
			more := permitsOf(t, 2)
			hold(t, l, "last", window)
			if v := hold(t, l, "too many", window, more); v.Allowed ||
				v.Standings[1].Remaining != 2 {
				t.Errorf("a full window took a permit: %+v", v)
			}
		})
	})
}

// C35: of 200 jobs at one moment, exactly 10 get a permit of 10, also through two processes.
func TestSimultaneousJobsCannotShareAPermit(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	on := func(rdb redis.UniversalClient) *Limiter {
		return newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience)
	}
	for name, limiters := range map[string][]*Limiter{
		"two processes": {on(rdb), on(redistest.Client(t))},
		"embedded":      {on(redistest.Miniredis(t))},
		"model":         {NewLocal()},
	} {
		r := permitsOf(t, 10)
		var in atomic.Int64
		var all sync.WaitGroup
		barrier := make(chan struct{})
		for i := range 200 {
			all.Go(func() {
				<-barrier
				if hold(t, limiters[i%len(limiters)], fmt.Sprint(i), r).Allowed {
					in.Add(1)
				}
			})
		}
		close(barrier)
		all.Wait()
		if in.Load() != 10 {
			t.Errorf("%s: %d jobs hold a permit of 10", name, in.Load())
		}
	}
}

// C25: a key of permits expires, and one of another type is replaced.
func TestAKeyOfPermitsEnds(t *testing.T) {
	t.Parallel()
	for name, rdb := range map[string]redis.UniversalClient{
		"redis": redistest.Client(t), "miniredis": redistest.Miniredis(t),
	} {
		l := newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience)
		r := permitsOf(t, 2)
		key := keyOf(t, r)
		v := hold(t, l, "job", r)
		const lasts = permitsLast*time.Millisecond + keySlack
		if ttl := rdb.PTTL(t.Context(), key).Val(); ttl > lasts || ttl < lasts-time.Minute {
			t.Errorf("%s: TTL %v", name, ttl)
		}
		if err := rdb.Persist(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		hold(t, l, "another", r)
		if ttl := rdb.PTTL(t.Context(), key).Val(); ttl <= 0 {
			t.Errorf("%s: made to last, and then used: TTL %v", name, ttl)
		}
		if err := l.Refund(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		for kind, spoil := range map[string]func() error{
			"string": func() error { return rdb.Set(t.Context(), key, "x", 0).Err() },
			"list":   func() error { return rdb.RPush(t.Context(), key, "x").Err() },
			"hash":   func() error { return rdb.HSet(t.Context(), key, "x", "y").Err() },
		} {
			rdb.Del(t.Context(), key)
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			if v := hold(t, l, "job", r); !v.Allowed || v.Standings[0].Remaining != 1 ||
				rdb.PTTL(t.Context(), key).Val() <= 0 {
				t.Errorf("%s: a key that was a %s: %+v", name, kind, v)
			}
		}
	}
}

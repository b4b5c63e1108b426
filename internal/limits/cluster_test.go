package limits

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/redistest"
)

// A cluster takes seconds to start, so all tests that need one share it.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	rdb, _ := redistest.StartCluster(t)
	l := newLimiter(&script{rdb: rdb, slack: keySlack}, true, patience)

	// C29, C30: limits of every algorithm and every kind of subject are kept for 200 clients of any
	// name, and no script leaves its slot.
	t.Run("limits of all subjects hold", func(t *testing.T) {
		var rules []*Rule
		for _, per := range everyPer {
			for _, a := range everyAlgorithm {
				l := Limit{Algorithm: a, Per: per, Amount: MaxLog, Window: MaxWindow}
				if per == PerClientOperation {
					l.Amount = 2
				}
				if a == Concurrency {
					l.Window = 0
				}
				rules = append(rules, compile(t, l))
			}
		}
		for i := range 200 {
			r := Request{Rules: rules, Cost: 1,
				Subject: Subject{Client: fmt.Sprintf("{%d}}{a{", i), Address: fmt.Sprint(i),
					Operation: fmt.Sprintf("}{%d", i%7), Tier: fmt.Sprint("{", i%3), Country: "NO"}}
			for j := range 3 {
				r.Job = fmt.Sprint(i, " ", j)
				v := decide(t, l, r)
				if v.Allowed != (j < 2) {
					t.Fatalf("request %d of client %d: %+v", j, i, v)
				}
				for _, s := range v.Standings {
					if s.Remaining < 0 || s.Remaining > s.Rule.capacity {
						t.Fatalf("%d remain of %+v", s.Remaining, s.Rule.limit)
					}
				}
			}
		}
		v := peekAt(t, l, Request{Rules: rules, Cost: 1, Subject: alice})
		for i, s := range v.Standings {
			if s.Rule != rules[i] {
				t.Errorf("standing %d is of another rule", i)
			}
			if s.Rule.limit.Per == PerGlobal && s.Remaining != MaxLog-400 {
				t.Errorf("%d remain of a global %s that admitted 400",
					s.Remaining, s.Rule.limit.Algorithm)
			}
		}
	})

	t.Run("permits are held by jobs", func(t *testing.T) {
		client := compile(t, Limit{Algorithm: Concurrency, Amount: 3})
		global := compile(t, Limit{Algorithm: Concurrency, Per: PerGlobal, Amount: 2})
		var held []Verdict
		for i := range 4 {
			v := hold(t, l, fmt.Sprint("job ", i), client, global)
			if v.Allowed != (i < 2) || v.Standings[0].Remaining != max(1, int64(2-i)) ||
				v.Standings[1].Remaining != max(0, int64(1-i)) {
				t.Errorf("job %d: %+v", i, v)
			}
			held = append(held, v)
		}
		if err := l.Refund(t.Context(), held[0]); err != nil {
			t.Fatal(err)
		}
		if v := hold(t, l, "another", client, global); !v.Allowed {
			t.Errorf("a permit was given back: %+v", v)
		}
	})

	// A shadow limit on another node is charged only for requests that the enforced ones admit, and
	// never refuses.
	t.Run("shadow limits refuse none and are charged for none refused", func(t *testing.T) {
		trial := compile(t, Limit{Algorithm: SlidingWindowLog, Amount: 10, Window: MaxWindow,
			Shadow: true})
		full := compile(t, Limit{Algorithm: FixedWindow, Per: PerIP, Amount: 1, Window: MaxWindow,
			Shadow: true})
		operation := compile(t, Limit{Algorithm: LeakyBucket, Per: PerOperation, Amount: 2,
			Window: MaxWindow})
		for i, want := range []bool{true, true, false, false} {
			v := decide(t, l, request(1, trial, full, operation))
			if v.Allowed != want || v.Standings[0].Violated || v.Standings[1].Violated != (i > 0) {
				t.Errorf("request %d: %+v", i, v)
			}
		}
		for i, want := range []int64{8, 0, 0} {
			v := peekAt(t, l, request(1, trial, full, operation))
			if s := v.Standings[i]; s.Remaining != want {
				t.Errorf("%s has %d, not %d", s.Rule.limit.Algorithm, s.Remaining, want)
			}
		}
	})

	// C31: if one limit refuses, those that admitted before it get their charge back, and the
	// verdict shows that.
	t.Run("a refusal charges nothing", func(t *testing.T) {
		key := compile(t, Limit{Algorithm: SlidingWindowCounter, Amount: 10, Window: MaxWindow})
		operation := compile(t, Limit{Algorithm: TokenBucket, Per: PerOperation, Amount: 2,
			Window: MaxWindow})
		global := compile(t, Limit{Algorithm: TokenBucket, Per: PerGlobal, Amount: 20,
			Window: MaxWindow})
		if in := admitted(t, l, 8, key, operation, global); in != 2 {
			t.Fatalf("%d of 8 admitted, not 2", in)
		}
		for _, ask := range []func(testing.TB, *Limiter, Request) Verdict{decide, peekAt} {
			v := ask(t, l, request(1, global, operation, key))
			if v.Allowed || v.Reason != operation.limit.Name || v.RetryAfter == 0 {
				t.Errorf("%+v", v)
			}
			for i, want := range []int64{18, 0, 8} {
				if s := v.Standings[i]; s.Remaining != want || s.Violated != (want == 0) {
					t.Errorf("%s stands at %+v", s.Rule.limit.Name, s)
				}
			}
		}
	})

	t.Run("a refund reaches every subject", func(t *testing.T) {
		rules := []*Rule{
			compile(t, Limit{Algorithm: TokenBucket, Amount: 5, Window: MaxWindow}),
			compile(t, Limit{Algorithm: SlidingWindowCounter, Per: PerIP, Amount: 5,
				Window: MaxWindow}),
			compile(t, Limit{Algorithm: SlidingWindowCounter, Per: PerGlobal, Amount: 5,
				Window: MaxWindow}),
			compile(t, Limit{Algorithm: SlidingWindowLog, Per: PerTier, Amount: 5,
				Window: MaxWindow}),
			compile(t, Limit{Algorithm: FixedWindow, Per: PerCountry, Amount: 5,
				Window: MaxWindow}),
		}
		if err := l.Refund(t.Context(), decide(t, l, request(3, rules...))); err != nil {
			t.Fatal(err)
		}
		for _, s := range peekAt(t, l, request(1, rules...)).Standings {
			if s.Remaining != 5 {
				t.Errorf("%+v", s)
			}
		}
	})

	t.Run("simultaneous requests cannot overspend", func(t *testing.T) { // C35
		client := bucketOf(t, 20, MaxWindow, 0)
		operation := compile(t, Limit{Algorithm: SlidingWindowCounter, Per: PerOperation,
			Amount: 10, Window: MaxWindow})
		if in := atOnce(t, 200, []*Limiter{l}, request(1, client, operation)); in != 10 {
			t.Errorf("%d admitted, not 10", in)
		}
		if n := peekAt(t, l, request(1, client)).Standings[0].Remaining; n != 10 {
			t.Errorf("%d remain to the client, not 10", n)
		}
	})

	t.Run("a failed subject gives back the others", func(t *testing.T) {
		client := bucketOf(t, 10, MaxWindow, 0)
		global := compile(t, Limit{Algorithm: TokenBucket, Per: PerGlobal, Amount: 10,
			Window: MaxWindow})
		faulty := redistest.NewFaulty(t, rdb)
		for _, applied := range []bool{false, true} {
			faulty.FailNext(mentions(global), applied)
			if _, err := l.Decide(t.Context(), request(1, client, global)); err == nil {
				t.Fatal("a lost reply passed as an answer")
			}
			if n := peekAt(t, l, request(1, client)).Standings[0].Remaining; n != 10 {
				t.Errorf("%d remain to the client, not 10", n)
			}
		}
		if n := peekAt(t, l, request(1, global)).Standings[0].Remaining; n != 9 {
			t.Errorf("%d remain of the limit whose one reply was lost, not 9", n)
		}
	})

	t.Run("a caller that hangs up leaves no half charge", func(t *testing.T) {
		client := bucketOf(t, 10, MaxWindow, 0)
		global := compile(t, Limit{Algorithm: TokenBucket, Per: PerGlobal, Amount: 10,
			Window: MaxWindow})
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		rdb.AddHook(onScript{matches: mentions(client), do: func(call func() error) error {
			cancel()
			calls++
			err := call()
			if err != nil {
				t.Errorf("call %d ended with its caller: %v", calls, err)
			}
			return err
		}})
		if _, err := l.Decide(ctx, request(1, client, global)); !errors.Is(err, context.Canceled) {
			t.Fatalf("err = %v", err)
		}
		if calls != 2 { // a charge and its refund
			t.Errorf("%d calls", calls)
		}
		for _, s := range peekAt(t, l, request(1, client, global)).Standings {
			if s.Remaining != 10 {
				t.Errorf("%s has %d of 10", s.Rule.limit.Per, s.Remaining)
			}
		}
	})
}

// mentions matches the scripts that have a key of the rule.
func mentions(r *Rule) func(redis.Cmder) bool {
	return func(cmd redis.Cmder) bool {
		return isScript(cmd) && strings.Contains(fmt.Sprint(cmd.Args()...), r.limit.Name)
	}
}

// onScript wraps the calls of some scripts.
type onScript struct {
	passing
	matches func(redis.Cmder) bool
	do      func(call func() error) error
}

func (h onScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !h.matches(cmd) {
			return next(ctx, cmd)
		}
		return h.do(func() error { return next(ctx, cmd) })
	}
}

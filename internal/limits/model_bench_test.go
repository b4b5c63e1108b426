package limits

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkModel decides one request on one limit, and on three at once, in this process.
func BenchmarkModel(b *testing.B) {
	rule := func(a Algorithm) *Rule {
		l := Limit{Name: "bench", Algorithm: a, Per: PerClient, Amount: 1000, Window: time.Second}
		if a == Concurrency {
			l.Window = 0
		}
		r, err := Compile(l)
		if err != nil {
			b.Fatal(err)
		}
		return r
	}
	cases := map[string][]*Rule{
		"three": {rule(TokenBucket), rule(SlidingWindowCounter), rule(FixedWindow)},
	}
	for _, a := range everyAlgorithm {
		cases[string(a)] = []*Rule{rule(a)}
	}
	for name, rules := range cases {
		b.Run(name, func(b *testing.B) {
			now := start.UnixMicro()
			m := newMemory(func() int64 { now += 500; return now })
			q, err := Request{Rules: rules, Subject: alice, Cost: 1, Job: "a job"}.question(spend)
			if err != nil {
				b.Fatal(err)
			}
			if rules[0].kind == kindConcurrency { // others hold permits too
				for i := range 500 {
					other := *q
					other.member = fmt.Sprint("job ", i)
					m.answer(&other, make([]fill, 1))
				}
			}
			fills := make([]fill, len(rules))
			b.ReportAllocs()
			for b.Loop() {
				m.answer(q, fills)
			}
		})
	}
}

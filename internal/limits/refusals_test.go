package limits

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/redistest"
)

// process is a process that remembers refusals, with a source that it shares with others.
type process struct {
	refusals refusals
	source   *memory
	clock    *clock
}

func (p *process) host() time.Time { return time.UnixMicro(p.clock.now.Load()).Add(-time.Hour) }

// decide has the source decide, unless the refusal is remembered. there and back are the times that
// the question and the answer take.
func (p *process) decide(t *rapid.T, r Request,
	there, back time.Duration) (v Verdict, remembered bool) {
	if v, ok := p.refusals.recall(r, p.host()); ok {
		return v, true
	}
	q, err := r.question(spend)
	if err != nil {
		t.Fatal(err)
	}
	sent := p.host()
	p.clock.pass(there)
	a := p.source.answer(q, make([]fill, len(q.rules)))
	p.clock.pass(back)
	p.refusals.note(r, a, sent, p.host())
	return verdict(r, []*question{q}, []answer{a}), false
}

// A process never refuses a request from memory that the store would admit, whatever several
// processes spend, and however long the store's answers take. It reports where the limits stand as
// the store would, except for the time of the answer and charges of other processes since.
func TestNoRequestIsRefusedFromMemoryThatTheStoreWouldAdmit(t *testing.T) {
	t.Parallel()
	recalled := 0
	rapid.Check(t, func(rt *rapid.T) {
		c := newClock()
		source := newMemory(c.now.Load)
		processes := []*process{{source: source, clock: c}, {source: source, clock: c}}
		var rules []*Rule
		for i := range rapid.IntRange(1, 3).Draw(rt, "rules") {
			rules = append(rules, anyLimit(rt, redistest.Name(t, fmt.Sprint("m", i))))
		}
		jobs, spent, refused := 0, 0, map[*process]int{} // the numbers of requests
		rt.Repeat(map[string]func(*rapid.T){
			"decide": func(rt *rapid.T) {
				p := rapid.SampledFrom(processes).Draw(rt, "process")
				jobs++
				r := Request{Rules: rules, Subject: alice, Cost: anyCost(rt, rules),
					Bytes: anyBytes(rt, rules), Job: fmt.Sprint(jobs)}
				way := func(name string) time.Duration {
					return time.Duration(rapid.IntRange(0, 2000).Draw(rt, name)) * time.Microsecond
				}
				there, back := way("there"), way("back")
				v, remembered := p.decide(rt, r, there, back)
				if !remembered {
					if v.Allowed {
						spent = jobs
					} else if !v.Never { // what never fits isn't remembered
						refused[p] = jobs
					}
					return
				}
				recalled++
				q, err := r.question(peek)
				if err != nil {
					rt.Fatal(err)
				}
				a := source.answer(q, make([]fill, len(rules)))
				now := verdict(r, []*question{q}, []answer{a})
				if now.Allowed {
					rt.Fatalf("refused from memory: %+v\nthe store says %+v", v, now)
				}
				if early := v.At.Sub(now.At); early > 0 || early < -2*time.Millisecond {
					rt.Errorf("it takes the store's time for %v later than it is", early)
				}
				late := v.RetryAfter - now.RetryAfter
				if !concurrent(rules) &&
					(late > 2*time.Millisecond || late < 0 && spent < refused[p]) {
					rt.Errorf("Retry-After is %v, the store's %v", v.RetryAfter, now.RetryAfter)
				}
			},
			"wait": func(rt *rapid.T) { c.pass(anyPause(rt, rules)) },
			"soon": func(rt *rapid.T) {
				c.pass(micros(rapid.Int64Range(0, 20_000).Draw(rt, "µs")))
			},
		})
	})
	if recalled == 0 {
		t.Error("nothing was ever refused from memory")
	}
}

func concurrent(rules []*Rule) bool {
	for _, r := range rules {
		if r.kind == kindConcurrency {
			return true
		}
	}
	return false
}

// Refusals are remembered of rate limits only, of one subject, for at least the same cost, and for
// 10 s at most.
func TestWhatIsRefusedFromMemory(t *testing.T) {
	t.Parallel()
	compiled := func(l Limit) *Rule {
		l.Name, l.Per = redistest.Name(t, "m"), PerClient
		r, err := Compile(l)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	bucket := []*Rule{compiled(Limit{Algorithm: TokenBucket, Amount: 3, Window: time.Hour})}
	log := []*Rule{compiled(Limit{Algorithm: SlidingWindowLog, Amount: 3, Window: time.Hour})}
	shadow := []*Rule{compiled(Limit{Algorithm: TokenBucket, Amount: 1, Window: time.Hour,
		Shadow: true})}
	atOnce := []*Rule{compiled(Limit{Algorithm: Concurrency, Amount: 1})}
	bob := alice
	bob.Client = "bob"
	for name, c := range map[string]struct {
		rules   []*Rule
		first   Request // refused
		then    Request
		after   time.Duration
		recalls bool
	}{
		"the same":             {bucket, Request{Cost: 3}, Request{Cost: 3}, time.Second, true},
		"another, dearer":      {bucket, Request{Cost: 2}, Request{Cost: 3}, time.Second, true},
		"one that is cheaper":  {bucket, Request{Cost: 3}, Request{Cost: 1}, time.Second, false},
		"a shadow limit":       {shadow, Request{Cost: 1}, Request{Cost: 1}, 0, false},
		"a log, and a dearer":  {log, Request{Cost: 2}, Request{Cost: 3}, time.Second, false},
		"a log, and the equal": {log, Request{Cost: 2}, Request{Cost: 2}, time.Second, true},
		"another caller": {bucket, Request{Cost: 3}, Request{Cost: 3, Subject: bob},
			time.Second, false},
		"after a while": {bucket, Request{Cost: 3}, Request{Cost: 3},
			11 * time.Second, false},
		"jobs at one time": {atOnce, Request{Cost: 1, Job: "two"}, Request{Cost: 1, Job: "two"},
			0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			p := &process{source: newMemory(clock.now.Load), clock: clock}
			rapid.Check(t, func(rt *rapid.T) {
				p.decide(rt, Request{Rules: c.rules, Subject: alice, Cost: c.rules[0].capacity,
					Job: "one"}, 0, 0)
			})
			c.first.Rules, c.then.Rules, c.first.Subject = c.rules, c.rules, alice
			if c.then.Subject == (Subject{}) {
				c.then.Subject = alice
			}
			rapid.Check(t, func(rt *rapid.T) { p.decide(rt, c.first, 0, 0) })
			clock.pass(c.after)
			v, ok := p.refusals.recall(c.then, p.host())
			if ok != c.recalls {
				t.Fatalf("it is recalled: %v, %+v", ok, v)
			}
			if ok && (v.Allowed || v.Reason != c.rules[0].limit.Name || v.RetryAfter <= 0 ||
				len(v.Standings) != 1) {
				t.Errorf("the verdict is %+v", v)
			}
		})
	}
}

// The number of remembered refusals is bounded.
func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	r, err := Compile(Limit{Name: redistest.Name(t, "m"), Per: PerClient, Algorithm: TokenBucket,
		Amount: 1, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	rules, now := []*Rule{r}, time.Now()
	var m refusals
	last := Request{}
	for i := range 3 * maxRefusals {
		last = Request{Rules: rules, Cost: 1, Subject: Subject{Client: fmt.Sprint(i)}}
		m.note(last, answer{now: now.UnixMicro(), fills: []fill{{}}}, now, now)
	}
	if n := len(m.young) + len(m.old); n > 2*maxRefusals {
		t.Errorf("%d are remembered", n)
	}
	if _, ok := m.recall(last, now); !ok {
		t.Error("the newest is forgotten")
	}
}

package limits

import (
	"slices"
	"sync"
	"time"
)

const (
	// refusalFor bounds how long a refusal is remembered. Its end is exact, but room can come
	// sooner without the process's being notified: if Redis's clock is set forward, or an operator
	// removes a key.
	refusalFor = 10 * time.Second
	// refusalForPermits bounds it if concurrency limits apply too. Their jobs end at any time, so
	// their numbers in an answer are out of date sooner.
	refusalForPermits = time.Second
	// maxRefusals bounds each of the two halves of the callers with remembered refusals, of about
	// 500 bytes for each plan. When the younger half is full, the older one is dropped.
	maxRefusals = 10_000
	// maxRefusalsEach bounds the plans of one caller: a few operations at one time.
	maxRefusalsEach = 4
)

// refusals remembers refusals by rate limits until an equal request fits again. A refused request
// spends nothing, so Redis could only give the same answer. When the caller is charged through this
// process, its remembered refusals are dropped. Refusals by concurrency limits aren't remembered.
// Safe for concurrent use. The zero value is empty and ready to use.
type refusals struct {
	mu         sync.Mutex
	young, old map[caller][]refusal // guarded by mu
}

// caller is a client, or an address alone.
type caller struct{ client, address string }

// plan identifies the limits and the subject of a refused request. A plan's list of rules is made
// once, so the address of its first element identifies it. Other limits, and those of another
// config, are another list.
type plan struct {
	first   **Rule
	rules   int
	subject Subject
}

type refusal struct {
	plan
	cost, bytes int64
	received    time.Time
	until       time.Time
	answer      answer
}

// note remembers the answer to a request, given when the request was sent and the answer received.
// It replaces what was remembered of the same plan.
func (m *refusals) note(r Request, a answer, sent, received time.Time) {
	if len(r.Rules) == 0 {
		return
	}
	c, p := callerOf(r), planOf(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.of(c)
	if all == nil && a.spent {
		return
	}
	delete(m.young, c)
	delete(m.old, c)
	if a.spent {
		return
	}
	all = slices.DeleteFunc(all, func(one refusal) bool {
		return one.plan == p || !one.until.After(received)
	})
	until := sent.Add(lasts(r, a)) // counted from before Redis decided: never too long
	if until.After(received) {
		if len(all) == maxRefusalsEach {
			all = slices.Delete(all, 0, 1)
		}
		all = append(all, refusal{p, r.Cost, r.Bytes, received, until, a})
	}
	if len(all) == 0 {
		return
	}
	if len(m.young) >= maxRefusals {
		m.old, m.young = m.young, nil
	}
	if m.young == nil {
		m.young = make(map[caller][]refusal)
	}
	m.young[c] = all
}

// of returns the refusals that are remembered of a caller. m.mu must be held.
func (m *refusals) of(c caller) []refusal {
	if all, ok := m.young[c]; ok {
		return all
	}
	return m.old[c]
}

func callerOf(r Request) caller {
	if r.Subject.Client != "" {
		return caller{client: r.Subject.Client}
	}
	return caller{address: r.Subject.Address}
}

func planOf(r Request) plan { return plan{&r.Rules[0], len(r.Rules), r.Subject} }

// lasts returns for how long to remember the refusal, which holds for requests that take no less.
// It returns 0 if it is not to be remembered.
func lasts(r Request, a answer) time.Duration {
	longest, most := time.Duration(0), refusalFor
	for i, rule := range r.Rules {
		takes := r.Takes(rule)
		fits := rule.fits(a.fills[i], takes)
		switch {
		case rule.limit.Shadow:
		case rule.kind == kindConcurrency && !fits, rule.never(takes):
			return 0
		case rule.kind == kindConcurrency:
			most = refusalForPermits
		case !fits:
			longest = max(longest, micros(rule.arithmetic.wait(a.fills[i], a.now, takes)))
		}
	}
	return min(longest, most)
}

// recall returns the verdict on a request that takes no less than a refused one, for as long as
// Redis would refuse it too. The verdict says where the limits stand now, unless other requests
// have spent since.
func (m *refusals) recall(r Request, now time.Time) (Verdict, bool) {
	if len(r.Rules) == 0 {
		return Verdict{}, false
	}
	var was refusal
	p := planOf(r)
	m.mu.Lock()
	for _, one := range m.of(callerOf(r)) {
		if one.plan == p {
			was = one
		}
	}
	m.mu.Unlock()
	if !now.Before(was.until) || r.Cost < was.cost || r.Bytes < was.bytes {
		return Verdict{}, false
	}
	equal := r.Cost == was.cost && r.Bytes == was.bytes
	ok := false
	a := answer{
		now:   was.answer.now + now.Sub(was.received).Microseconds(),
		fills: make([]fill, len(r.Rules)),
	}
	for i, rule := range r.Rules {
		if rule.kind == kindLog && !equal {
			return Verdict{}, false // only Redis knows when another cost fits
		}
		a.fills[i], ok = rule.arithmetic.later(was.answer.fills[i], was.answer.now, a.now)
		if !ok {
			return Verdict{}, false
		}
	}
	q := &question{rules: r.Rules, cost: r.Cost, bytes: r.Bytes, keys: make([]string, len(r.Rules))}
	v := verdict(r, []*question{q}, []answer{a})
	v.permits = nil
	return v, !v.Allowed
}

package limits

import (
	"slices"
	"sync"
	"time"
)

const (
	// refusalFor bounds how long a refusal is remembered. Its moment is exact, but what nobody tells may
	// make room sooner: a Redis whose clock was set forward, or a key that an operator removed.
	refusalFor = 10 * time.Second
	// refusalForPlaces bounds it where limits of concurrency apply too: their jobs end at any time, and
	// what the answer says of them must not be old.
	refusalForPlaces = time.Second
	// maxRefusals bounds the callers of whom something is remembered, at about 500 bytes for each plan:
	// twice as many at most, of which the older half goes at once.
	maxRefusals = 10_000
	// maxRefusalsEach bounds the plans of one caller: a few operations at one time.
	maxRefusalsEach = 4
)

// refusals remembers what rate limits refused, until an equal request fits again: a refused request spends
// nothing, so asking again could only give the same answer. What the caller spends through this process
// makes all that is remembered of it old. Refusals by limits of concurrency aren't remembered. Safe for
// concurrent use. The zero value remembers nothing yet.
type refusals struct {
	mu         sync.Mutex
	young, old map[caller][]refusal // guarded by mu
}

// caller is who spends: a client, or an address alone.
type caller struct{ client, address string }

// asked is by which limits somebody was refused. A plan's list of rules is made once, so it is known by its
// first: other limits, and those of another config, are another list.
type asked struct {
	first   **Rule
	rules   int
	subject Subject
}

type refusal struct {
	asked
	cost, bytes int64
	heard       time.Time
	until       time.Time
	answer      answer
}

// note takes in what a request was answered that was sent and whose answer was heard at these moments. What
// was remembered of the same limits is old then.
func (m *refusals) note(r Request, a answer, sent, heard time.Time) {
	if len(r.Rules) == 0 {
		return
	}
	who := callerOf(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.of(who)
	if all == nil && a.spent {
		return
	}
	delete(m.young, who)
	delete(m.old, who)
	if a.spent {
		return
	}
	all = slices.DeleteFunc(all, func(one refusal) bool { return one.asked == askedOf(r) || !one.until.After(heard) })
	until := sent.Add(lasts(r, a)) // counted from before Redis decided: never for too long
	if until.After(heard) {
		if len(all) == maxRefusalsEach {
			all = slices.Delete(all, 0, 1)
		}
		all = append(all, refusal{askedOf(r), r.Cost, r.Bytes, heard, until, a})
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
	m.young[who] = all
}

// of is what is remembered of a caller. m.mu must be held.
func (m *refusals) of(who caller) []refusal {
	if all, ok := m.young[who]; ok {
		return all
	}
	return m.old[who]
}

func callerOf(r Request) caller {
	if r.Subject.Client != "" {
		return caller{client: r.Subject.Client}
	}
	return caller{address: r.Subject.Address}
}

func askedOf(r Request) asked { return asked{&r.Rules[0], len(r.Rules), r.Subject} }

// lasts is for how long a request that takes no less is refused too, as far as that is to be remembered.
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
			most = refusalForPlaces
		case !fits:
			longest = max(longest, micros(rule.arithmetic.wait(a.fills[i], a.now, takes)))
		}
	}
	return min(longest, most)
}

// recall is the verdict on a request that takes no less than one that was refused, for as long as Redis
// would refuse it too. It says where the limits stand at that moment, as far as nobody else spends.
func (m *refusals) recall(r Request, now time.Time) (Verdict, bool) {
	if len(r.Rules) == 0 {
		return Verdict{}, false
	}
	var was refusal
	m.mu.Lock()
	for _, one := range m.of(callerOf(r)) {
		if one.asked == askedOf(r) {
			was = one
		}
	}
	m.mu.Unlock()
	if !now.Before(was.until) || r.Cost < was.cost || r.Bytes < was.bytes {
		return Verdict{}, false
	}
	equal := r.Cost == was.cost && r.Bytes == was.bytes
	ok := false
	a := answer{now: was.answer.now + now.Sub(was.heard).Microseconds(), fills: make([]fill, len(r.Rules))}
	for i, rule := range r.Rules {
		if rule.kind == kindLog && !equal {
			return Verdict{}, false // only Redis knows when another cost fits
		}
		if a.fills[i], ok = rule.arithmetic.later(was.answer.fills[i], was.answer.now, a.now); !ok {
			return Verdict{}, false
		}
	}
	v := verdict(r, []*question{{rules: r.Rules, cost: r.Cost, bytes: r.Bytes, keys: make([]string, len(r.Rules))}}, []answer{a})
	v.places = nil
	return v, !v.Allowed
}

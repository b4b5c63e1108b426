package limits

import (
	"slices"
	"time"
)

// Verdict is the answer to one request, over all its rules.
type Verdict struct {
	Allowed bool
	// Reason is the name of the strictest violated limit: the one to wait longest for. "" when
	// allowed.
	Reason string
	// RetryAfter is how long to wait. Without other requests, the same request is admitted after
	// it, and not a microsecond earlier. If Reason is a concurrency limit, it is a prediction. 0
	// when allowed or Never.
	RetryAfter time.Duration
	// Never: the cost, or the bytes, are over the capacity of the limit Reason, and no wait helps.
	Never bool
	// Standings has one entry for each rule of the request, in its order. If the request was
	// charged, they include the charge.
	Standings []Standing
	// At is when it was decided, by the store's clock. Zero if no rule applied.
	At time.Time
	// Alone: a Fallback decided in this process's memory, because the store was unavailable.
	Alone bool

	// Unreturned is why a charge couldn't be given back, in a verdict of Along on a cluster.
	Unreturned error

	charge  *charged // for Refund; nil: nothing was charged
	permits []permit // of the concurrency limits
}

// Standing is where one limit stands for the request's subject.
type Standing struct {
	Rule *Rule
	// Remaining is how many requests of cost 1, or bytes, this limit would admit now: from 0 to the
	// capacity.
	Remaining int64
	// Reset is how long the client can't use more than Remaining, the "effective window" of
	// RateLimit's t. It is the time until a bucket is full, until a window ends (also a counter's),
	// or until a log's oldest entry leaves (0: there is none). With nothing left, one more request
	// is admitted after it; for a counter, that may be in the next window. 0 for concurrency, which
	// has no window.
	Reset time.Duration
	// RetryAfter is how long until this limit alone admits the request; 0 if it does so now, or
	// never will. Of a concurrency limit it is a prediction.
	RetryAfter time.Duration
	Violated   bool // it refuses, or would refuse if it is a shadow limit
	Never      bool // the cost is over the limit's capacity
}

// Strictest returns the standing that matters most to the client: the violated one with the longest
// wait, otherwise the one with the least remaining. Shadow rules don't count. ok is false if no
// other rule applied.
func (v Verdict) Strictest() (s Standing, ok bool) {
	for _, other := range v.Standings {
		if !other.Rule.limit.Shadow && (!ok || stricter(other, s)) {
			s, ok = other, true
		}
	}
	return s, ok
}

// stricter reports whether a bounds the client more than b does. Of equals, neither does.
func stricter(a, b Standing) bool {
	switch {
	case a.Never != b.Never:
		return a.Never
	case a.Violated != b.Violated:
		return a.Violated
	case a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	case a.Remaining != b.Remaining:
		return a.Remaining < b.Remaining
	default:
		return a.Reset > b.Reset
	}
}

// verdict combines the answers to the questions of one request.
func verdict(r Request, questions []*question, answers []answer) Verdict {
	v := Verdict{Allowed: true, Standings: make([]Standing, len(r.Rules)),
		At: time.UnixMicro(answers[0].now)}
	spent := false
	for i, a := range answers {
		spent = spent || a.spent
		for j, rule := range questions[i].rules {
			s := rule.standing(a.fills[j], a.now)
			if !a.spentOn(questions[i], j) { // after a charge, the room needn't hold another
				rule.judge(&s, a.fills[j], a.now, r.Takes(rule))
			}
			at := j
			if questions[i].index != nil {
				at = questions[i].index[j]
			}
			v.Standings[at] = s
			if rule.kind == kindConcurrency {
				v.permits = append(v.permits,
					permit{standing: at, key: questions[i].keys[j], room: a.fills[j].room})
			}
			v.Allowed = v.Allowed && (!s.Violated || rule.limit.Shadow)
		}
	}
	if spent {
		v.charge = &charged{questions: questions, answers: answers}
	}
	if !v.Allowed {
		v.conclude()
	}
	return v
}

// conclude sets the parts of a refusal from the strictest standing.
func (v *Verdict) conclude() {
	s, _ := v.Strictest()
	v.Reason, v.RetryAfter, v.Never = s.Rule.limit.Name, s.RetryAfter, s.Never
}

func (r *Rule) standing(f fill, now int64) Standing {
	return Standing{Rule: r, Remaining: r.remaining(f), Reset: micros(r.arithmetic.reset(f, now))}
}

// judge notes in s whether the rule refuses a request for so much.
func (r *Rule) judge(s *Standing, f fill, now, takes int64) {
	switch {
	case r.never(takes):
		s.Violated, s.Never = true, true
	case !r.fits(f, takes):
		s.Violated, s.RetryAfter = true, micros(r.arithmetic.wait(f, now, takes))
	}
}

// Returned returns the verdict with its standings as they are after a refund of what r took.
func (v Verdict) Returned(r Request) Verdict {
	v.Standings = slices.Clone(v.Standings) // copies of the verdict share them
	for i := range v.Standings {
		s := &v.Standings[i]
		s.Remaining = min(s.Remaining+r.Takes(s.Rule), s.Rule.limit.Capacity())
	}
	return v
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

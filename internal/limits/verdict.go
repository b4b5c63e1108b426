package limits

import (
	"slices"
	"time"
)

// Verdict is the answer to one request, over all its rules.
type Verdict struct {
	Allowed bool
	// Reason is the name of the strictest violated limit: the one to wait longest for. "" when allowed.
	Reason string
	// RetryAfter is exact, but where the reason is a limit of concurrency: the same request, alone, is admitted after it and not a
	// microsecond earlier. 0 when allowed or Never.
	RetryAfter time.Duration
	// Never: the cost, or the bytes, are over the capacity of the limit Reason, and no wait helps.
	Never bool
	// Standings has one entry for each rule of the request, in its order: after the charge
	// where there was one.
	Standings []Standing
	// At is when it was decided, by the store's clock. Zero where no rule applied.
	At time.Time
	// Alone: a Fallback decided it in this process's memory, since the store was unavailable.
	Alone bool

	// Unreturned is why a charge couldn't be given back, of a verdict of Along on a cluster.
	Unreturned error

	charge *charged // what Refund gives back; nil where nothing was charged
	places []place  // of the limits of concurrency
}

// Standing is where one limit stands for the one who asked.
type Standing struct {
	Rule *Rule
	// Remaining is how many requests of cost 1, or bytes, this limit would admit now: from 0 to the
	// capacity.
	Remaining int64
	// Reset is how long the client can't use more than Remaining, the "effective window" of
	// RateLimit's t: a bucket's time until all is free, a window's and a counter's until the window ends, a log's until its oldest
	// entry leaves (0: there is none). With nothing left, one more request is admitted after it: of a counter, that may be in the
	// next window. 0 for concurrency, which has no window.
	Reset time.Duration
	// RetryAfter is how long until this limit alone admits the request; 0 when it does now or never will. Of concurrency it is a
	// prediction.
	RetryAfter time.Duration
	Violated   bool // it refuses; a shadow limit: it would have
	Never      bool // the cost is over the limit's capacity
}

// Strictest is the standing that speaks for all: the violated one to wait longest for, else the
// one with the least remaining. Shadow rules don't speak. Not ok where no other rule applied.
func (v Verdict) Strictest() (s Standing, ok bool) {
	for _, other := range v.Standings {
		if !other.Rule.limit.Shadow && (!ok || stricter(other, s)) {
			s, ok = other, true
		}
	}
	return s, ok
}

// stricter reports whether a says more than b about what the client may do. Of equals neither does.
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

// verdict is what the answers to the questions of one request say together.
func verdict(r Request, questions []*question, answers []answer) Verdict {
	v := Verdict{Allowed: true, Standings: make([]Standing, len(r.Rules)), At: time.UnixMicro(answers[0].now)}
	spent := false
	for i, a := range answers {
		spent = spent || a.spent
		for j, rule := range questions[i].rules {
			s := rule.standing(a.fills[j], a.now)
			if !a.spentOn(questions[i], j) { // else what is left needn't hold another
				rule.judge(&s, a.fills[j], a.now, r.Takes(rule))
			}
			at := j
			if questions[i].place != nil {
				at = questions[i].place[j]
			}
			v.Standings[at] = s
			if rule.kind == kindConcurrency {
				v.places = append(v.places, place{standing: at, key: questions[i].keys[j], room: a.fills[j].room})
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

// conclude takes from the strictest standing what a refusal says.
func (v *Verdict) conclude() {
	s, _ := v.Strictest()
	v.Reason, v.RetryAfter, v.Never = s.Rule.limit.Name, s.RetryAfter, s.Never
}

func (r *Rule) standing(f fill, now int64) Standing {
	return Standing{Rule: r, Remaining: r.remaining(f), Reset: micros(r.arithmetic.reset(f, now))}
}

// judge says whether the rule lets a request through that takes so much.
func (r *Rule) judge(s *Standing, f fill, now, takes int64) {
	switch {
	case r.never(takes):
		s.Violated, s.Never = true, true
	case !r.fits(f, takes):
		s.Violated, s.RetryAfter = true, micros(r.arithmetic.wait(f, now, takes))
	}
}

// Returned is the verdict with its standings as they are once what r took was given back.
func (v Verdict) Returned(r Request) Verdict {
	v.Standings = slices.Clone(v.Standings) // others may have them too
	for i := range v.Standings {
		s := &v.Standings[i]
		s.Remaining = min(s.Remaining+r.Takes(s.Rule), s.Rule.limit.Capacity())
	}
	return v
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

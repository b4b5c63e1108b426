package leaky_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
)

// limited are the model's limits: rates, which the model of package limits counts, and a
// concurrency limit, whose permits are returned at the ends of the model's jobs.
type limited struct {
	limiter *limits.Limiter // makes the charges of the offers
	model   *limits.Limiter
	rates   []*limits.Rule
	permits *limits.Rule
	held    map[string]map[string]bool // by client: jobs with a permit
	asked   map[any]asked              // by charge
	said    map[any]limits.Verdict     // of charges that the limits decided about
}

// asked is one charge.
type asked struct {
	part    *limits.Part
	request limits.Request
}

// newLimited draws the limits of a history; nil: none.
func newLimited(t *testing.T, rt *rapid.T, m *model) *limited {
	rule := func(l limits.Limit) *limits.Rule {
		l.Name, l.Owner, l.Per = redistest.Name(t, "l"), m.s.Backend, limits.PerClient
		r, err := limits.Compile(l)
		if err != nil {
			rt.Fatal(err)
		}
		return r
	}
	amount := func(what string) int64 { return rapid.Int64Range(1, 12).Draw(rt, what) }
	l := &limited{limiter: limits.New(redistest.Client(t), false),
		held: map[string]map[string]bool{}, asked: map[any]asked{}, said: map[any]limits.Verdict{}}
	l.model = limits.NewLocalAt(func() time.Time { return time.UnixMicro(int64(m.now)) })
	rated := rapid.SampledFrom([]limits.Algorithm{limits.TokenBucket, limits.SlidingWindowCounter,
		limits.SlidingWindowLog})
	for _, algorithm := range rapid.SliceOfDistinct(rated, rapid.ID).Draw(rt, "limits") {
		l.rates = append(l.rates,
			rule(limits.Limit{Algorithm: algorithm, Amount: amount(string(algorithm)),
				Window: time.Hour, Shadow: rapid.IntRange(0, 3).Draw(rt, "shadow") == 0}))
	}
	l.permits = rule(limits.Limit{Algorithm: limits.Concurrency, Amount: amount("permits")})
	return l
}

// bring gives an offer a charge.
func (l *limited) bring(rt *rapid.T, o leaky.Offer) leaky.Offer {
	if o.Refresh || rapid.IntRange(0, 3).Draw(rt, "unlimited") == 0 {
		return o
	}
	r := limits.Request{Rules: append(append([]*limits.Rule{}, l.rates...), l.permits),
		Cost:    rapid.Int64Range(1, 3).Draw(rt, "cost"),
		Subject: limits.Subject{Client: o.Job.Client}, Job: o.Job.ID}
	part, err := l.limiter.Part(r)
	if err != nil {
		rt.Fatal(err)
	}
	o.Charge, o.Job.Holds = part.Charge(), part.Holds()
	l.asked[o.Charge] = asked{part, r}
	return o
}

// room returns the limits' decision about an offer before they are charged; true for one without a
// charge. Each charge must be checked when its offer is made, because a clock that was set back is
// noticed then.
func (l *limited) room(o leaky.Offer) bool {
	if o.Charge == nil {
		return true
	}
	v := l.decide(o, (*limits.Limiter).Peek)
	s := &v.Standings[len(l.rates)]
	if s.Remaining == 0 {
		v.Allowed, s.Violated, s.RetryAfter = false, true, time.Second
	}
	l.said[o.Charge] = v
	return v.Allowed
}

// spend charges an offer that room has let through; without placed its job takes no permit.
func (l *limited) spend(o leaky.Offer, placed bool) {
	if o.Charge == nil {
		return
	}
	if client := o.Job.Client; placed {
		if l.held[client] == nil {
			l.held[client] = map[string]bool{}
		}
		l.held[client][o.Job.ID] = true
	}
	l.said[o.Charge] = l.decide(o, (*limits.Limiter).Decide)
}

func (l *limited) decide(
	o leaky.Offer,
	how func(*limits.Limiter, context.Context, limits.Request) (limits.Verdict, error),
) limits.Verdict {
	r := l.asked[o.Charge].request
	r.Rules = l.rates
	v, err := how(l.model, context.Background(), r)
	if err != nil {
		panic(err) // the test's own mistake
	}
	v.Standings = append(v.Standings, limits.Standing{Rule: l.permits,
		Remaining: max(0, l.permits.Limit().Amount-int64(len(l.held[o.Job.Client])))})
	return v
}

// compareLimits compares the limits' decisions about offers with the model.
func (h *history) compareLimits(offers []leaky.Offer, places []leaky.Place) {
	h.Helper()
	for i, o := range offers {
		if outcome := places[i].Outcome; o.Charge == nil || outcome == leaky.Exists ||
			outcome == leaky.Spent {
			continue
		}
		got, want := h.model.asked[o.Charge].part.Verdict(), h.model.said[o.Charge]
		h.agree("allowed", got.Allowed, want.Allowed, nil)
		h.agree("standings", got.Standings, want.Standings, nil)
	}
}

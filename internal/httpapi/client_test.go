package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/testforebay"
)

// newcomers says of one client that it's new.
type newcomers struct {
	mu    sync.Mutex
	name  string
	until time.Time // guarded by mu
	err   error     // guarded by mu
	asked []string  // guarded by mu
}

func (n *newcomers) Until(ctx context.Context, client string, period time.Duration) (time.Time,
	error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, client+" "+period.String())
	if client != n.name {
		return time.Time{}, nil
	}
	return n.until, n.err
}

func (n *newcomers) set(until time.Time, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.until, n.err = until, err
}

func TestANewClientIsAllowedMoreAndToldHowMuchAndUntilWhen(t *testing.T) {
	t.Parallel()
	until := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	fresh := &newcomers{until: until}
	w := newWorld(t, func(s *setup) {
		s.Grace = admission.Grace{Period: 48 * time.Hour, Factor: 2.5}
		s.Pro = []limits.Limit{perClient("mine", 2, time.Hour),
			{Name: "address", Algorithm: limits.SlidingWindowLog, Per: limits.PerIP, Amount: 100,
				Window: time.Hour}}
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Enter.Newcomers = fresh
			pro := c.Enter.Tiers["pro"]
			pro.Grace.Factor = 2.5
			c.Enter.Tiers["free"] = admission.Tier{Weight: 1, Limits: pro.Limits, Grace: pro.Grace}
		}
	})
	fresh.name = w.ClientA()
	for i := range 5 {
		a := w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
		got := w.stated(a)
		if got["mine"].policy != "q=5;w=3600;forebay-grace=2.5" || got["mine"].r != int64(4-i) ||
			got["address"].policy != "q=100;w=3600" {
			t.Errorf("stated %+v", got)
		}
	}
	shown := w.rateLimits(key(keyA))
	if l := shown["mine"]; l.Limit != 5 || l.GraceUntil == nil || !l.GraceUntil.Equal(until) {
		t.Errorf("told %+v", l)
	}
	if l := shown["address"]; l.GraceUntil != nil {
		t.Errorf("told %+v: an address isn't new", l)
	}
	p := w.Problem(w.Submit(w.Plain, `1`, key(keyA)), http.StatusTooManyRequests, api.CodeRateLimit)
	if p.Detail != "Limit mine allows 5 requests per hour." {
		t.Errorf("%s", p.Detail)
	}
	if got := w.stated(w.Submit(w.Plain, `1`, key(keyB)))["mine"]; got.policy != "q=2;w=3600" {
		t.Errorf("an old client is stated %+v", got)
	}
	if got := w.stated(w.Submit(w.Plain, `1`,
		from("192.0.2.1")))["mine"]; got.policy != "q=2;w=3600" {
		t.Errorf("a caller without a key is stated %+v", got)
	}
	for _, asked := range fresh.asked {
		if strings.HasPrefix(asked, "ip:") || !strings.HasSuffix(asked, " 48h0m0s") {
			t.Errorf("asked of %s", asked)
		}
	}

	// Its time is over or isn't known: its limits are those of all others. Its use still counts.
	for _, err := range []error{nil, errors.New("lost")} {
		fresh.set(map[bool]time.Time{true: until}[err != nil], err)
		if got := w.stated(w.Submit(w.Plain, `1`, key(keyA)))["mine"]; got.policy != "q=2;w=3600" ||
			got.r != 0 {
			t.Errorf("with error %v: stated %+v", err, got)
		}
	}
}

func TestAClientsOwnLimitsHoldInsteadOfItsTiers(t *testing.T) {
	t.Parallel()
	var own *admission.Override
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{perClient("mine", 2, time.Hour), perClient("other", 50, time.Hour)}
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			own = &admission.Override{Weight: 5,
				Limits: w.Limits("client",
					[]limits.Limit{perClient("mine", 7, time.Hour),
						perClient("more", 9, time.Hour)})}
			c.Enter.Overrides = func(client string) *admission.Override {
				if client == w.ClientA() {
					return own
				}
				return nil
			}
		}
		s.Wrap = func(l testforebay.Line) testforebay.Line { return &weighedLine{Line: l} }
	})
	got := w.stated(w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted))
	if len(got) != 3 || got["mine"].r != 6 || got["more"].r != 8 || got["other"].r != 49 {
		t.Errorf("stated %+v", got)
	}
	if got := w.stated(w.Want(w.Submit(w.Plain, `1`, key(keyB)),
		http.StatusAccepted)); len(got) != 2 || got["mine"].r != 1 {
		t.Errorf("another client is stated %+v", got)
	}
	line := w.Config.Lines[w.Backend].(*weighedLine)
	if fmt.Sprint(line.weights) != "[5 2]" {
		t.Errorf("weights in the line: %v, want the client's own and the tier's", line.weights)
	}
	if shown := w.rateLimits(key(keyA)); len(shown) != 3 || shown["mine"].Limit != 7 {
		t.Errorf("told %+v", shown)
	}
	var ops api.Operations
	strictly(t, "operations", w.Want(w.Get("/v1/operations", key(keyA)), 200).Text, &ops)
	if len(ops.Operations) != 4 || len(ops.Operations[0].Limits) != 3 {
		t.Errorf("published %+v", ops)
	}
}

type weighedLine struct {
	testforebay.Line
	mu      sync.Mutex
	weights []float64 // guarded by mu
}

func (l *weighedLine) Offer(ctx context.Context, o leaky.Offer) (leaky.Place, error) {
	l.mu.Lock()
	l.weights = append(l.weights, o.Weight)
	l.mu.Unlock()
	return l.Line.Offer(ctx, o)
}

// placed believes callers about their countries.
type placed struct{ httpapi.Identifier }

func (p placed) Identify(r *http.Request) (identity.Client, error) {
	c, err := p.Identifier.Identify(r)
	c.Country = r.Header.Get("X-Test-Country")
	return c, err
}

// A count per country, with one for all those of whom it isn't known; and a limit that holds in one
// country alone.
func TestCountriesHaveTheirOwnLimitsAndCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Global = []limits.Limit{{Name: "country", Algorithm: limits.SlidingWindowLog,
			Per: limits.PerCountry, Amount: 3, Window: time.Hour}}
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Identity = placed{c.Identity}
			c.Enter.Limits = append(c.Enter.Limits,
				admission.Limit{Rule: w.Rule("global", perClient("german", 1, time.Hour)),
					When: admission.When{Countries: []string{"DE"}}})
			limit := limits.Limit{Name: "guesses", Algorithm: limits.SlidingWindowLog,
				Per: limits.PerIP, Amount: 1, Window: time.Hour}
			c.Enter.Limits = append(c.Enter.Limits,
				admission.Limit{Rule: w.Rule("global", limit),
					When: admission.When{Countries: []string{"FR"}}})
		}
	})
	in := func(country string) [2]string { return field("X-Test-Country", country) }
	for _, c := range []struct {
		country, ip string
		status      int
		reason      string
	}{
		{"DE", "192.0.2.1", 202, ""}, {"DE", "192.0.2.1", 429, "german"},
		{"DE", "192.0.2.2", 202, ""}, {"DE", "192.0.2.3", 202, ""},
		{"DE", "192.0.2.4", 429, "country"},
		{"US", "192.0.2.1", 202, ""}, {"US", "192.0.2.1", 202, ""},
		{"", "192.0.2.1", 202, ""}, {"", "192.0.2.5", 202, ""}, {"", "192.0.2.6", 202, ""},
		{"", "192.0.2.1", 429, "country"},
	} {
		a := w.Want(w.Submit(w.Plain, `1`, from(c.ip), in(c.country)), c.status)
		if c.status == 429 && w.Problem(a, 429, api.CodeRateLimit).Reason != c.reason {
			t.Errorf("%+v: %s", c, a.Text)
		}
	}
	w.Want(w.Get("/v1/rate-limits", key("nope"), in("FR")), 401)
	w.Want(w.Get("/v1/rate-limits", key("nope"), in("FR")), 429)
	w.Want(w.Get("/v1/rate-limits", key("nope"), in("DE")), 401)
}

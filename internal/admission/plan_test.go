package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/internal/limits"
)

// named is a limit of 10 a minute.
func named(name string, per limits.Per) limits.Limit {
	return limits.Limit{Name: name, Algorithm: limits.FixedWindow, Per: per, Amount: 10,
		Window: time.Minute}
}

func compiled(t *testing.T, l limits.Limit, when When) Limit {
	t.Helper()
	r, err := limits.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return Limit{Rule: r, When: when}
}

// plannerOf is a planner of two tiers and two operations, with limits of every kind.
func plannerOf(t *testing.T) *planner {
	t.Helper()
	limit := func(name string, per limits.Per, when When) Limit { return compiled(t, named(name, per), when) }
	c := Config{Rules: Rules{
		Tiers: map[string]Tier{
			"free": {Weight: 1, Grace: Grace{Period: time.Hour, Factor: 2.5}, Limits: []Limit{
				limit("tier-client", limits.PerClient, When{}),
				compiled(t, limits.Limit{Name: "tier-jobs", Algorithm: limits.Concurrency,
					Per: limits.PerClient, Amount: 4}, When{}),
				limit("tier-each", limits.PerClientOperation, When{}),
				limit("tier-de", limits.PerClient, When{Countries: []string{"DE", "AT"}}),
			}},
			"pro": {Weight: 2},
		},
		Limits: []Limit{
			limit("address", limits.PerIP, When{}),
			limit("address-fr", limits.PerIP, When{Countries: []string{"FR"}}),
			limit("address-a", limits.PerIP, When{Operations: []string{"a"}}),
			limit("all-free", limits.PerTier, When{Tiers: []string{"free"}}),
			limit("a-or-b", limits.PerClient, When{Operations: []string{"a", "b"}}),
			limit("pro-a-de", limits.PerGlobal,
				When{Tiers: []string{"pro"}, Operations: []string{"a"}, Countries: []string{"DE"}}),
		},
	}}
	operations := map[string]*Operation{
		"a": {Name: "a", Limits: []Limit{limit("of-a", limits.PerClient, When{})}},
		"b": {Name: "b",
			Limits: []Limit{limit("of-b-pro", limits.PerClient, When{Tiers: []string{"pro"}})}},
	}
	count := func(limits.Limit) checkCounters {
		return checkCounters{prometheus.NewCounter(prometheus.CounterOpts{}),
			prometheus.NewCounter(prometheus.CounterOpts{})}
	}
	return newPlanner(c, operations, count)
}

// spelled is a plan as "common | own". A limit has its amount if that differs from the config's.
func spelled(p *Plan) string {
	var text strings.Builder
	for i, r := range p.Rules {
		if i == p.Own {
			text.WriteString("| ")
		}
		l := r.Limit()
		text.WriteString(l.Name)
		if p.Grace(i) != 1 {
			fmt.Fprintf(&text, "=%d", l.Amount)
		}
		text.WriteByte(' ')
	}
	return strings.TrimSpace(text.String())
}

func TestTheLimitsOfARequestAreThoseThatItsTierOperationAndCountryHave(t *testing.T) {
	t.Parallel()
	p := plannerOf(t)
	replaced := &Override{Weight: 7, Limits: []Limit{
		compiled(t, named("tier-client", limits.PerClient), When{}),
		compiled(t, named("mine-es", limits.PerClient), When{Countries: []string{"ES"}}),
	}}
	for _, c := range []struct {
		name string
		key  planKey
		want string
	}{
		{"no operation", planKey{tier: "free"}, "tier-client tier-jobs address all-free"},
		{"an operation", planKey{tier: "free", operation: "a"}, "tier-client tier-jobs address " +
			"all-free | tier-each address-a a-or-b of-a"},
		{"another", planKey{tier: "free", operation: "b"}, "tier-client tier-jobs address " +
			"all-free | tier-each a-or-b"},
		{"another tier", planKey{tier: "pro", operation: "b"}, "address | a-or-b of-b-pro"},
		{"a country", planKey{tier: "free", country: "AT"}, "tier-client tier-jobs tier-de " +
			"address all-free"},
		{"all three", planKey{tier: "pro", operation: "a", country: "DE"},
			"address | address-a a-or-b pro-a-de of-a"},
		{"a country that no limit asks for", planKey{tier: "free", country: "NZ"},
			"tier-client tier-jobs address all-free"},
		{"a gateway's check", planKey{tier: "free", operation: "b", check: true},
			"tier-client address all-free | tier-each a-or-b"},
		{"a new client", planKey{tier: "free", operation: "a", grace: true},
			"tier-client=25 tier-jobs=10 address all-free | tier-each=25 address-a a-or-b=25 " +
				"of-a=25"},
		{"its own", planKey{tier: "free", operation: "b", override: replaced},
			"tier-jobs tier-client address all-free | tier-each a-or-b"},
		{"its own in a country", planKey{tier: "free", country: "ES", override: replaced},
			"tier-jobs tier-client mine-es address all-free"},
		{"who failed to say who it is", planKey{}, "address"},
		{"and from where a limit asks", planKey{country: "FR"}, "address address-fr"},
	} {
		first := p.plan(c.key)
		if got := spelled(first); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if p.plan(c.key) != first {
			t.Errorf("%s: its plan is made twice", c.name)
		}
	}
	if got := p.plan(planKey{tier: "free", override: replaced}); got.Weight != 7 ||
		got.Rules[1] != replaced.Limits[0].Rule {
		t.Errorf("the override: weight %v, %s", got.Weight, spelled(got))
	}
	if got := p.plan(planKey{tier: "free", override: &Override{}}).Weight; got != 1 {
		t.Errorf("an override without a weight has %v, want the tier's", got)
	}
}

// What is remembered by a rule, such as a lost region's share of it, is remembered once.
func TestARuleForNewClientsIsTheSameInEveryPlan(t *testing.T) {
	t.Parallel()
	p := plannerOf(t)
	a, b := p.plan(planKey{tier: "free", operation: "a", grace: true}), p.plan(planKey{tier: "free",
		operation: "b", country: "DE", grace: true})
	if a.Rules[0].Limit().Amount != 25 || a.Rules[0] != b.Rules[0] {
		t.Errorf("%s and %s have rules of their own", spelled(a), spelled(b))
	}
}

func TestACountryThatNoLimitAsksForMakesNoPlan(t *testing.T) {
	t.Parallel()
	p := plannerOf(t)
	plain := p.plan(planKey{tier: "free", operation: "a"})
	for c := range 26 * 26 {
		country := string([]byte{'A' + byte(c/26), 'A' + byte(c%26)})
		asked := slices.Contains([]string{"DE", "AT", "FR"}, country)
		if got := p.plan(planKey{tier: "free", operation: "a",
			country: country}); (got == plain) == asked {
			t.Errorf("%s: a plan of its own: %v, want %v", country, got != plain, asked)
		}
	}
	if n := p.special.Load().count.Load(); n != 3 {
		t.Errorf("%d plans were kept, want 3", n)
	}
}

// Overrides come and go: what is remembered by them must not stay for ever.
func TestPlansOfPastOverridesAreForgotten(t *testing.T) {
	t.Parallel()
	p := plannerOf(t)
	for range 2*maxSpecial + 10 {
		p.plan(planKey{tier: "free", override: &Override{}})
	}
	if n := p.special.Load().count.Load(); n < 1 || n > maxSpecial {
		t.Errorf("%d plans are kept, want at most %d", n, maxSpecial)
	}
}

// A limit that a factor would take over what can be counted stays as it is.
func TestALimitThatCannotBeRaisedStaysAsItIs(t *testing.T) {
	t.Parallel()
	l := named("most", limits.PerClient)
	l.Amount = limits.MaxAmount
	if got := new(madePlans).graced(compiled(t, l, When{}).Rule,
		2); got.rule.Limit().Amount != limits.MaxAmount || got.grace != 1 {
		t.Errorf("allows %d, told as %v times as much", got.rule.Limit().Amount, got.grace)
	}
}

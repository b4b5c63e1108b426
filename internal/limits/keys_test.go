package limits

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// C33: a changed limit starts with a new count at once, and the old counts are never added to it.
func TestAChangedLimitForgetsOldCounts(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		each(t, 5, time.Hour, func(t *testing.T, r *Rule) {
			old := r.limit
			old.Owner = "limits"
			if n := admitted(t, l, 6, compile(t, old)); n != 5 {
				t.Fatalf("%d of 6 admitted, not 5", n)
			}
			window, amount, owner, per, shadow, bytes := old, old, old, old, old, old
			window.Window = 10 * time.Second
			amount.Amount = 6
			owner.Owner = "tier:free"
			per.Per = PerIP
			shadow.Shadow, bytes.Bytes = true, true
			changes := []Limit{window, amount, owner, per, shadow, bytes}
			for _, a := range exact {
				if algorithm := old; a != old.Algorithm {
					algorithm.Algorithm = a
					changes = append(changes, algorithm)
				}
			}
			if old.Algorithm.HasBurst() {
				burst := old
				burst.Burst = 7
				changes = append(changes, burst)
			}
			if old.Algorithm == FixedWindow {
				month := old
				month.Window = Month
				changes = append(changes, month)
			}
			for _, changed := range changes {
				r := request(1, compile(t, changed))
				r.Bytes = 1
				v := decide(t, l, r)
				if s := v.Standings[0]; !v.Allowed || s.Remaining != changed.Capacity()-1 ||
					s.Rule.Limit() != changed {
					t.Errorf("%+v: %+v", changed, v)
				}
			}
			if decide(t, l, request(1, compile(t, old))).Allowed {
				t.Error("the unchanged limit has forgotten")
			}
		})
	})
}

// Each subject (a client, a tier, all together) has one count, which it shares with no other.
func TestWhoSharesACount(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		for per, same := range map[Per]Subject{
			PerClient:          {"alice", "x", "x", "x", "SE"},
			PerIP:              {"x", "192.0.2.1", "x", "x", "SE"},
			PerOperation:       {"x", "x", "report", "x", "SE"},
			PerClientOperation: {"alice", "x", "report", "x", "SE"},
			PerTier:            {"x", "x", "x", "free", "SE"},
			PerCountry:         {"x", "x", "x", "x", "NO"},
			PerGlobal:          {"x", "x", "x", "x", "SE"},
		} {
			for _, a := range everyAlgorithm {
				limit := Limit{Algorithm: a, Per: per, Amount: 3, Window: time.Hour}
				if a == Concurrency {
					limit.Window = 0
				}
				r := compile(t, limit)
				remaining := func(s Subject) int64 {
					t.Helper()
					v, err := l.Peek(t.Context(), Request{Rules: []*Rule{r}, Subject: s, Cost: 1})
					if err != nil {
						t.Fatal(err)
					}
					return v.Standings[0].Remaining
				}
				hold(t, l, "a job of alice", r)
				other := Subject{"y", "y", "y", "y", "unknown"}
				want := int64(3)
				if per == PerGlobal {
					want = 2
				}
				if n := remaining(same); n != 2 {
					t.Errorf("%s per %s: %+v has %d, not alice's 2", a, per, same, n)
				}
				if n := remaining(other); n != want {
					t.Errorf("%s per %s: %+v has %d, not %d", a, per, other, n, want)
				}
			}
		}
	})
}

// C47: no two subjects share a count because their parts have the same text when joined.
func TestSubjectsNeverShareByAccident(t *testing.T) {
	t.Parallel()
	perBoth := func(owner string) *Rule {
		return compile(t, Limit{Name: "same", Owner: owner, Algorithm: TokenBucket,
			Per: PerClientOperation, Amount: 1, Window: time.Hour})
	}
	per := func(p Per) *Rule {
		return compile(t, Limit{Name: "same", Algorithm: TokenBucket, Per: p, Amount: 1,
			Window: time.Hour})
	}
	one := perBoth("")
	seen := map[string]string{}
	for name, c := range map[string]struct {
		rule    *Rule
		subject Subject
	}{
		"11+2x":                {one, Subject{Client: "11", Operation: "2x"}},
		"1+12x":                {one, Subject{Client: "1", Operation: "12x"}},
		"1+1:2x":               {one, Subject{Client: "1", Operation: "1:2x"}},
		"1:1+2x":               {one, Subject{Client: "1:1", Operation: "2x"}},
		"other owner":          {perBoth("2x"), Subject{Client: "11", Operation: "2x"}},
		"client x":             {per(PerClient), Subject{Client: "x"}},
		"client braces":        {per(PerClient), Subject{Client: "{x}"}},
		"client case":          {per(PerClient), Subject{Client: "X"}},
		"client zero byte":     {per(PerClient), Subject{Client: "x\x00"}},
		"client operation:x":   {per(PerClient), Subject{Client: "operation:x"}},
		"ip x":                 {per(PerIP), Subject{Address: "x"}},
		"operation x":          {per(PerOperation), Subject{Operation: "x"}},
		"tier x":               {per(PerTier), Subject{Tier: "x"}},
		"country x":            {per(PerCountry), Subject{Country: "x"}},
		"tier country:x":       {per(PerTier), Subject{Tier: "country:x"}},
		"country global:all":   {per(PerCountry), Subject{Country: "global:all"}},
		"global":               {per(PerGlobal), Subject{}},
		"client global:all":    {per(PerClient), Subject{Client: "global:all"}},
		"operation global all": {per(PerOperation), Subject{Operation: "all"}},
	} {
		q, err := Request{Rules: []*Rule{c.rule}, Subject: c.subject, Cost: 1}.question(peek)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if other, taken := seen[q.keys[0]]; taken {
			t.Errorf("%s and %s share %s", name, other, q.keys[0])
		}
		seen[q.keys[0]] = name
	}
	// All clients share a global limit.
	all := []*Rule{per(PerGlobal)}
	a, errA := Request{Rules: all, Subject: Subject{Client: "a"}, Cost: 1}.question(peek)
	b, errB := Request{Rules: all, Subject: Subject{Client: "b"}, Cost: 1}.question(peek)
	if errA != nil || errB != nil || a.keys[0] != b.keys[0] {
		t.Errorf("a global limit has %v and %v, %v, %v", a.keys, b.keys, errA, errB)
	}
}

// C48: keys have one length, whatever a client sends. They reveal nothing of it, and it can't
// change their form.
func FuzzKeys(f *testing.F) {
	f.Add("alice", "report")
	f.Add("alice", "")
	f.Add("{", "}")
	f.Add("\r\nFLUSHALL\r\n", "\x00")
	f.Add(strings.Repeat("a", 1<<20), strings.Repeat("b", 1<<20))
	form := regexp.MustCompile(`^fb:\{[0-9a-f]{32}\}:limit:per-minute:[0-9a-f]{32}$`)
	var rules []*Rule
	for _, p := range everyPer {
		rules = append(rules, compile(f, Limit{Name: "per-minute", Algorithm: TokenBucket, Per: p,
			Amount: 1, Window: time.Hour}))
	}
	f.Fuzz(func(t *testing.T, client, operation string) {
		subject := Subject{Client: client, Address: client, Operation: operation, Tier: client,
			Country: operation}
		q, err := Request{Rules: rules, Subject: subject, Cost: 1}.question(spend)
		if (err != nil) != (client == "" || operation == "") {
			t.Fatalf("%q, %q: %v", client, operation, err)
		}
		if err != nil {
			return
		}
		for _, key := range q.keys {
			if !form.MatchString(key) {
				t.Errorf("%q", key)
			}
		}
	})
}

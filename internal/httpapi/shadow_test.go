package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/testforebay"
)

func trial(name string, n int64) limits.Limit {
	l := perClient(name, n, time.Hour)
	l.Shadow = true
	return l
}

// notes takes the notes on shadow limits.
type notes struct {
	mu    sync.Mutex
	noted []string // guarded by mu
}

func (n *notes) Note(limit, client, operation string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noted = append(n.noted, limit+" "+client+" "+operation)
}

func TestALimitOnTrialIsCountedAndNeverToldOfInFields(t *testing.T) {
	t.Parallel()
	var noted notes
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{trial("trial", 1), perClient("three", 3, time.Hour)}
		s.Free = []limits.Limit{trial("trial", 1)}
		s.Adjust = func(_ *testforebay.World, c *testforebay.Config) { c.Enter.Shadows = &noted }
	})
	for range 3 {
		a := w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
		if got := a.Header.Get("RateLimit-Policy") +
			a.Header.Get("RateLimit"); strings.Contains(got, "trial") ||
			a.Header.Get("X-RateLimit-Limit") != "3" {
			t.Errorf("%v", a.Header)
		}
	}
	p := w.Problem(w.Submit(w.Plain, `1`, key(keyA)), http.StatusTooManyRequests, api.CodeRateLimit)
	if p.Reason != "three" || fmt.Sprint(p.ViolatedPolicies) != "[three]" {
		t.Errorf("%+v", p)
	}
	shown := w.rateLimits(key(keyA))
	if l := shown["trial"]; l.Enforced || l.Remaining != 0 || l.Limit != 1 {
		t.Errorf("the trial: %+v", l)
	}
	if l := shown["three"]; !l.Enforced || l.Remaining != 0 {
		t.Errorf("the limit in force: %+v", l)
	}
	if want := strings.Repeat("trial "+w.ClientA()+" "+w.Plain+"\n", 2); strings.Join(noted.noted,
		"\n")+"\n" != want {
		t.Errorf("noted %q, want %q", noted.noted, want)
	}
	got := string(w.Metrics())
	for labels, want := range map[string]int{`limit="trial",outcome="spent"`: 1,
		`limit="trial",outcome="would_refuse"`: 2,
		`limit="three",outcome="spent"`:        3, `limit="three",outcome="refused"`: 1} {
		if !strings.Contains(got,
			fmt.Sprintf("forebay_limit_checks_total{%s} %d\n", labels, want)) {
			t.Errorf("lacks %s of %d", labels, want)
		}
	}
	if a := w.Want(w.Submit(w.Plain, `1`, from("192.0.2.1")),
		http.StatusAccepted); a.Header.Get("RateLimit") != "" ||
		a.Header.Get("X-RateLimit-Limit") != "" {
		t.Errorf("a trial alone is in the fields: %v", a.Header)
	}
}

func TestTheCountsOfEveryLimitBeginAtZero(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro, s.Report = []limits.Limit{perClient("force", 1, time.Hour)},
			[]limits.Limit{trial("trial", 1)}
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Enter.Limits = []admission.Limit{{Rule: w.Rule("global",
				perClient("abroad", 1, time.Hour)),
				When: admission.When{Countries: []string{"DE"}}}}
		}
	})
	got := string(w.Metrics())
	for _, labels := range []string{`limit="force",outcome="refused"`,
		`limit="force",outcome="spent"`, `limit="trial",outcome="would_refuse"`,
		`limit="abroad",outcome="refused"`} {
		if !strings.Contains(got, "forebay_limit_checks_total{"+labels+"} 0\n") {
			t.Errorf("lacks %s", labels)
		}
	}
	abroad := `{decision="rejected",operation="` + w.Plain + `",reason="abroad"} 0`
	if !strings.Contains(got, "forebay_admission_decisions_total"+abroad) {
		t.Error("lacks the refusals of a limit on a country")
	}
}

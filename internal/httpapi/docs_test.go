package httpapi_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/testforebay"
)

func TestTheOperationsAreThoseThatTheCallerMayRequestWithTheirLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Free = []limits.Limit{perClient("free-only", 60, time.Minute), trial("trial", 5)}
		s.Pro = []limits.Limit{{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient,
			Amount: 20}}
		s.Report = []limits.Limit{{Name: "report-rate", Algorithm: limits.TokenBucket,
			Per: limits.PerGlobal, Amount: 10, Window: time.Minute, Burst: 3}}
		s.Adjust = func(_ *testforebay.World, c *testforebay.Config) {
			c.Enter.Operations[2].Cost = admission.Cost{From: "/pages", Default: 1, Max: 100}
		}
	})
	published := func(fields ...[2]string) (string, map[string]api.Operation) {
		var got api.Operations
		strictly(t, "operations", w.Want(w.Get("/v1/operations", fields...), 200).Text, &got)
		all := map[string]api.Operation{}
		for _, o := range got.Operations {
			all[o.Name] = o
		}
		return got.Tier, all
	}
	tier, got := published(from("192.0.2.1"))
	if tier != "free" || len(got) != 3 || got[w.Inner].Name != "" {
		t.Errorf("tier %s: %v", tier, got)
	}
	const want = "[{Name:free-only Scope:client Algorithm:sliding-window-counter " +
		"Limit:60 Unit: Burst:0 Window:1m Enforced:true GraceUntil:<nil>} " +
		"{Name:trial Scope:client Algorithm:sliding-window-counter " +
		"Limit:5 Unit: Burst:0 Window:1h Enforced:false GraceUntil:<nil>} " +
		"{Name:report-rate Scope:global Algorithm:token-bucket " +
		"Limit:10 Unit: Burst:3 Window:1m Enforced:true GraceUntil:<nil>}]"
	if text := fmt.Sprintf("%+v", got[w.Report].Limits); text != want {
		t.Errorf("limits of report: %s", text)
	}
	if o := got[w.Report]; fmt.Sprint(o.OnOverload) != "[stale reject]" ||
		o.Cost != (api.Cost{Fixed: 1}) {
		t.Errorf("report: %+v", o)
	}
	if o := got[w.Plain]; o.Cost != (api.Cost{From: "/pages", Default: 1, Max: 100}) ||
		len(o.OnOverload) != 0 {
		t.Errorf("plain: %+v", o)
	}
	tier, got = published(key(keyA))
	if tier != "pro" || len(got) != 4 || len(got[w.Inner].Limits) != 1 ||
		got[w.Inner].Limits[0].Window != "" {
		t.Errorf("tier %s: %v", tier, got)
	}
	if n := w.stated(w.Get("/v1/operations", from("192.0.2.1")))["free-only"].r; n != 60 {
		t.Errorf("asking spent: %d left", n)
	}
	w.Problem(w.Get("/v1/operations", key("nope")), http.StatusUnauthorized,
		api.CodeInvalidCredentials)
	w.Store.Down.Store(true)
	if _, got := published(key(keyA)); len(got) != 4 {
		t.Error("without a store nothing is published")
	}
}

func TestThePageForPeopleNeedsNothingButItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Free = []limits.Limit{perClient("per-minute", 60, time.Minute), trial("trial", 5)}
		s.Pro = []limits.Limit{{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient,
			Amount: 20}}
		s.Grace = admission.Grace{Period: time.Hour, Factor: 2}
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Enter.Newcomers = &newcomers{name: w.ClientA(),
				until: time.Date(2027, 1, 2, 3, 4, 0, 0, time.UTC)}
		}
	})
	a := w.Want(w.Get("/docs", from("192.0.2.1")), 200)
	page := string(a.Text)
	for _, want := range []string{"For callers without a key", "<strong>free</strong>", w.Report,
		w.Plain, "per-minute", "60 requests per minute", "on trial: refuses nobody",
		"the last good answer, if it is at most 1h old", "A request counts as 1 request"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, foreign := range []string{"<script", "http://", "https://", "<link", "<img", "@import",
		"url(", " style=", " onload", w.Inner} {
		if strings.Contains(page, foreign) {
			t.Errorf("the page has %q", foreign)
		}
	}
	_, style, _ := strings.Cut(page, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	if csp := a.Header.Get("Content-Security-Policy"); !strings.Contains(csp,
		"default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
		t.Errorf("the policy %s isn't of the page's style", csp)
	}
	if got := a.Header.Get("Content-Type"); got != "text/html; charset=utf-8" {
		t.Errorf("%s", got)
	}
	page = string(w.Want(w.Get("/docs", key(keyA)), 200).Text)
	for _, want := range []string{"For " + w.ClientA(), "<strong>pro</strong>", w.Inner,
		"40 jobs at one time", "until 2 January 2027, 03:04 UTC"} {
		if !strings.Contains(page, want) {
			t.Errorf("with a key the page lacks %q", want)
		}
	}
	w.Problem(w.Get("/docs", key("nope")), http.StatusUnauthorized, api.CodeInvalidCredentials)
	w.Want(w.Call("HEAD", w.URL+"/docs", ""), 200)
	w.Store.Down.Store(true)
	if page := w.Want(w.Get("/docs"), 200); page.Header.Get("RateLimit") != "" ||
		!strings.Contains(string(page.Text), "60 requests per minute") {
		t.Errorf("without a store: %v", page.Header)
	}

	locked := newWorld(t, func(s *setup) { s.NoAnonymous = true })
	page = string(locked.Want(locked.Get("/docs"), 200).Text)
	if strings.Contains(page, locked.Plain) || !strings.Contains(page, "A key is required") {
		t.Errorf("who has no key learns %s", page)
	}
}

// A limit that holds for all operations is shown once.
func TestThePageShowsALimitOfAllOperationsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Free = []limits.Limit{perClient("per-minute", 60, time.Minute)}
		s.Report = []limits.Limit{perClient("own", 5, time.Minute)}
	})
	page := string(w.Want(w.Get("/docs", from("192.0.2.1")), 200).Text)
	for _, name := range []string{"per-minute", "own"} {
		if n := strings.Count(page, "<code>"+name+"</code>"); n != 1 {
			t.Errorf("%s is shown %d times in\n%s", name, n, page)
		}
	}
	if strings.Index(page, "per-minute") > strings.Index(page, w.Plain) ||
		strings.Index(page, "<code>own</code>") < strings.Index(page, `id="`+w.Report) {
		t.Errorf("the limits aren't where they belong in\n%s", page)
	}
}

// The steps of on_overload are published, as far as they are open to the caller.
func TestWhatIsDoneInsteadIsPublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			o := c.Operation(w.Report)
			o.Overload.FreshFor, o.Coalesce = time.Minute, true
			o.Overload.Steps = []degrade.Step{{Kind: degrade.Stale},
				{Kind: degrade.Operation, Operation: w.Inner},
				{Kind: degrade.Body, Body: []byte(`1`)}}
		}
	})
	for tier, want := range map[string]string{"pro": "[stale operation:" + w.Inner + " body]",
		"free": "[stale body]"} {
		caller := from("192.0.2.1")
		if tier == "pro" {
			caller = key(keyA)
		}
		var got api.Operations
		strictly(t, "operations", w.Want(w.Get("/v1/operations", caller), 200).Text, &got)
		for _, o := range got.Operations {
			if o.Name == w.Report &&
				(fmt.Sprint(o.OnOverload) != want || o.FreshFor != "1m" || o.StaleFor != "1h" ||
					!o.Coalesce) ||
				o.Name == w.Plain && (o.FreshFor != "" || o.StaleFor != "" || o.Coalesce) {
				t.Errorf("%s: %+v", tier, o)
			}
		}
		page := string(w.Want(w.Get("/docs", caller), 200).Text)
		for _, text := range []string{"An answer that is at most 1m old is served at once",
			"the last good answer, if it is at most 1h old; otherwise a",
			"otherwise a fixed answer."} {
			if !strings.Contains(page, text) {
				t.Errorf("%s: the page lacks %q", tier, text)
			}
		}
		if has := strings.Contains(page, "a job of "+w.Inner+", if"); has != (tier == "pro") {
			t.Errorf("%s: the page tells of the stand-in: %v", tier, has)
		}
	}
}

func TestWhatTheConfigNamesIsTextOnThePage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(_ *testforebay.World, c *testforebay.Config) {
			c.Identity = identity.New(identity.Config{
				TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
				Clients: []identity.Registered{{Name: `<script>alert(1)</script>`, Tier: "pro",
					Keys: []identity.Digest{sha256.Sum256([]byte(keyA))}}}})
		}
	})
	page := string(w.Want(w.Get("/docs", key(keyA)), 200).Text)
	if strings.Contains(page, "<script") || !strings.Contains(page, "&lt;script&gt;") {
		t.Errorf("%s", page)
	}
}

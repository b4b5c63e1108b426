package httpapi

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
)

func TestTheOperationsAreThoseThatTheCallerMayRequestWithTheirLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.free = []limits.Limit{perClient("free-only", 60, time.Minute), trial("trial", 5)}
		s.pro = []limits.Limit{{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient, Amount: 20}}
		s.report = []limits.Limit{{Name: "report-rate", Algorithm: limits.TokenBucket, Per: limits.PerGlobal, Amount: 10, Window: time.Minute, Burst: 3}}
		s.adjust = func(_ *world, c *worldConfig) {
			c.enter.Operations[2].Cost = admission.Cost{From: "/pages", Default: 1, Max: 100}
		}
	})
	published := func(fields ...[2]string) (string, map[string]api.Operation) {
		var got api.Operations
		strictly(t, "operations", w.want(w.get("/v1/operations", fields...), 200).body, &got)
		all := map[string]api.Operation{}
		for _, o := range got.Operations {
			all[o.Name] = o
		}
		return got.Tier, all
	}
	tier, got := published(from("192.0.2.1"))
	if tier != "free" || len(got) != 3 || got[w.inner].Name != "" {
		t.Errorf("tier %s: %v", tier, got)
	}
	if text := fmt.Sprintf("%+v", got[w.report].Limits); text != "[{Name:free-only Scope:client Algorithm:sliding-window-counter Limit:60 Unit: Burst:0 Window:1m Enforced:true GraceUntil:<nil>} "+
		"{Name:trial Scope:client Algorithm:sliding-window-counter Limit:5 Unit: Burst:0 Window:1h Enforced:false GraceUntil:<nil>} "+
		"{Name:report-rate Scope:global Algorithm:token-bucket Limit:10 Unit: Burst:3 Window:1m Enforced:true GraceUntil:<nil>}]" {
		t.Errorf("limits of report: %s", text)
	}
	if o := got[w.report]; fmt.Sprint(o.OnOverload) != "[stale reject]" || o.Cost != (api.Cost{Fixed: 1}) {
		t.Errorf("report: %+v", o)
	}
	if o := got[w.plain]; o.Cost != (api.Cost{From: "/pages", Default: 1, Max: 100}) || len(o.OnOverload) != 0 {
		t.Errorf("plain: %+v", o)
	}
	tier, got = published(key(keyA))
	if tier != "pro" || len(got) != 4 || len(got[w.inner].Limits) != 1 || got[w.inner].Limits[0].Window != "" {
		t.Errorf("tier %s: %v", tier, got)
	}
	if n := w.stated(w.get("/v1/operations", from("192.0.2.1")))["free-only"].r; n != 60 {
		t.Errorf("asking spent: %d left", n)
	}
	w.problem(w.get("/v1/operations", key("nope")), http.StatusUnauthorized, api.CodeInvalidCredentials)
	w.store.down.Store(true)
	if _, got := published(key(keyA)); len(got) != 4 {
		t.Error("without a store nothing is published")
	}
}

func TestThePageForPeopleNeedsNothingButItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.free = []limits.Limit{perClient("per-minute", 60, time.Minute), trial("trial", 5)}
		s.pro = []limits.Limit{{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient, Amount: 20}}
		s.grace = admission.Grace{Period: time.Hour, Factor: 2}
		s.adjust = func(w *world, c *worldConfig) {
			c.enter.Newcomers = &newcomers{name: w.clientA(), until: time.Date(2027, 1, 2, 3, 4, 0, 0, time.UTC)}
		}
	})
	a := w.want(w.get("/docs", from("192.0.2.1")), 200)
	page := string(a.body)
	for _, want := range []string{"For callers without a key", "<strong>free</strong>", w.report, w.plain, "per-minute", "60 requests per minute", "on trial: refuses nobody",
		"the last good answer, if it is at most 1h old", "A request counts as 1 request"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, foreign := range []string{"<script", "http://", "https://", "<link", "<img", "@import", "url(", " style=", " onload", w.inner} {
		if strings.Contains(page, foreign) {
			t.Errorf("the page has %q", foreign)
		}
	}
	_, style, _ := strings.Cut(page, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	if csp := a.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
		t.Errorf("the policy %s isn't of the page's style", csp)
	}
	if got := a.Header.Get("Content-Type"); got != "text/html; charset=utf-8" {
		t.Errorf("%s", got)
	}
	page = string(w.want(w.get("/docs", key(keyA)), 200).body)
	for _, want := range []string{"For " + w.clientA(), "<strong>pro</strong>", w.inner, "40 jobs at one time", "until 2 January 2027, 03:04 UTC"} {
		if !strings.Contains(page, want) {
			t.Errorf("with a key the page lacks %q", want)
		}
	}
	w.problem(w.get("/docs", key("nope")), http.StatusUnauthorized, api.CodeInvalidCredentials)
	w.want(w.call("HEAD", w.url+"/docs", ""), 200)
	w.store.down.Store(true)
	if page := w.want(w.get("/docs"), 200); page.Header.Get("RateLimit") != "" || !strings.Contains(string(page.body), "60 requests per minute") {
		t.Errorf("without a store: %v", page.Header)
	}

	locked := newWorld(t, func(s *setup) { s.noAnon = true })
	page = string(locked.want(locked.get("/docs"), 200).body)
	if strings.Contains(page, locked.plain) || !strings.Contains(page, "A key is required") {
		t.Errorf("who has no key learns %s", page)
	}
}

// A limit that holds for all operations is shown once.
func TestThePageShowsALimitOfAllOperationsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.free = []limits.Limit{perClient("per-minute", 60, time.Minute)}
		s.report = []limits.Limit{perClient("own", 5, time.Minute)}
	})
	page := string(w.want(w.get("/docs", from("192.0.2.1")), 200).body)
	for _, name := range []string{"per-minute", "own"} {
		if n := strings.Count(page, "<code>"+name+"</code>"); n != 1 {
			t.Errorf("%s is shown %d times in\n%s", name, n, page)
		}
	}
	if strings.Index(page, "per-minute") > strings.Index(page, w.plain) || strings.Index(page, "<code>own</code>") < strings.Index(page, `id="`+w.report) {
		t.Errorf("the limits aren't where they belong in\n%s", page)
	}
}

// What is done instead is published, as far as the caller may have it.
func TestWhatIsDoneInsteadIsPublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.adjust = func(w *world, c *worldConfig) {
			o := c.operation(w.report)
			o.Overload.FreshFor, o.Coalesce = time.Minute, true
			o.Overload.Steps = []degrade.Step{{Kind: degrade.Stale}, {Kind: degrade.Operation, Operation: w.inner}, {Kind: degrade.Body, Body: []byte(`1`)}}
		}
	})
	for tier, want := range map[string]string{"pro": "[stale operation:" + w.inner + " body]", "free": "[stale body]"} {
		caller := from("192.0.2.1")
		if tier == "pro" {
			caller = key(keyA)
		}
		var got api.Operations
		strictly(t, "operations", w.want(w.get("/v1/operations", caller), 200).body, &got)
		for _, o := range got.Operations {
			if o.Name == w.report && (fmt.Sprint(o.OnOverload) != want || o.FreshFor != "1m" || o.StaleFor != "1h" || !o.Coalesce) ||
				o.Name == w.plain && (o.FreshFor != "" || o.StaleFor != "" || o.Coalesce) {
				t.Errorf("%s: %+v", tier, o)
			}
		}
		page := string(w.want(w.get("/docs", caller), 200).body)
		for _, text := range []string{"An answer that is at most 1m old is served at once", "the last good answer, if it is at most 1h old; otherwise a", "otherwise a fixed answer."} {
			if !strings.Contains(page, text) {
				t.Errorf("%s: the page lacks %q", tier, text)
			}
		}
		if has := strings.Contains(page, "a job of "+w.inner+", if"); has != (tier == "pro") {
			t.Errorf("%s: the page tells of the stand-in: %v", tier, has)
		}
	}
}

func TestWhatTheConfigNamesIsTextOnThePage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.adjust = func(_ *world, c *worldConfig) {
			c.Identity = identity.New(identity.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
				Clients: []identity.Registered{{Name: `<script>alert(1)</script>`, Tier: "pro", Keys: []identity.Digest{sha256.Sum256([]byte(keyA))}}}})
		}
	})
	if page := string(w.want(w.get("/docs", key(keyA)), 200).body); strings.Contains(page, "<script") || !strings.Contains(page, "&lt;script&gt;") {
		t.Errorf("%s", page)
	}
}

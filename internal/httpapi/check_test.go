package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/testforebay"
)

// rateLimit is the field's name as the service writes it. A recorder has it so, where a client
// would have net/http's spelling.
var rateLimit = api.HeaderRateLimit

func (w *world) check(query string, fields ...[2]string) answer {
	w.Helper()
	return w.Get("/v1/check?"+query, fields...)
}

func TestACheckSpendsWhatAJobWould(t *testing.T) {
	t.Parallel()
	for name, limit := range everyAlgorithm(3) {
		if limit.Algorithm == limits.Concurrency {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *setup) { s.Report = []limits.Limit{limit} })
			job := w.stated(w.Want(w.Submit(w.Report, `1`, key(keyA)), http.StatusAccepted))
			a := w.Want(w.check("operation="+w.Report, key(keyA)), 200)
			got := w.stated(a)[limit.Name]
			if len(a.Text) != 0 || a.Header.Get("Forebay-Decision") != "accepted" ||
				job[limit.Name].r != 2 || got.r != 1 || got.policy != job[limit.Name].policy {
				t.Errorf("after a job %+v, a check says %+v: %v %q", job, got, a.Header, a.Text)
			}
			w.Want(w.Call("HEAD", w.URL+"/v1/check?operation="+w.Report, "", key(keyA)), 200)
			a = w.check("operation="+w.Report, key(keyA))
			p := w.Problem(a, http.StatusTooManyRequests, api.CodeRateLimit)
			if p.Reason != limit.Name || a.Header.Get("Retry-After") == "" ||
				a.Header.Get("Forebay-Decision") != `rejected;reason="`+limit.Name+`"` {
				t.Errorf("%v %s", a.Header, a.Text)
			}
			w.Problem(w.Submit(w.Report, `1`, key(keyA)), http.StatusTooManyRequests,
				api.CodeRateLimit)
			w.Want(w.check("operation="+w.Report, key(keyB)), 200) // each client its own
		})
	}
}

// Nothing reports when the work ends.
func TestACheckHoldsNoPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{{Name: "jobs", Algorithm: limits.Concurrency, Per: limits.PerClient,
			Amount: 1}, perClient("wide", 60, time.Hour)}
	})
	w.Pause()
	w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	for range 3 {
		if got := w.stated(w.Want(w.check("operation="+w.Plain, key(keyA)), 200)); len(got) != 1 ||
			got["wide"].policy == "" {
			t.Errorf("stated %v", got)
		}
	}
	w.Problem(w.Submit(w.Plain, `1`, key(keyA)), http.StatusTooManyRequests, api.CodeRateLimit)
}

func TestWhoChecksIsTheOriginalRequestsCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Free = []limits.Limit{perClient("one", 1, time.Hour)} })
	query := "operation=" + w.Plain
	w.Want(w.check(query, from("192.0.2.1")), 200)
	w.Problem(w.check(query, from("192.0.2.1")), http.StatusTooManyRequests, api.CodeRateLimit)
	w.Want(w.check(query, from("192.0.2.2")), 200)
	w.Problem(w.check(query, key("nope")), http.StatusUnauthorized, api.CodeInvalidCredentials)
	w.Problem(w.check("operation="+w.Inner, from("192.0.2.3")), http.StatusForbidden,
		api.CodeNotAllowed)
	if p := w.Problem(w.check("operation=none", from("192.0.2.3")), http.StatusNotFound,
		api.CodeUnknownOperation); len(p.Operations) != 3 {
		t.Errorf("operations %v", p.Operations)
	}
}

// C18: a gateway may ask for more than the operation costs, and never for less.
func TestACheckThatIsMalformedSpendsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Cost = admission.Cost{Fixed: 2}
		s.Pro = []limits.Limit{perClient("ten", 10, time.Hour)}
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Enter.Operations[1].Cost = admission.Cost{From: "/n", Default: 3, Max: 5}
		}
	})
	op := "operation=" + w.Plain
	for _, query := range []string{"", "operation=", "cost=1", op + "&cost=", op + "&cost=0",
		op + "&cost=1", op + "&cost=-5", op + "&cost=1e18", op + "&cost=NaN",
		op + `&cost="3"`, op + "&cost=2.5", op + "&cost=02", op + "&cost=+3", op + "&cost=%203",
		op + "&cost=1000000001", op + "&cost=99999999999999999999",
		op + "&cost=3&cost=3", op + "&" + op, op + "&costs=3", op + "&x", op + ";cost=3",
		op + "&cost=%zz",
		"operation=" + w.Shared + "&cost=0", "operation=" + w.Shared + "&cost=6"} {
		w.Problem(w.check(query, key(keyA)), http.StatusBadRequest, api.CodeInvalidRequest)
	}
	for _, c := range []struct {
		query string
		left  int64
	}{{op, 8}, {op + "&cost=3", 5}, {"operation=" + w.Shared, 2},
		{"operation=" + w.Shared + "&cost=1", 1}} {
		if got := w.stated(w.Want(w.check(c.query, key(keyA)), 200))["ten"].r; got != c.left {
			t.Errorf("after %s: %d left, want %d", c.query, got, c.left)
		}
	}
	p := w.Problem(w.check(op+"&cost=11", key(keyA)), http.StatusUnprocessableEntity,
		api.CodeCostTooHigh)
	if p.Reason != "ten" {
		t.Errorf("%+v", p)
	}
}

// Case C52. A preflight is recognized by the field that the config names, from a trusted proxy; no
// other request passes for one.
func TestAPreflightSpendsNothingAndOnlyAPreflightPassesForOne(t *testing.T) {
	t.Parallel()
	of := func(method string) *world {
		return newWorld(t, func(s *setup) {
			s.Free, s.Pro = []limits.Limit{perClient("five", 5, time.Hour)},
				[]limits.Limit{perClient("five", 5, time.Hour)}
			s.Adjust = func(_ *testforebay.World, c *testforebay.Config) { c.CheckMethod = method }
		})
	}
	w := of("X-Original-Method")
	origin, asks := field("Origin", "https://app.example.com"),
		field("Access-Control-Request-Method", "POST")
	query, caller := "operation="+w.Plain, from("192.0.2.1")
	for range 20 {
		a := w.Want(w.check(query, caller, field("X-Original-Method", "OPTIONS"), origin, asks),
			200)
		if a.Header.Get("RateLimit") != "" || a.Header.Get("Forebay-Decision") != "" {
			t.Errorf("a preflight is decided on: %v", a.Header)
		}
	}
	for i, fields := range [][][2]string{
		{field("X-Original-Method", "GET"), origin, asks},
		{field("X-Original-Method", "GET"), field("X-Forwarded-Method", "OPTIONS")},
		// the caller's own: the gateway writes another
		{field("X-Forwarded-Method", "OPTIONS"), origin, asks},
		{field("X-Original-Method", "options"), origin, asks},
		{field("X-Original-Method", "OPTIONS"), origin}, // browsers send both
	} {
		if got := w.stated(w.Want(w.check(query, append(fields, caller)...),
			200))["five"].r; got != int64(4-i) {
			t.Errorf("%v: %d left, want %d", fields, got, 4-i)
		}
	}
	w.Problem(w.check(query, caller), http.StatusTooManyRequests, api.CodeRateLimit)
	if got := w.stated(w.Want(w.check(query, key(keyA), field("X-Original-Method", "OPTIONS")),
		200))["five"].r; got != 4 {
		t.Errorf("a request with a key passed for a preflight: %d left", got)
	}
	w.Problem(w.check("operation=none", from("192.0.2.3"), field("X-Original-Method", "OPTIONS")),
		http.StatusNotFound, api.CodeUnknownOperation)
	w.Want(w.Submit(w.Plain, `1`, from("192.0.2.2")), http.StatusAccepted)

	none := of("") // by default no field is believed
	if got := none.stated(none.Want(none.check("operation="+none.Plain, caller,
		field("X-Original-Method", "OPTIONS")), 200))["five"].r; got != 4 {
		t.Errorf("a preflight that the config doesn't know of: %d left", got)
	}
	r := httptest.NewRequest("GET", "/v1/check?operation="+w.Plain, nil)
	r.Header.Set("X-Original-Method", "OPTIONS")
	r.RemoteAddr = "198.51.100.7:1234" // no trusted proxy
	answer := httptest.NewRecorder()
	w.Server.Public().ServeHTTP(answer, r)
	if answer.Header().Get("Forebay-Decision") == "" {
		t.Errorf("a stranger's word was believed: %d %v", answer.Code, answer.Header())
	}
}

// C126: the way is the operation's own, and an answer that was decided without the store says so.
func TestWithTheStoreLostChecksGoTheWayOfTheConfig(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"unhealthy", "failing"} {
		for way, want := range map[string][]int{admission.CheckLocal: {200, 200, 429},
			admission.CheckAllow: {200, 200, 200}, admission.CheckRefuse: {503, 503, 503},
			"": {503, 503, 503}} {
			t.Run(how+" "+way, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, func(s *setup) {
					s.Pro = []limits.Limit{perClient("two", 2, time.Hour)}
					s.Limiter = func(l admission.Limiter) admission.Limiter { return lostLimiter{} }
					s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
						c.Enter.LocalChecks = limits.NewFallback(limits.NewLocal(),
							func() int { return 1 }, func() bool { return false })
						for i := range c.Enter.Operations {
							if c.Enter.Operations[i].Name == w.Plain {
								c.Enter.Operations[i].OnFailure = way
							}
						}
					}
				})
				w.Store.Down.Store(how == "unhealthy")
				for i, status := range want {
					a := w.Want(w.check("operation="+w.Plain, key(keyA)), status)
					decision := "accepted"
					switch {
					case status == 503:
						decision = `rejected;reason="store_unavailable"`
						w.Problem(a, 503, api.CodeStore)
					case status == 429:
						decision = `rejected;reason="two"`
					case way == admission.CheckLocal && w.stated(a)["two"].r != int64(1-i):
						t.Errorf("check %d: %v", i, a.Header)
					default:
						decision = `accepted;reason="store_unavailable"`
					}
					if a.Header.Get("Forebay-Decision") != decision ||
						(status != 200) != (a.Header.Get("Retry-After") != "") {
						t.Errorf("check %d: %v, want decision %s", i, a.Header, decision)
					}
				}
				w.Problem(w.check("operation=none", key(keyA)), http.StatusNotFound,
					api.CodeUnknownOperation)
			})
		}
	}
}

// lostLimiter has lost its store.
type lostLimiter struct{ admission.Limiter }

func (lostLimiter) Decide(context.Context, limits.Request) (limits.Verdict, error) {
	return limits.Verdict{}, errors.New("lost")
}

func (lostLimiter) Peek(context.Context, limits.Request) (limits.Verdict, error) {
	return limits.Verdict{}, errors.New("lost")
}

// A share of a limit can be too small for a request that the whole limit has room for: then never
// is only for now.
func TestACostOverAShareIsRefusedForNowAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Cost = admission.Cost{From: "/n", Default: 1, Max: 100}
		s.Pro = []limits.Limit{perClient("sixteen", 16, time.Hour)}
		s.Limiter = func(l admission.Limiter) admission.Limiter { return shareLimiter{l} }
	})
	w.Want(w.check("operation="+w.Plain+"&cost=2", key(keyA)), 200)
	w.Problem(w.check("operation="+w.Plain+"&cost=16", key(keyA)), http.StatusServiceUnavailable,
		api.CodeStore)
	w.Problem(w.Submit(w.Plain, `{"n":5}`, key(keyA)), http.StatusServiceUnavailable, api.CodeStore)
	w.Problem(w.Submit(w.Plain, `{"n":17}`, key(keyA)), http.StatusUnprocessableEntity,
		api.CodeCostTooHigh)
}

// N38: Envoy asks with its prefix before the original request's path and query, and with that
// request's method. Its word on the operation is in a field, and no word of its client counts.
func TestACheckMayCarryTheOriginalRequestsPathAndMethod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{perClient("ten", 10, time.Hour)}
	})
	ask := func(method, target string, fields ...[2]string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, target, nil)
		r.Header.Set("X-API-Key", keyA)
		for _, f := range fields {
			r.Header.Add(f[0], f[1])
		}
		answer := httptest.NewRecorder()
		w.Server.Public().ServeHTTP(answer, r)
		return answer
	}
	plain := field("Forebay-Operation", w.Plain)
	left := 10
	for _, c := range []struct{ method, target string }{
		{"GET", "/v1/check/"}, {"POST", "/v1/check/api/things"},
		{"PUT", "/v1/check/api/a%2Fb//c/../d?x=1&operation=none&cost=9"},
		{"DELETE", "/v1/check/v1/jobs/1?%zz"}, {"PROPFIND", "/v1/check/dav"},
		{"HEAD", "/v1/check/x"},
	} {
		left--
		a := ask(c.method, c.target, plain)
		if got := strings.Join(a.Header()[rateLimit], ""); a.Code != 200 || a.Body.Len() > 0 ||
			!strings.Contains(got, fmt.Sprintf("r=%d", left)) {
			t.Errorf("%s %s: %d %s %s, want 200 and %d left", c.method, c.target, a.Code, got,
				a.Body, left)
		}
	}
	if a := ask("POST", "/v1/check/api/things?operation="+w.Plain+"&cost=2"); a.Code != 200 ||
		!strings.Contains(strings.Join(a.Header()[rateLimit], ""), "r=2") {
		t.Errorf("with the operation in the query: %d %v", a.Code, a.Header())
	}
	if a := ask("GET", "/v1/check/x", plain, field("Forebay-Cost", "2")); a.Code != 200 ||
		!strings.Contains(strings.Join(a.Header()[rateLimit], ""), "r=0") {
		t.Errorf("with a cost: %d %v", a.Code, a.Header())
	}
	if a := ask("POST", "/v1/check/api/things", plain); a.Code != 429 ||
		a.Header().Get("Retry-After") == "" {
		t.Errorf("over the limit: %d %v", a.Code, a.Header())
	}
	for _, fields := range [][][2]string{nil, {plain, plain}, {plain, field("Forebay-Cost", "x")}} {
		if a := ask("GET", "/v1/check/x?a=b", fields...); a.Code != 400 {
			t.Errorf("%v: %d %s, want 400", fields, a.Code, a.Body)
		}
	}
	// Other gateways hand on their clients' fields: there, the query of the gateway alone counts.
	if a := ask("GET", "/v1/check?operation=none", plain); a.Code != 404 {
		t.Errorf("a client's field was taken for the gateway's word: %d", a.Code)
	}
}

func TestChecksAreCountedAmongTheDecisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Pro = []limits.Limit{perClient("one", 1, time.Hour)} })
	w.Want(w.check("operation="+w.Plain, key(keyA)), 200)
	w.Want(w.check("operation="+w.Plain, key(keyA)), 429)
	got := string(w.Metrics())
	for _, want := range []string{`decision="accepted",operation="` + w.Plain +
		`",reason="checked"`, `decision="rejected",operation="` + w.Plain + `",reason="one"`} {
		if !strings.Contains(got, fmt.Sprintf("forebay_admission_decisions_total{%s} 1\n", want)) {
			t.Errorf("lacks %s", want)
		}
	}
}

// A page can make its reader's browser ask without a key, at the cost of the reader's address:
// neither a check nor a missing key is charged then. What a gateway hands on may come from
// anywhere, and a key is nothing that a browser sends by itself.
func TestNoPageOfAnotherSiteSpendsItsReadersLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Free, s.Pro = []limits.Limit{perClient("five", 5, time.Hour)},
			[]limits.Limit{perClient("five", 5, time.Hour)}
	})
	ask := func(peer string, fields ...[2]string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/v1/check?operation="+w.Plain, nil)
		r.RemoteAddr = peer + ":1234"
		for _, f := range fields {
			r.Header.Set(f[0], f[1])
		}
		answer := httptest.NewRecorder()
		w.Server.Public().ServeHTTP(answer, r)
		return answer
	}
	const reader, gateway = "198.51.100.7", "127.0.0.1"
	for _, f := range [][2]string{field("Sec-Fetch-Site", "cross-site"),
		field("Origin", "https://evil.example"), field("Origin", "null")} {
		for range 3 {
			if a := ask(reader, f); a.Code != http.StatusForbidden ||
				!strings.Contains(a.Body.String(), api.CodeCrossSite) {
				t.Errorf("%v: %d %s", f, a.Code, a.Body)
			}
		}
		if a := ask(reader, f, key(keyA)); a.Code != 200 {
			t.Errorf("%v with a key: %d", f, a.Code)
		}
	}
	if a := ask(gateway, field("Sec-Fetch-Site", "cross-site"), from("192.0.2.1")); a.Code != 200 {
		t.Errorf("through a gateway: %d %s", a.Code, a.Body)
	}
	if a := ask(reader, field("Sec-Fetch-Site", "none")); a.Code != 200 ||
		!strings.Contains(strings.Join(a.Header()[rateLimit], ""), `"five";r=4`) {
		t.Errorf("typed by hand: %d %v", a.Code, a.Header())
	}
}

package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/limits"
)

// Case C43.
func TestCallersWithoutAKeyAreToldApartByAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Free = []limits.Limit{perClient("two", 2, time.Hour)} })
	a, b := from("192.0.2.1"), from("192.0.2.2")
	w.Want(w.Submit(w.Plain, `1`, a), http.StatusAccepted)
	w.Want(w.Submit(w.Plain, `1`, a), http.StatusAccepted)
	for range 5 {
		w.Problem(w.Submit(w.Plain, `1`, a), http.StatusTooManyRequests, api.CodeRateLimit)
	}
	w.Want(w.Submit(w.Plain, `1`, b), http.StatusAccepted)
	// An empty key is invalid, and has no client.
	for _, blank := range [][2]string{field("X-API-Key", ""), field("X-API-Key", "   "),
		field("Authorization", "Bearer"), field("Authorization", "Bearer   ")} {
		w.Problem(w.Submit(w.Plain, `1`, b, blank), http.StatusUnauthorized,
			api.CodeInvalidCredentials)
	}
	w.Want(w.Submit(w.Plain, `1`, b), http.StatusAccepted)
}

func TestWhoIsNotKnownIsChallenged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.NoAnonymous = true })
	const bare, invalid = `Bearer realm="forebay"`, `Bearer realm="forebay", error="invalid_token"`
	for name, c := range map[string]struct {
		fields    [][2]string
		status    int
		challenge string
	}{
		"no key":         {nil, 401, bare},
		"another scheme": {[][2]string{field("Authorization", "Basic YTpi")}, 401, bare},
		"unknown key":    {[][2]string{key("nope")}, 401, invalid},
		"two keys":       {[][2]string{key(keyA), field("X-API-Key", keyB)}, 400, ""},
		"one key twice":  {[][2]string{key(keyA), field("X-API-Key", keyA)}, 202, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.Want(w.Submit(w.Plain, `1`, c.fields...), c.status)
			if got := a.Header.Get("WWW-Authenticate"); got != c.challenge {
				t.Errorf("WWW-Authenticate: %q, want %q", got, c.challenge)
			}
			if c.status != 202 {
				w.Want(w.Get("/v1/rate-limits", c.fields...), c.status)
			}
		})
	}
	if strings.Contains(w.Logs.String(), "nope") || strings.Contains(w.Logs.String(), keyA) {
		t.Error("a key is in the log")
	}
}

func TestAForbiddenOperationSaysThatTheKeyIsNotEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.Want(w.Submit(w.Inner, `1`, from("192.0.2.3")), http.StatusForbidden)
	const want = `Bearer realm="forebay", error="insufficient_scope"`
	if got := a.Header.Get("WWW-Authenticate"); got != want {
		t.Errorf("WWW-Authenticate: %s", got)
	}
}

func TestFailedAuthenticationSpendsTheAddressAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{perClient("mine", 100, time.Hour)}
		s.Global = []limits.Limit{
			{Name: "address", Algorithm: limits.TokenBucket, Per: limits.PerIP, Amount: 3,
				Window: time.Hour},
			{Name: "everyone", Algorithm: limits.TokenBucket, Per: limits.PerGlobal, Amount: 100,
				Window: time.Hour},
		}
	})
	thief := from("192.0.2.66")
	for range 3 {
		w.Problem(w.Submit(w.Plain, `1`, key("guess"), thief), http.StatusUnauthorized,
			api.CodeInvalidCredentials)
	}
	a := w.Submit(w.Plain, `1`, key("guess"), thief)
	if p := w.Problem(a, http.StatusTooManyRequests, api.CodeRateLimit); p.Reason != "address" ||
		!strings.HasPrefix(a.Header.Get("RateLimit"), `"address";r=0;`) {
		t.Errorf("%s %v", a.Text, a.Header)
	}
	w.Problem(w.Get("/v1/rate-limits", key("guess"), thief), http.StatusTooManyRequests,
		api.CodeRateLimit)
	// From elsewhere nothing of it is felt.
	a = w.Want(w.Submit(w.Plain, `1`, key(keyA), from("192.0.2.67")), http.StatusAccepted)
	if got := a.Header.Get("RateLimit"); !strings.Contains(got, `"mine";r=99;`) ||
		!strings.Contains(got, `"everyone";r=99;`) || !strings.Contains(got, `"address";r=2;`) {
		t.Errorf("RateLimit: %s", got)
	}
}

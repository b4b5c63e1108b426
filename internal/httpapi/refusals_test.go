package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
)

// A flood of requests that a rate limit refuses costs Redis nothing, and each answer says all that
// the first one said.
func TestAFloodOfRefusedRequestsCostsRedisNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := newWorld(t, func(s *setup) {
		s.Redis = server.Client(t)
		s.Pro = []limits.Limit{{Name: "hourly", Algorithm: limits.TokenBucket,
			Per: limits.PerClient, Amount: 1, Window: time.Hour}}
	})
	w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	first := w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusTooManyRequests)
	before := w.commands()
	const flood = 200
	for range flood {
		a := w.Submit(w.Plain, `1`, key(keyA))
		p := w.Problem(a, http.StatusTooManyRequests, api.CodeRateLimit)
		if p.Reason != "hourly" || p.RetryAfter <= 0 || p.RetryAfter > 3600 {
			t.Fatalf("%s", a.Text)
		}
		for _, field := range []string{"RateLimit-Policy", "X-RateLimit-Remaining",
			"Forebay-Decision"} {
			if got, want := a.Header.Get(field), first.Header.Get(field); got != want || got == "" {
				t.Fatalf("%s: %q, want %q", field, got, want)
			}
		}
	}
	// Pings of the store and the permits' reconciler go on; a refusal is asked about anew every 10
	// s.
	if n := w.commands() - before; n > flood/2 {
		t.Errorf("%d refused requests cost Redis %d commands", flood, n)
	}

	// Another client, and a request with a key whose job may be there, are asked about.
	w.Want(w.Submit(w.Plain, `1`, key(keyB)), http.StatusAccepted)
	keyed := func() answer {
		return w.Submit(w.Plain, `1`, key(keyB), idempotent(`"k"`))
	}
	w.Want(keyed(), http.StatusTooManyRequests)
	w.Want(w.Submit(w.Plain, `1`, key(keyB)), http.StatusTooManyRequests)
	w.Want(keyed(), http.StatusTooManyRequests)
}

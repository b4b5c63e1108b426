package httpapi_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/testforebay"
)

// The storage of a client's jobs on a backend is bounded by its tier: those that wait, and those
// that are kept, with their results. The refusal says so, costs nothing of any limit, and ends with
// a purge.
func TestATierBoundsWhatItsClientsStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{perClient("hundred", 100, time.Hour)}
		s.Adjust = func(_ *testforebay.World, c *testforebay.Config) {
			pro := c.Enter.Tiers["pro"]
			pro.MaxStored = 10_000
			c.Enter.Tiers["pro"] = pro
		}
	})
	payload := `"` + strings.Repeat("x", 4000) + `"`
	first := w.Job(w.Want(w.Submit(w.Plain, payload, key(keyA)), http.StatusAccepted))
	w.Want(w.Submit(w.Plain, payload, key(keyA)), http.StatusAccepted)
	for _, k := range [][2]string{field("X-Request-Id", "a"), idempotent("k")} {
		a := w.Submit(w.Plain, payload, key(keyA), k)
		p := w.Problem(a, http.StatusTooManyRequests, api.CodeStoredFull)
		wait, _ := strconv.Atoi(a.Header.Get("Retry-After"))
		if p.Reason != "stored_full" || p.Type != api.TypeQuotaExceeded || wait < 30 || wait > 33 ||
			a.Header.Get(api.HeaderDecision) != `rejected;reason="stored_full"` ||
			!strings.Contains(p.Detail, "Purge") || strings.Contains(p.Detail, w.Backend) {
			t.Errorf("%s %v", a.Text, a.Header)
		}
		if left := w.stated(a)["hundred"].r; left != 98 {
			t.Errorf("a refusal left %d of a limit", left)
		}
	}
	w.Want(w.Submit(w.Plain, payload, key(keyB)), http.StatusAccepted)
	w.Want(w.Submit(w.Plain, payload, from("192.0.2.1")), http.StatusAccepted)

	w.Succeed(first.ID, 200, "text/plain", []byte(strings.Repeat("y", 5000)))
	a := w.Submit(w.Plain, `1`, key(keyA)) // 4, 5 and 4 thousand are there
	w.Problem(a, http.StatusTooManyRequests, api.CodeStoredFull)
	if wait, _ := strconv.Atoi(a.Header.Get("Retry-After")); wait < 3590 || wait > 3961 {
		t.Errorf("Retry-After is %d, until the first has gone 3600 s, and up to a tenth more", wait)
	}
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+first.ID+"?purge=1", "", key(keyA)),
		http.StatusNoContent)
	w.Want(w.Submit(w.Plain, payload, key(keyA)), http.StatusAccepted)
	if look, err := w.Line.Look(t.Context(), first.ID); err == nil {
		t.Errorf("what was purged is %s", look.Standing.State)
	}
	metric := `forebay_admission_decisions_total{decision="rejected",operation="` + w.Plain +
		`",reason="stored_full"} 3`
	if text := string(w.Call("GET", w.Admin+"/metrics", "").Text); !strings.Contains(text, metric) {
		t.Errorf("no %s", metric)
	}
}

package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/limits"
)

// A limit of bytes is charged the bytes of each body that was read, in its own unit beside the
// limits of requests, and gets them back where the request gets no job.
func TestALimitOfBytesIsChargedTheBodysBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{perClient("requests", 100, time.Hour),
			{Name: "upload", Algorithm: limits.FixedWindow, Per: limits.PerClient, Amount: 2000,
				Window: 366 * 24 * time.Hour, Bytes: true}}
		s.Line.Capacity = 1
	})
	w.Pause()
	empty := len(`{"operation":"","payload":""}`) + len(w.Plain)
	submit := func(bytes int) answer {
		t.Helper()
		return w.Submit(w.Plain, `"`+strings.Repeat("x", bytes-empty)+`"`, key(keyA))
	}
	left := func(a answer, want int64) {
		t.Helper()
		if got := w.stated(a)["upload"]; got.r != want ||
			got.policy != `q=2000;qu="content-bytes";w=31622400` {
			t.Errorf("stated %+v, want r=%d", got, want)
		}
	}

	p := w.Problem(submit(2001), http.StatusUnprocessableEntity, api.CodeCostTooHigh)
	if p.Reason != "upload" || p.RetryAfter != 0 ||
		!strings.Contains(p.Detail, "2001 bytes") || !strings.Contains(p.Detail, "2000") {
		t.Errorf("a body that never fits: %+v", p)
	}
	a := w.Want(submit(700), http.StatusAccepted)
	left(a, 1300)
	if a.Header.Get("X-RateLimit-Limit") != "100" {
		t.Errorf("the fields that are about requests speak of bytes: %v", a.Header)
	}
	left(w.Want(w.Get("/v1/jobs/"+w.Job(a).ID, key(keyA)), http.StatusOK), 1300)

	a = submit(700)
	w.Problem(a, http.StatusTooManyRequests, api.CodeLineFull)
	left(a, 1300)
	left(w.Get("/v1/rate-limits", key(keyA)), 1300)

	body := `{"operation":"none","payload":1}` // what is refused has taken its bytes
	a = w.Call("POST", w.URL+"/v1/jobs", body, key(keyA))
	w.Problem(a, http.StatusNotFound, api.CodeUnknownOperation)
	left(a, 1300-int64(len(body)))
	a = w.Call("POST", w.URL+"/v1/jobs", strings.Repeat(" ", 1300-len(body)-1)+"!", key(keyA))
	w.Problem(a, http.StatusBadRequest, api.CodeInvalidRequest)
	left(a, 0)

	p = w.Problem(submit(empty), http.StatusTooManyRequests, api.CodeRateLimit)
	if p.Reason != "upload" || p.RetryAfter < 1 || !strings.Contains(p.Detail, "2000 bytes per ") {
		t.Errorf("a full limit of bytes: %+v", p)
	}
	a = w.Want(w.Get("/v1/check?operation="+w.Plain, key(keyA)), http.StatusOK)
	left(a, 0)

	shown := w.rateLimits(key(keyA))
	if l := shown["upload"]; l.Unit != "content-bytes" || l.Remaining != 0 ||
		shown["requests"].Unit != "" {
		t.Errorf("told of %+v", shown)
	}
	page := w.Get("/docs", key(keyA)).Text
	if !strings.Contains(string(page), "2000 bytes per ") {
		t.Errorf("the limits for people:\n%s", page)
	}
	var list api.Operations
	err := json.Unmarshal(w.Get("/v1/operations", key(keyA)).Text, &list)
	if err != nil || list.Operations[0].Limits[1].Unit != "content-bytes" {
		t.Errorf("the limits for programs: %+v, %v", list, err)
	}
}

package adminapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

const adminToken = "0123456789abcdef"

// Guessing the operators' token gets nowhere: ten wrong ones of an address are tried, and then one
// a second; the address's right one waits with them, and no other address's.
func TestWrongOperatorsTokensAreBrakedPerAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Token = adminToken })
	thief, operator := from("192.0.2.66"), from("192.0.2.67")
	right := field("Authorization", "Bearer "+adminToken)
	var refused, braked atomic.Int64
	var all sync.WaitGroup
	for n := range 40 {
		all.Go(func() {
			a, err := w.Try("GET", w.Admin+"/metrics", "",
				field("Authorization", fmt.Sprint("Bearer guess-", n)), thief)
			switch {
			case err != nil:
				t.Error(err)
			case a.StatusCode == http.StatusUnauthorized:
				refused.Add(1)
			case a.StatusCode == http.StatusTooManyRequests && a.Header.Get("Retry-After") != "":
				braked.Add(1)
			default:
				t.Errorf("%s %v", a.Status, a.Header)
			}
		})
	}
	all.Wait()
	if refused.Load() < 10 || braked.Load() == 0 {
		t.Errorf("%d were tried and %d braked", refused.Load(), braked.Load())
	}
	text := string(w.Want(w.Call("GET", w.Admin+"/metrics", "", right, operator), 200).Text)
	for reason, want := range map[string]int64{"wrong_token": refused.Load(),
		"too_many_wrong_tokens": braked.Load(), "no_token": 0, "cross_site": 0} {
		if line := fmt.Sprintf("forebay_operator_refusals_total{reason=%q} %d\n", reason,
			want); !strings.Contains(text, line) {
			t.Errorf("metrics lack %s", line)
		}
	}
	lines := strings.Count(w.Logs.String(), `msg="operator refused"`)
	if lines == 0 || lines >= 40 || !strings.Contains(w.Logs.String(), "address=192.0.2.66") ||
		strings.Contains(w.Logs.String(), "guess-") {
		t.Errorf("%d lines of log", lines)
	}
	// A request without a token guesses nothing.
	for range 20 {
		w.Want(w.Call("GET", w.Admin+"/metrics", "", operator), http.StatusUnauthorized)
	}
	w.Want(w.Call("GET", w.Admin+"/metrics", "", right, operator), 200)
}

// The worker's listener has the same check.
func TestTheGuardRefusesAsTheAdminAPIDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Token = adminToken })
	plain := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/plain")
	})
	front := httptest.NewServer(w.Operators.Operators().Guard(plain))
	t.Cleanup(front.Close)
	call := func(fields ...[2]string) *http.Response {
		r, err := http.NewRequest("GET", front.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fields {
			r.Header.Set(f[0], f[1])
		}
		a, err := front.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		return a
	}
	if a := call(field("Authorization", "bearer "+adminToken)); a.StatusCode != 200 ||
		a.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("the right token: %s", a.Status)
	}
	a := call(field("Authorization", "Bearer nope"))
	if a.StatusCode != 401 || a.Header.Get("WWW-Authenticate") != `Bearer realm="forebay-admin"` ||
		a.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("a wrong one: %s %v", a.Status, a.Header)
	}
}

package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/web"
)

// Case C18. It costs what any request costs that can't be read.
func TestABadCostIsRefusedAndSpendsOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Cost = admission.Cost{From: "/pages", Default: 2, Max: 8}
		s.Pro = []limits.Limit{perClient("twenty", 20, time.Hour)}
	})
	left := func() string {
		return w.Get("/v1/rate-limits", key(keyA)).Header.Get("X-RateLimit-Remaining")
	}
	for n, payload := range []string{`{"pages":0}`, `{"pages":-5}`, `{"pages":1e18}`,
		`{"pages":"NaN"}`, `{"pages":"3"}`, `{"pages":1.5}`, `{"pages":9}`,
		`{"pages":1e0}`, `{"pages":1,"pages":8}`} {
		a := w.Submit(w.Plain, payload, key(keyA), idempotent("k"))
		p := w.Problem(a, http.StatusUnprocessableEntity, api.CodeInvalidFields)
		if len(p.Errors) != 1 || p.Errors[0].Pointer != "#/payload/pages" ||
			a.Header.Get("RateLimit") == "" {
			t.Errorf("%s: %s %v", payload, a.Text, a.Header)
		}
		if want := strconv.Itoa(19 - n); left() != want {
			t.Fatalf("%s left %s, want %s", payload, left(), want)
		}
	}
	w.Problem(w.Call("POST", w.URL+"/v1/jobs",
		`{"operation":"`+w.Plain+`","payload":{"pages":NaN}}`, key(keyA)), http.StatusBadRequest,
		api.CodeInvalidRequest)
	for _, c := range []struct{ payload, left string }{{`{"pages":7}`, "3"}, {`{}`, "1"}} {
		if w.Want(w.Submit(w.Plain, c.payload, key(keyA)), http.StatusAccepted); left() != c.left {
			t.Errorf("%s left %s, want %s", c.payload, left(), c.left)
		}
	}
	a := w.Submit(w.Plain, `{"pages":2}`, key(keyA))
	w.Problem(a, http.StatusTooManyRequests, api.CodeRateLimit)
	if left() != "1" || a.Header.Get("X-RateLimit-Remaining") != "1" {
		t.Errorf("a refusal left %s, and told of %s", left(), a.Header.Get("X-RateLimit-Remaining"))
	}
}

// Case C14: the answer to a request that can never fit names the limit, and costs nothing; a shadow
// limit refuses nothing.
func TestACostOverALimitsCapacityNamesTheLimit(t *testing.T) {
	t.Parallel()
	for name, limit := range everyAlgorithm(5) {
		if limit.Algorithm == limits.Concurrency {
			continue // a job is one job, whatever it costs
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *setup) {
				s.Cost = admission.Cost{From: "/pages", Default: 1, Max: 100}
				small := limit
				small.Name, small.Amount, small.Burst, small.Shadow = "trial", 1, 0, true
				s.Pro = []limits.Limit{limit, small}
			})
			a := w.Submit(w.Report, `{"pages":6}`, key(keyA))
			p := w.Problem(a, http.StatusUnprocessableEntity, api.CodeCostTooHigh)
			if p.Reason != limit.Name || a.Header.Get("Retry-After") != "" {
				t.Errorf("%s %v", a.Text, a.Header)
			}
			a = w.Want(w.Submit(w.Report, `{"pages":5}`, key(keyA)), http.StatusAccepted)
			if got := a.Header.Get("X-RateLimit-Remaining"); got != "0" {
				t.Errorf("%s remain, want 0", got)
			}
		})
	}
}

// Whatever the payload: what is read is what encoding/json reads there, whichever of its ways it is
// asked.
func FuzzCost(f *testing.F) {
	for _, payload := range []string{`{"a":{"n":3}}`, `{"a":[{"n":1}]}`, `{"a":{"n":1,"n":2}}`,
		`{"A":{"n":1}}`, `{"a":{"n":1e1}}`, `[{"n":3}]`, `{"a":{"n":" 3"}}`} {
		f.Add([]byte(payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		body := append(append([]byte(`{"payload":`), payload...), '}')
		fields, err := web.Members(body)
		if err != nil || len(fields) != 1 {
			return
		}
		got, wrong := admission.Cost{From: "/a/n", Default: 7, Max: 1000}.Of(fields[0].Value)
		if wrong != nil {
			return
		}
		if got < 1 || got > 1000 {
			t.Fatalf("%s costs %d", payload, got)
		}
		var generic struct{ Payload any }
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		if err := d.Decode(&generic); err != nil {
			t.Fatal(err)
		}
		want := int64(7)
		if outer, ok := generic.Payload.(map[string]any); ok {
			if inner, ok := outer["a"].(map[string]any); ok && inner["n"] != nil {
				want, _ = strconv.ParseInt(fmt.Sprint(inner["n"]), 10, 64)
			}
		}
		if got != want {
			t.Fatalf("%s costs %d, and says %d", payload, got, want)
		}
		var typed struct {
			Payload struct{ A struct{ N *int64 } }
		}
		if err := json.Unmarshal(body, &typed); err == nil && typed.Payload.A.N != nil &&
			*typed.Payload.A.N != got {
			t.Fatalf("%s costs %d, and says %d to a library that doesn't mind case", payload, got,
				*typed.Payload.A.N)
		}
	})
}

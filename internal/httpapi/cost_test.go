package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/web"
)

func TestACostIsReadFromThePayload(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, payload string
		want          int64 // 0: refused
	}{
		{"/pages", `{"pages":7}`, 7},
		{"/pages", `{"pages":100}`, 100},
		{"/pages", `{ "a" : [1,{"pages":9}] , "pages" : 7 }`, 7},
		{"/pages", `{"p\u0061ges":7}`, 7},
		{"/a/b/1", `{"a":{"b":[ 5 , 6 ]}}`, 6},
		{"/0", `[3]`, 3},
		{"/a~1b/c~0d/ü", `{"a/b":{"c~d":{"ü":4}}}`, 4},
		{"/", `{"":4}`, 4},
		// Nothing is there.
		{"/pages", `{}`, 2}, {"/pages", `[]`, 2}, {"/pages", `1`, 2}, {"/pages", `"pages"`, 2}, {"/pages", `null`, 2}, {"/pages", `{"pages":null}`, 2},
		{"/a/b", `{"a":1}`, 2}, {"/a/b", `{"b":9}`, 2}, {"/2", `[9,9]`, 2}, {"/-", `[9]`, 2}, {"/01", `[9,9]`, 2}, {"/0", `{"1":9}`, 2}, {"/x", `[9]`, 2},
		// C18.
		{"/pages", `{"pages":0}`, 0}, {"/pages", `{"pages":-5}`, 0}, {"/pages", `{"pages":1e18}`, 0}, {"/pages", `{"pages":"3"}`, 0},
		{"/pages", `{"pages":1.5}`, 0}, {"/pages", `{"pages":"NaN"}`, 0}, {"/pages", `{"pages":true}`, 0}, {"/pages", `{"pages":[3]}`, 0},
		{"/pages", `{"pages":{}}`, 0}, {"/pages", `{"pages":101}`, 0}, {"/pages", `{"pages":1e2}`, 0}, {"/pages", `{"pages":2.0}`, 0},
		{"/pages", `{"pages":-0}`, 0}, {"/pages", `{"pages":99999999999999999999999999}`, 0}, {"/pages", `{"pages":18446744073709551617}`, 0},
		// What two libraries would read in two ways.
		{"/pages", `{"pages":1,"pages":1000}`, 0}, {"/pages", `{"pages":1,"p\u0061ges":2}`, 0}, {"/pages", `{"pages":1,"pages":null}`, 0},
		{"/pages", `{"pages":1,"Pages":90}`, 0}, {"/pages", `{"PAGES":90}`, 0}, {"/s", `{"ſ":90}`, 0},
		{"/a/b", `{"a":{"b":1},"a":{"b":2}}`, 0}, {"/a/b", `{"a":{"b":1},"A":2}`, 0}, {"/0/a", `[{"a":1,"a":1}]`, 0},
		{"/pages", `{"x":1,"x":2,"pages":3}`, 3}, // beside the way
	} {
		got, wrong := Cost{From: c.from, Default: 2, Max: 100}.of([]byte(c.payload))
		if (wrong == nil) != (c.want != 0) || got != c.want {
			t.Errorf("%s of %s: %d, %v; want %d", c.from, c.payload, got, wrong, c.want)
		}
	}
}

func TestTheCostsPlaceInTheBodyIsTold(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{"/pages": "#/payload/pages", "/a/0": "#/payload/a/0", "/a~1b/c d/ü": "#/payload/a~1b/c%20d/%C3%BC", "/": "#/payload/"} {
		if got := costPointer(from); got != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
}

// Case C18. It costs what any request costs that can't be read.
func TestABadCostIsRefusedAndSpendsOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.cost = Cost{From: "/pages", Default: 2, Max: 8}
		s.pro = []limits.Limit{perClient("twenty", 20, time.Hour)}
	})
	left := func() string { return w.get("/v1/rate-limits", key(keyA)).Header.Get("X-RateLimit-Remaining") }
	for n, payload := range []string{`{"pages":0}`, `{"pages":-5}`, `{"pages":1e18}`, `{"pages":"NaN"}`, `{"pages":"3"}`, `{"pages":1.5}`, `{"pages":9}`,
		`{"pages":1e0}`, `{"pages":1,"pages":8}`} {
		a := w.submit(w.plain, payload, key(keyA), idempotent("k"))
		p := w.problem(a, http.StatusUnprocessableEntity, api.CodeInvalidFields)
		if len(p.Errors) != 1 || p.Errors[0].Pointer != "#/payload/pages" || a.Header.Get("RateLimit") == "" {
			t.Errorf("%s: %s %v", payload, a.body, a.Header)
		}
		if want := strconv.Itoa(19 - n); left() != want {
			t.Fatalf("%s left %s, want %s", payload, left(), want)
		}
	}
	w.problem(w.call("POST", w.url+"/v1/jobs", `{"operation":"`+w.plain+`","payload":{"pages":NaN}}`, key(keyA)), http.StatusBadRequest, api.CodeInvalidRequest)
	for _, c := range []struct{ payload, left string }{{`{"pages":7}`, "3"}, {`{}`, "1"}} {
		if w.want(w.submit(w.plain, c.payload, key(keyA)), http.StatusAccepted); left() != c.left {
			t.Errorf("%s left %s, want %s", c.payload, left(), c.left)
		}
	}
	a := w.submit(w.plain, `{"pages":2}`, key(keyA))
	w.problem(a, http.StatusTooManyRequests, api.CodeRateLimit)
	if left() != "1" || a.Header.Get("X-RateLimit-Remaining") != "1" {
		t.Errorf("a refusal left %s, and told of %s", left(), a.Header.Get("X-RateLimit-Remaining"))
	}
}

// Case C14: what can never fit is told by the limit's name, and costs nothing; a shadow limit refuses nobody.
func TestACostOverALimitsCapacityNamesTheLimit(t *testing.T) {
	t.Parallel()
	for name, limit := range everyAlgorithm(5) {
		if limit.Algorithm == limits.Concurrency {
			continue // a job is one job, whatever it costs
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *setup) {
				s.cost = Cost{From: "/pages", Default: 1, Max: 100}
				small := limit
				small.Name, small.Amount, small.Burst, small.Shadow = "trial", 1, 0, true
				s.pro = []limits.Limit{limit, small}
			})
			a := w.submit(w.report, `{"pages":6}`, key(keyA))
			p := w.problem(a, http.StatusUnprocessableEntity, api.CodeCostTooHigh)
			if p.Reason != limit.Name || a.Header.Get("Retry-After") != "" {
				t.Errorf("%s %v", a.body, a.Header)
			}
			a = w.want(w.submit(w.report, `{"pages":5}`, key(keyA)), http.StatusAccepted)
			if got := a.Header.Get("X-RateLimit-Remaining"); got != "0" {
				t.Errorf("%s remain, want 0", got)
			}
		})
	}
}

// Whatever the payload: what is read is what encoding/json reads there, whichever of its ways it is asked.
func FuzzCost(f *testing.F) {
	for _, payload := range []string{`{"a":{"n":3}}`, `{"a":[{"n":1}]}`, `{"a":{"n":1,"n":2}}`, `{"A":{"n":1}}`, `{"a":{"n":1e1}}`, `[{"n":3}]`, `{"a":{"n":" 3"}}`} {
		f.Add([]byte(payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		body := append(append([]byte(`{"payload":`), payload...), '}')
		fields, err := web.Members(body)
		if err != nil || len(fields) != 1 {
			return
		}
		got, wrong := Cost{From: "/a/n", Default: 7, Max: 1000}.of(fields[0].Value)
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
		if err := json.Unmarshal(body, &typed); err == nil && typed.Payload.A.N != nil && *typed.Payload.A.N != got {
			t.Fatalf("%s costs %d, and says %d to a library that doesn't mind case", payload, got, *typed.Payload.A.N)
		}
	})
}

// A payload of many names costs one pass over it.
func TestALongPayloadIsReadInOnePass(t *testing.T) { // not in parallel: it counts allocations
	var long strings.Builder
	long.WriteString(`{"pages":3`)
	for i := range 10_000 {
		fmt.Fprintf(&long, `,"name%d":[{"pages":%d}]`, i, i)
	}
	long.WriteString(`}`)
	payload := []byte(long.String())
	cost := Cost{From: "/pages", Default: 1, Max: math.MaxInt32}
	if got, wrong := cost.of(payload); got != 3 || wrong != nil {
		t.Fatalf("%d, %v", got, wrong)
	}
	if n := testing.AllocsPerRun(3, func() { cost.of(payload) }); n > 50 {
		t.Errorf("%v allocations for 10,000 names", n)
	}
}

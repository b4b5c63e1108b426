package admission

import (
	"fmt"
	"math"
	"strings"
	"testing"
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
		{"/pages", `{}`, 2}, {"/pages", `[]`, 2}, {"/pages", `1`, 2}, {"/pages", `"pages"`, 2},
		{"/pages", `null`, 2}, {"/pages", `{"pages":null}`, 2},
		{"/a/b", `{"a":1}`, 2}, {"/a/b", `{"b":9}`, 2}, {"/2", `[9,9]`, 2}, {"/-", `[9]`, 2},
		{"/01", `[9,9]`, 2}, {"/0", `{"1":9}`, 2}, {"/x", `[9]`, 2},
		// C18.
		{"/pages", `{"pages":0}`, 0}, {"/pages", `{"pages":-5}`, 0},
		{"/pages", `{"pages":1e18}`, 0}, {"/pages", `{"pages":"3"}`, 0},
		{"/pages", `{"pages":1.5}`, 0}, {"/pages", `{"pages":"NaN"}`, 0},
		{"/pages", `{"pages":true}`, 0}, {"/pages", `{"pages":[3]}`, 0},
		{"/pages", `{"pages":{}}`, 0}, {"/pages", `{"pages":101}`, 0},
		{"/pages", `{"pages":1e2}`, 0}, {"/pages", `{"pages":2.0}`, 0},
		{"/pages", `{"pages":-0}`, 0}, {"/pages", `{"pages":99999999999999999999999999}`, 0},
		{"/pages", `{"pages":18446744073709551617}`, 0},
		// What two libraries would read in two ways.
		{"/pages", `{"pages":1,"pages":1000}`, 0}, {"/pages", `{"pages":1,"p\u0061ges":2}`, 0},
		{"/pages", `{"pages":1,"pages":null}`, 0},
		{"/pages", `{"pages":1,"Pages":90}`, 0}, {"/pages", `{"PAGES":90}`, 0},
		{"/s", `{"ſ":90}`, 0},
		{"/a/b", `{"a":{"b":1},"a":{"b":2}}`, 0}, {"/a/b", `{"a":{"b":1},"A":2}`, 0},
		{"/0/a", `[{"a":1,"a":1}]`, 0},
		{"/pages", `{"x":1,"x":2,"pages":3}`, 3}, // beside the way
	} {
		got, wrong := Cost{From: c.from, Default: 2, Max: 100}.Of([]byte(c.payload))
		if (wrong == nil) != (c.want != 0) || got != c.want {
			t.Errorf("%s of %s: %d, %v; want %d", c.from, c.payload, got, wrong, c.want)
		}
	}
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
	if got, wrong := cost.Of(payload); got != 3 || wrong != nil {
		t.Fatalf("%d, %v", got, wrong)
	}
	if n := testing.AllocsPerRun(3, func() { cost.Of(payload) }); n > 50 {
		t.Errorf("%v allocations for 10,000 names", n)
	}
}

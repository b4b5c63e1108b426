package limits

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/redistest"
)

// A client whose limits are used up takes as much of Redis's memory as docs/limits.md says, within
// a tenth, because versions of Redis differ.
func TestAClientCostsRedisWhatTheManualSays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	rdb := redistest.Client(t)
	row := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| ([0-9,]+) \\| ([0-9,]+) \\| ([0-9,]+) \\|$")
	said := map[Algorithm][]string{}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		said[Algorithm(m[1])] = m[2:]
	}
	for _, a := range everyAlgorithm {
		for i, amount := range []int64{10, 100, 1000} {
			limit := Limit{Name: "per-minute", Owner: redistest.Name(t, ""), Algorithm: a,
				Per: PerClient, Amount: amount, Window: time.Hour}
			if a == Concurrency {
				limit.Window = 0
			}
			r := compile(t, limit)
			c := newClock()
			l := c.onRedis(rdb)
			requests, cost := amount, int64(1)
			if a != SlidingWindowLog && a != Concurrency { // in the others, only the digits grow
				requests, cost = 1, amount
			}
			for n := range requests {
				c.pass(time.Millisecond)
				q := request(cost, r)
				// As long as an id.
				q.Job = fmt.Sprintf("reports-0197c3a0-8a44-7c0e-b1a4-%012x", n)
				decide(t, l, q)
			}
			bytes, err := rdb.MemoryUsage(t.Context(), keyOf(t, r), 0).Result()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s of %d: %d bytes", a, amount, bytes)
			if len(said[a]) == 0 {
				t.Errorf("docs/limits.md doesn't say what a %s of %d costs: %d bytes",
					a, amount, bytes)
				continue
			}
			want, err := strconv.ParseInt(strings.ReplaceAll(said[a][i], ",", ""), 10, 64)
			if err != nil || bytes > want*11/10 || bytes < want*9/10 {
				t.Errorf("a %s of %d takes %d bytes, and docs/limits.md says %s",
					a, amount, bytes, said[a][i])
			}
		}
	}
}

package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A share or a grace that some limit can't take is told at its line, not when the first new client comes.
func TestRulesSeeLimitsAsTheyWillBeScaled(t *testing.T) {
	t.Parallel()
	text := []byte(`
identity: {anonymous: free}
region: {name: eu, share: 0.29}
tiers:
  free:
    grace: {period: 7d, factor: 2.5}
    limits: [{name: tiers, algorithm: token-bucket, limit: 100, window: 1m, burst: 10}]
limits: [{name: everyones, algorithm: sliding-window-log, limit: 9, window: 1m}]
backends: {reports: {url: "http://127.0.0.1:9000", drain: {rate: 5/s}}}
operations: {report: {backend: reports, path: /render, limits: [{name: operations, algorithm: concurrency, limit: 1}]}}
`)
	var seen []string
	if _, _, err := read("f", text, env, []Rules{{Limit: func(l Limit) error {
		seen = append(seen, fmt.Sprintf("%s %d/%d", l.Name, l.Limit, l.Burst))
		return nil
	}}}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(seen)
	want := []string{"everyones 2/0", "everyones 22/0", "everyones 5/0", "everyones 9/0", "operations 1/0", "operations 1/0", "operations 2/0", "operations 2/0",
		"reads 17400/2900", "reads 60000/10000", "tiers 100/10", "tiers 250/25", "tiers 29/2", "tiers 72/5"}
	if !slices.Equal(seen, want) {
		t.Errorf("the rules saw %v, want %v", seen, want)
	}
	for _, refused := range []struct {
		limit int64
		says  string
	}{
		{29, "f:7: tiers.free.limits[0]: can't be kept as the region's share: no"},
		{250, "f:7: tiers.free.limits[0]: can't be kept times a tier's grace (2.5): no"},
		{72, "f:7: tiers.free.limits[0]: can't be kept as the region's share times a tier's grace (2.5): no"},
	} {
		_, _, err := read("f", text, env, []Rules{{Limit: func(l Limit) error {
			if l.Limit == refused.limit {
				return errors.New("no")
			}
			return nil
		}}})
		if err == nil || err.Error() != refused.says {
			t.Errorf("with %d refused: %v, want %s", refused.limit, err, refused.says)
		}
	}
}

// One script call decides over all limits of a request, and its answer has 64 places.
func TestMoreLimitsThanOneRequestCanHaveAreRefused(t *testing.T) {
	t.Parallel()
	limits := func(of string, n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("{name: %s-%d, algorithm: fixed-window, limit: 1, window: day}", of, i))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	text := func(own int) string {
		return `
identity:
  clients:
    - {name: acme, tier: free, key_sha256: [9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08], limits: ` + limits("own", own) + `}
tiers: {free: {limits: ` + limits("tier", 20) + `}}
limits: ` + limits("all", 20) + `
backends: {reports: {url: "http://127.0.0.1:9000", drain: {rate: 5/s}}}
operations: {report: {backend: reports, path: /render, limits: ` + limits("operation", 20) + `}}
`
	}
	mustLoad(t, text(4))
	_, _, err := load(text(5))
	want := "forebay.yaml:4: identity.clients[0].limits[4]: is one too many: 65 limits may apply to a request of tier free for operation report; at most 64 can"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Every kind of request is looked at: 90,000 of them take a moment (seconds with the race detector), not minutes.
func TestALargeConfigIsCheckedSoon(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("identity: {anonymous: t0}\nbackends: {b: {url: \"http://127.0.0.1:9000\", drain: {rate: 5/s}}}\ntiers:\n")
	for i := range 300 {
		fmt.Fprintf(&text, "  t%d: {limits: [{name: tier, algorithm: fixed-window, limit: 9, window: day}]}\n", i)
	}
	text.WriteString("operations:\n")
	for i := range 300 {
		fmt.Fprintf(&text, "  o%d: {backend: b, path: /, limits: [{name: own, algorithm: fixed-window, limit: 9, window: day}]}\n", i)
	}
	begun := time.Now()
	mustLoad(t, text.String())
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

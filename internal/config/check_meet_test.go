package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A share or a grace that a limit can't have is reported at its line, not when the first new client
// comes.
func TestALimitIsCheckedAsItWillBeScaled(t *testing.T) {
	t.Parallel()
	const text = `
identity: {anonymous: free}
region: {name: eu, share: 0.29}
tiers:
  free: {grace: {period: 7d, factor: 2.5}%s}
  pro: {}
limits: [%s]
backends: {reports: {url: "http://127.0.0.1:9000", drain: {rate: 5/s}}}
operations: {report: {backend: reports, path: /render%s}}
`
	limit := func(amount, burst int) string {
		return fmt.Sprintf("{name: l, algorithm: token-bucket, limit: %d, window: 1m, burst: %d}",
			amount, burst)
	}
	// 1 per minute and a burst of 10^8: buckets count in whole numbers, so the amounts' common
	// measure matters.
	const kept = ": limit l: burst %d: %d per 1m0s can be counted exactly up to 150119987; use a " +
		"smaller burst, or a rounder amount and window"
	for _, c := range []struct {
		amount, burst int
		want          string
	}{
		{10100, 1_000_000_000, " as the region's share" + fmt.Sprintf(kept, 290_000_000, 2929)},
		{3003, 400_000_000, " times a tier's grace (2.5)" + fmt.Sprintf(kept, 1_000_000_000, 7507)},
		{6300, 400_000_000, " as the region's share times a tier's grace (2.5)" +
			fmt.Sprintf(kept, 289_999_997, 4567)},
		{6000, 400_000_000, ""},
	} {
		l := limit(c.amount, c.burst)
		for at, text := range map[string]string{
			"5: tiers.free.limits[0]":        fmt.Sprintf(text, ", limits: ["+l+"]", "", ""),
			"7: limits[0]":                   fmt.Sprintf(text, "", l, ""),
			"9: operations.report.limits[0]": fmt.Sprintf(text, "", "", ", limits: ["+l+"]"),
		} {
			_, _, err := load(text)
			if c.want == "" {
				if err != nil {
					t.Errorf("%d: %v", c.amount, err)
				}
			} else if want := "forebay.yaml:" + at + ": can't be kept" + c.want; err == nil ||
				err.Error() != want {
				t.Errorf("%d: %v, want %s", c.amount, err, want)
			}
		}
		// No grace is for a tier without one, nor for what clients share.
		if strings.Contains(c.want, "grace") {
			for _, text := range []string{
				strings.Replace(fmt.Sprintf(text, "", "", ", tiers: [pro], limits: ["+l+"]"),
					"anonymous: free", "anonymous: pro", 1),
				fmt.Sprintf(text, "", strings.Replace(l, "name: l", "name: l, per: tier", 1), ""),
			} {
				if _, _, err := load(text); err != nil {
					t.Errorf("without grace: %v", err)
				}
			}
		}
	}
}

// One script call decides over all limits of a request, and its answer has 64 places.
func TestMoreLimitsThanOneRequestCanHaveAreRefused(t *testing.T) {
	t.Parallel()
	limits := func(of string, n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("{name: %s-%d, algorithm: fixed-window, limit: 1, "+
				"window: day}", of, i))
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
	want := "forebay.yaml:4: identity.clients[0].limits[4]: is one too many: 65 limits may apply " +
		"to a request of tier free for operation report; at most 64 can"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Every kind of request is checked: 90,000 of them take a moment (seconds with the race detector),
// not minutes.
func TestALargeConfigIsCheckedSoon(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("identity: {anonymous: t0}\nbackends: {b: {url: \"http://127.0.0.1:9000\", " +
		"drain: {rate: 5/s}}}\ntiers:\n")
	for i := range 300 {
		fmt.Fprintf(&text, "  t%d: {limits: [{name: tier, algorithm: fixed-window, limit: 9, "+
			"window: day}]}\n", i)
	}
	text.WriteString("operations:\n")
	for i := range 300 {
		fmt.Fprintf(&text, "  o%d: {backend: b, path: /, limits: [{name: own, algorithm: "+
			"fixed-window, limit: 9, window: day}]}\n", i)
	}
	begun := time.Now()
	mustLoad(t, text.String())
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

package wire_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/units"
)

const drained = `
identity: {anonymous: free}
tiers: {free: {}}
backends:
  a: {url: "http://127.0.0.1:9", drain: {rate: %s, burst: 2}}
  b: {url: "http://127.0.0.1:9", drain: {rate: %s}, feedback: off, keep_failed: 2h}
operations: {o: {backend: a, path: /}}
`

// A start logs each override that differs from the file, with both values. The file may have
// changed since the override was set.
func TestAStartLogsWhereTheFileIsOverridden(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	linesOf := func(rate string) map[string]*leaky.Line {
		path := filepath.Join(t.TempDir(), "forebay.yaml")
		if err := os.WriteFile(path, fmt.Appendf(nil, drained, rate, rate), 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, err := wire.Load(path, noEnv)
		if err != nil {
			t.Fatal(err)
		}
		lines := wire.Lines(c, rdb)
		return lines
	}
	logged := func(lines map[string]*leaky.Line) string {
		var out bytes.Buffer
		wire.TellOverrides(t.Context(), lines, slog.New(slog.NewTextHandler(&out, nil)))
		return out.String()
	}
	lines := linesOf("5/s")
	a, b := lines["a"].Settings(), lines["b"].Settings()
	if !a.Feedback || b.Feedback || a.KeepFailed != 7*24*time.Hour || b.KeepFailed != 2*time.Hour {
		t.Errorf("settings %+v and %+v", a, b)
	}
	// max_age, and keep_result of a backend that has an operation.
	if a.KeepLongest != 48*time.Hour || b.KeepLongest != 24*time.Hour {
		t.Errorf("jobs are kept for %v and %v at the longest", a.KeepLongest, b.KeepLongest)
	}
	if out := logged(lines); out != "" {
		t.Errorf("nothing is overridden: %s", out)
	}
	rate, err := leaky.ParseRate("2/s")
	if err != nil {
		t.Fatal(err)
	}
	burst, on, paused := 2, units.Switch(true), true
	for name, o := range map[string]leaky.Override{"a": {Rate: &rate, Burst: &burst}, "b": {Feedback: &on, Paused: &paused}} {
		if err := lines[name].Tune(t.Context(), o, "maria"); err != nil {
			t.Fatal(err)
		}
	}
	out := logged(linesOf("6/s"))
	if strings.Count(out, "level=INFO") != 2 || strings.Count(out, "by=maria") != 2 ||
		!strings.Contains(out, `backend=a by=maria`) ||
		!strings.Contains(out, ` rate="config 6/s, in force 2/s"`+"\n") ||
		!strings.Contains(out, ` paused="config false, in force true"`+
			` feedback="config off, in force on"`+"\n") {
		t.Errorf("logged:\n%s", out)
	}
	if err := lines["b"].Retune(t.Context(), leaky.Tuning{Set: leaky.Override{Paused: &paused},
		For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	const until = ` paused="config false, in force true until 20`
	if out := logged(lines); !strings.Contains(out, until) {
		t.Errorf("an override that ends: %s", out)
	}
	if out := logged(linesOf("2/s")); strings.Contains(out, "backend=a") {
		t.Errorf("the file says the same: %s", out)
	}
}

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
)

// minimal is the smallest config, with a drain rate and a limit.
const minimal = `
identity: {anonymous: free}
tiers: {free: {limits: [%s]}}
backends: {b: {url: "http://127.0.0.1:9", drain: {rate: "%s"}}}
operations: {o: {backend: b, path: /}}
`

func load(t *testing.T, limit, rate string) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "forebay.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, minimal, limit, rate), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := wire.Load(path, func(string) (string, bool) { return "", false })
	return err
}

// The config may know nothing of the drain, so it checks rates by itself: whatever it lets through, the drain must take.
func TestARateThatTheConfigTakesIsOneForTheDrain(t *testing.T) {
	t.Parallel()
	for _, rate := range []string{"5/s", "0.2/s", "6/m", "1/h", "100/d", "unlimited", "100000/s", "100001/s", "0.04/d", "0.033/d", "1/d",
		"0/s", "-1/s", "1e3/s", "5", "5/w", "", "NaN/s", "Inf/s", "5 /s", "1/s ", "0x5/s", "1_000/s", "999999999999999999999/s", ".5/s"} {
		inConfig := load(t, "", rate)
		_, inDrain := leaky.ParseRate(rate)
		if inConfig == nil && inDrain != nil {
			t.Errorf("rate %q: the config takes it, and the drain says %v", rate, inDrain)
		}
		if inConfig != nil && inDrain == nil && rate != ".5/s" && rate != "" {
			t.Errorf("rate %q: the drain would take it, and the config says %v", rate, inConfig)
		}
	}
}

// C14, C16: what no limit could count is told at its line before anything starts.
func TestALimitThatCannotBeCountedIsToldAtItsLine(t *testing.T) {
	t.Parallel()
	err := load(t, `{name: odd, algorithm: token-bucket, limit: 1, window: 366d, burst: 1000000000}`, "5/s")
	if err == nil || !strings.Contains(err.Error(), "forebay.yaml:3") || !strings.Contains(err.Error(), "burst") {
		t.Fatalf("error %v, want one that names line 3 and the burst", err)
	}
}

func TestTheLogIsJSONWithUnitsWhereNobodyReadsItLive(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := wire.Logger(&out, "info")
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("hidden")
	log.Info("shown", slog.Duration("took", 1500*time.Millisecond))
	if text := out.String(); !strings.Contains(text, `"took":"1.5s"`) || strings.Contains(text, "hidden") {
		t.Fatalf("log %s", text)
	}
	if _, err := wire.Logger(&out, "loud"); err == nil || !strings.Contains(err.Error(), "warn") {
		t.Fatalf("level loud: %v, want an error that lists the levels", err)
	}
}

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

// C14, C16: what no limit could count is told at its line before anything starts.
func TestALimitThatCannotBeCountedIsToldAtItsLine(t *testing.T) {
	t.Parallel()
	err := load(t,
		`{name: odd, algorithm: token-bucket, limit: 1, window: 366d, burst: 1000000000}`, "5/s")
	if err == nil || !strings.Contains(err.Error(), "forebay.yaml:3") ||
		!strings.Contains(err.Error(), "burst") {
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
	if text := out.String(); !strings.Contains(text, `"took":"1.5s"`) ||
		strings.Contains(text, "hidden") {
		t.Fatalf("log %s", text)
	}
	if _, err := wire.Logger(&out, "loud"); err == nil || !strings.Contains(err.Error(), "warn") {
		t.Fatalf("level loud: %v, want an error that lists the levels", err)
	}
}

// Package chaos runs the real binaries while everything around them breaks, in an order drawn from
// a seed. Then it checks their promises: each job with a 202 ended once, the rate was kept, and
// nothing was left behind. CONTRIBUTING.md explains how to run it and how to read a failure.
package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// binaries is the directory of api and worker, built by TestMain.
var binaries string

func TestMain(m *testing.M) {
	flag.Parse()
	// it writes each failed dial to stderr; Redis is killed on purpose here
	redis.SetLogger(silent{})
	os.Exit(run(m))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "forebay-chaos")
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries = dir
	build := exec.Command("go", "build", "-race", "-o", dir+string(filepath.Separator),
		"github.com/forebay/forebay/cmd/api", "github.com/forebay/forebay/cmd/worker")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: building the binaries: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if lastLine != "" {
		fmt.Println(lastLine)
	}
	return code
}

// lastLine is the last line of a run that broke a promise; "" if none did.
var lastLine string

// Limits of one run, in seconds: usual is as much as a test run allows, longest is a day.
const (
	shortest = 5
	usual    = 15
	longest  = 24 * 3600
)

// chosen parses CHAOS_SECONDS and CHAOS_SEED. Without a seed, each run draws its own.
func chosen(t *testing.T) (span time.Duration, seed uint64) {
	t.Helper()
	seconds, seed := usual, rand.Uint64N(1_000_000)
	var err error
	if text := os.Getenv("CHAOS_SECONDS"); text != "" {
		if seconds, err = strconv.Atoi(text); err != nil || seconds < shortest ||
			seconds > longest {
			t.Fatalf("CHAOS_SECONDS=%s: want %d to %d", text, shortest, longest)
		}
	}
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("CHAOS_SEED=%s: want a whole number", text)
		}
	}
	return time.Duration(seconds) * time.Second, seed
}

// Whatever dies, freezes, hangs or misbehaves, and at any time: each job with a 202 ends exactly
// once, the backend gets no more than its rate, a call is repeated only if its worker was struck
// during it, and nothing is left behind. (C27, C65, C66, C76)
func TestEveryJobEndsOnceWhateverBreaks(t *testing.T) {
	span, seed := chosen(t)
	t.Logf("CHAOS_SEED=%d CHAOS_SECONDS=%d", seed, int(span.Seconds()))
	events := schedule(seed, span)
	for _, e := range events {
		t.Logf("plan %s", e)
	}
	watched := &witness{T: t}
	t.Cleanup(func() { // after the processes have ended and were inspected
		if t.Failed() {
			lastLine = watched.broken(seed, int(span.Seconds()))
		}
	})
	w := newWorld(watched, seed)
	w.play(events, span)
	w.recover()
	w.check()
}

// The same seed gives the same schedule. Otherwise no failure could be repeated.
func TestASeedIsASchedule(t *testing.T) {
	t.Parallel()
	text := func(seed uint64) string { return fmt.Sprint(schedule(seed, time.Minute)) }
	if first, again := text(7), text(7); first != again || first == text(8) {
		t.Error("schedules of one seed differ, or those of two don't")
	}
	kinds := map[string]bool{}
	for _, e := range schedule(7, 10*time.Minute) {
		kinds[e.kind] = true
	}
	for _, want := range []string{
		"kill", "freeze", "stop", "cut", "hang", "refuse", "forget scripts", "rate", "burst",
		"concurrency", "pause", "feedback off", "reset", "slow", "500", "429", "429 wait", "503",
		"503 wait", "silence", "break", "torn", "well",
	} {
		if !kinds[want] {
			t.Errorf("ten minutes without %q", want)
		}
	}
}

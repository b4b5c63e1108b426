// Package redistest gives tests a real Redis and ways to break it. Tests only.
//
// A test binary that calls Main from TestMain has one private redis-server, on a unix socket in a
// directory of its own. Its tests run in parallel on it. Each takes its own Client, and from Name
// the names that keep its keys apart from all others. No test flushes it. A test that kills, stops
// or reconfigures Redis starts a server of its own (Start).
//
// All processes are killed by pid when their test ends. On Linux, the kernel kills them if the test
// binary itself is killed.
package redistest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// shared is the binary's server; set by Main before any test runs.
var shared *process

// Main runs the tests of a binary with a private redis-server for Client, kills it when they end,
// and exits. If redis-server is not installed, it prints how to get it and exits with status 1.
func Main(m *testing.M) {
	flag.Parse()
	redis.SetLogger(silent{}) // it writes each failed dial to stderr; callers get the error anyway
	os.Exit(run(m))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func run(m *testing.M) int {
	dir, err := socketDir()
	if err != nil {
		fmt.Fprintln(os.Stderr, "redistest:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	shared, err = start(dir, socket, "--port", "0", "--unixsocket", socket, "--save", "",
		"--appendonly", "no")
	if err != nil {
		fmt.Fprintln(os.Stderr, "redistest:", err)
		return 1
	}
	defer shared.kill()
	return m.Run()
}

// maxSocketPath is the longest path that the address of a unix socket can hold on every system (104
// on the BSDs and macOS).
const maxSocketPath = 103

// socketDir makes a directory whose path is short enough for a socket, even under a long TMPDIR.
func socketDir() (string, error) {
	dir, err := os.MkdirTemp("", "fb")
	if err != nil || len(dir)+len("/s") <= maxSocketPath {
		return dir, err
	}
	if err := os.Remove(dir); err != nil {
		return "", err
	}
	return os.MkdirTemp("/tmp", "fb")
}

// Client returns a client of the binary's own server, closed when t ends. It never retries a
// command.
func Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	if shared == nil {
		t.Fatal("redistest: the package needs func TestMain(m *testing.M) { redistest.Main(m) }")
	}
	return newClient(t, shared.addr)
}

// Miniredis returns a client of an embedded Redis of t's own. Its TTLs never run down.
func Miniredis(t testing.TB) redis.UniversalClient {
	t.Helper()
	return newClient(t, miniredis.RunT(t).Addr())
}

func newClient(t testing.TB, addr string) *redis.Client {
	rdb := redis.NewClient(options(addr))
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Errorf("redistest: closing the client of %s: %v", addr, err)
		}
	})
	return rdb
}

// options returns those of the service's own clients, except for the timeouts: a test under the
// race detector on a busy machine must not fail because an answer took half a second.
func options(addr string) *redis.Options {
	return &redis.Options{
		Addr:                     addr, // a path is a unix socket
		MaxRetries:               -1,   // a script whose reply was lost must not run twice
		DialerRetries:            1,
		DialTimeout:              5 * time.Second,
		ReadTimeout:              5 * time.Second,
		WriteTimeout:             5 * time.Second,
		ContextTimeoutEnabled:    true,
		PoolSize:                 32,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

var (
	runID   = randomID()
	counter atomic.Int64
)

func randomID() string {
	var b [4]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// maxName is the longest name that Name returns.
const maxName = 40

// Name returns a name that no other call in any test binary gets, fit for a backend, a limit or a
// client: [a-z][a-z0-9-]*, at most 40 characters. It begins with as much of prefix as fits that
// form.
func Name(t testing.TB, prefix string) string {
	t.Helper()
	tail := "-" + runID + "-" + strconv.FormatInt(counter.Add(1), 36)
	head := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, prefix)
	head = strings.Trim(head, "-")
	if head == "" || head[0] < 'a' {
		head = "t" + head
	}
	return head[:min(len(head), maxName-len(tail))] + tail
}

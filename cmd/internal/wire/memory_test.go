package wire

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/forebay/forebay/internal/config"
)

// The limit is nine tenths of the cgroup's, or of the machine's memory where that has none; the
// environment's word goes before both. The test isn't parallel: the limit is the whole process's.
func TestMemoryIsLimitedByTheCgroup(t *testing.T) {
	limitBefore, gcBefore := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	t.Cleanup(func() {
		debug.SetMemoryLimit(limitBefore)
		debug.SetGCPercent(gcBefore)
	})
	none := func() (uint64, error) { return 0, memlimit.ErrNoLimit }
	absent := func() (uint64, error) { return 0, errors.New("no cgroups here") }
	machine, err := memlimit.FromSystem()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what, gogc, memory string
		cgroup             memlimit.Provider
		limit              int64
		percent            int
		log                string
	}{
		{"a cgroup's limit", "", "", memlimit.Limit(1000 << 20), 900 << 20, 400,
			"limit_mib=900 from=cgroup gogc=400"},
		{"a cgroup without one", "", "", none, int64(float64(machine) * 0.9), 400,
			"from=machine gogc=400"},
		{"no cgroup", "", "", absent, int64(float64(machine) * 0.9), 400, "from=machine"},
		{"GOGC is set", "50", "", memlimit.Limit(1000 << 20), 900 << 20, 100,
			"from=cgroup gogc=50"},
		{"GOMEMLIMIT is set", "", "2GiB", memlimit.Limit(1000 << 20), 2 << 30, 400,
			"limit_mib=2048 from=environment"},
	} {
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(2 << 30) // as the runtime does by GOMEMLIMIT
		t.Run(test.what, func(t *testing.T) {
			if test.memory != "" {
				t.Setenv("GOMEMLIMIT", test.memory)
			}
			var log bytes.Buffer
			env := func(name string) (string, bool) {
				return test.gogc, name == "GOGC" && test.gogc != ""
			}
			got := tuneMemory(env, test.cgroup, slog.New(slog.NewTextHandler(&log, nil)))
			if set := debug.SetMemoryLimit(-1); got != test.limit || set != test.limit {
				t.Errorf("limit %d, and %d in force; want %d", got, set, test.limit)
			}
			if percent := debug.SetGCPercent(100); percent != test.percent {
				t.Errorf("GOGC is %d, want %d", percent, test.percent)
			}
			if text := log.String(); !strings.Contains(text, test.log) ||
				strings.Count(text, "\n") != 1 {
				t.Errorf("log: %s", text)
			}
		})
	}
}

func TestAMemoryLimitUnderWhatTheConfigPermitsIsWarnedOf(t *testing.T) {
	t.Parallel()
	c := &config.Config{Deployment: config.Deployment{HTTP: config.HTTP{MaxBuffered: 256 << 20}}}
	for limit, warned := range map[int64]bool{math.MaxInt64: false, 576 << 20: false,
		575 << 20: true} {
		var log bytes.Buffer
		WarnMemory(c, limit, slog.New(slog.NewTextHandler(&log, nil)))
		if strings.Contains(log.String(), "http.max_buffered") != warned {
			t.Errorf("at %d: %s", limit, log.String())
		}
	}
}

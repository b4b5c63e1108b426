package wire

import (
	"log/slog"
	"runtime/debug"
	"strconv"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/config"
)

const (
	// memoryPart is the part of the memory that Go may use. The rest is for other memory that the
	// kernel counts as the process's: above all, the buffers of its sockets.
	memoryPart = 0.9
	// gcPercent lets the heap grow to five times the live memory before it is collected. A process
	// has little live memory (some MiB) and makes much garbage: with Go's default, 100, a busy
	// front would collect dozens of times a second. Near the memory limit Go collects more often,
	// whatever this is.
	gcPercent = 400
)

// TuneMemory sets Go's memory limit (GOMEMLIMIT) by the cgroup of the process, or by the machine's
// memory if the cgroup has no limit, and GOGC with it: see memoryPart and gcPercent. A value from
// the environment takes precedence. It logs the values in force, and returns the limit in bytes;
// math.MaxInt64 if none is known.
func TuneMemory(env func(string) (string, bool), log *slog.Logger) int64 {
	return tuneMemory(env, memlimit.FromCgroup, log)
}

func tuneMemory(env func(string) (string, bool), cgroup memlimit.Provider, log *slog.Logger) int64 {
	from := "environment"
	limit, err := memlimit.Set(memlimit.WithRatio(memoryPart),
		memlimit.WithProvider(func() (uint64, error) {
			from = "cgroup"
			limit, err := cgroup()
			if err != nil {
				from = "machine"
				limit, err = memlimit.FromSystem()
			}
			return limit, err
		}))
	gogc, set := env("GOGC")
	if !set {
		gogc = strconv.Itoa(gcPercent)
		debug.SetGCPercent(gcPercent)
	}
	if err != nil {
		log.Warn("memory: no limit is known", "gogc", gogc, "error", err)
	} else {
		log.Info("memory", "limit_mib", limit>>20, "from", from, "gogc", gogc)
	}
	return limit
}

// WarnMemory logs a warning if the bodies and answers that c permits in memory don't leave enough
// of the limit for the front's stored answers.
func WarnMemory(c *config.Config, limit int64, log *slog.Logger) {
	if need := 2*int64(c.HTTP.MaxBuffered) + cache.DefaultMemory; need > limit {
		log.Warn("http.max_buffered permits more than the memory limit: lower it, "+
			"or raise the limit", "max_buffered_mib", c.HTTP.MaxBuffered>>20,
			"limit_mib", limit>>20, "least_mib", need>>20)
	}
}

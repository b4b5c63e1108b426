package wire

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/store"
	"github.com/forebay/forebay/internal/strictyaml"
)

// Lines returns the line of each backend, by name.
func Lines(c *config.Config, rdb redis.UniversalClient) map[string]*leaky.Line {
	lines := make(map[string]*leaky.Line, len(c.Backends))
	for name, b := range c.Backends {
		lines[name] = leaky.New(rdb, leaky.Settings{
			Backend:     name,
			Drain:       b.Drain,
			Room:        b.Line,
			Attempts:    b.Retry.Attempts,
			Feedback:    bool(b.Feedback),
			KeepFailed:  b.KeepFailed,
			KeepLongest: b.MaxAge + keepLongest(c, name),
		})
	}
	return lines
}

// keepLongest is the longest time that an ended job of the backend may be kept.
func keepLongest(c *config.Config, backend string) (longest time.Duration) {
	for _, o := range c.Operations {
		if o.Backend == backend {
			longest = max(longest, o.KeepResult)
		}
	}
	return longest
}

// TellOverrides logs one line for each backend whose settings in force, set live, differ from its
// config's: until the override is removed, those of the file have no effect. It waits for Redis for
// a few seconds at most.
func TellOverrides(ctx context.Context, lines map[string]*leaky.Line, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		st, err := lines[name].Status(ctx)
		if err != nil {
			log.Warn("not known whether a backend's settings are overridden", "backend", name,
				"error", err)
			continue
		}
		if differing := overrides(st); len(differing) > 0 {
			log.LogAttrs(ctx, slog.LevelInfo, "settings of the config are overridden",
				append([]slog.Attr{slog.String("backend", name),
					slog.String("by", st.By), slog.Time("at", st.At)}, differing...)...)
		}
	}
}

// overrides has, for each setting that is overridden with another value, the config's value and the
// one in force.
func overrides(st leaky.Status) (differing []slog.Attr) {
	c := st.Configured
	tell := func(setting, configured, inForce string) {
		if configured != inForce {
			differing = append(differing,
				slog.String(setting, "config "+configured+", in force "+inForce))
		}
	}
	tell("rate", c.Rate.String(), st.Rate.String())
	tell("burst", strconv.Itoa(c.Burst), strconv.Itoa(st.Burst))
	tell("concurrency", strconv.Itoa(c.Concurrency), strconv.Itoa(st.Concurrency))
	tell("capacity", strconv.Itoa(c.Capacity), strconv.Itoa(st.Capacity))
	tell("paused", "false", strconv.FormatBool(st.Paused))
	tell("feedback", strictyaml.Switch(c.Feedback).String(),
		strictyaml.Switch(st.Feedback).String())
	return differing
}

// Listen returns the process's listener for all lines of c.
func Listen(c *config.Config, rdb redis.UniversalClient,
	options ...leaky.ListenOption) *leaky.Listener {
	return leaky.Listen(rdb, slices.Sorted(maps.Keys(c.Backends)), options...)
}

// Warnings are sentences about problems of the store, and of the lines' data in it, that an
// operator should mend.
func Warnings(s *store.Store, lines map[string]*leaky.Line) []string {
	all := s.Warnings()
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		if text := lines[name].Misplaced(); text != "" {
			all = append(all, text+".")
		}
	}
	return all
}

// health is the store, with the lines' warnings about it.
type health struct {
	*store.Store
	lines map[string]*leaky.Line
}

func (h health) Warnings() []string { return Warnings(h.Store, h.lines) }

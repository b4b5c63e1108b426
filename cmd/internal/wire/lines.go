package wire

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/store"
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
			Feedback:    b.Feedback,
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

// TellOverrides writes one line for each backend whose settings in force, set live, are others than
// its config's: what the file says is without effect there until the override is taken back. It
// waits a few seconds for Redis at most.
func TellOverrides(ctx context.Context, lines map[string]*leaky.Line, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		st, err := lines[name].Status(ctx)
		if err != nil {
			log.Warn("not known whether a backend's settings are "+
				"overridden", "backend", name, "error", err)
			continue
		}
		if differing := overrides(st); len(differing) > 0 {
			log.LogAttrs(ctx, slog.LevelInfo, "settings of the config are "+
				"overridden", append([]slog.Attr{slog.String("backend", name),
				slog.String("by", st.By), slog.Time("at", st.At)}, differing...)...)
		}
	}
}

// overrides tell of each setting that is overridden with another value: the config's, the one in
// force, and until when it is.
func overrides(st leaky.Status) (differing []slog.Attr) {
	for _, name := range st.Override.Names() {
		configured, inForce := st.Configured.Text(name), st.Text(name)
		if configured == inForce {
			continue
		}
		text := "config " + configured + ", in force " + inForce
		if end := st.Notes[name].Ends; !end.IsZero() {
			text += " until " + end.UTC().Format(time.RFC3339)
		}
		differing = append(differing, slog.String(name, text))
	}
	return differing
}

// Listen returns the process's ear for all lines of c.
func Listen(c *config.Config, rdb redis.UniversalClient,
	options ...leaky.ListenOption) *leaky.Listener {
	return leaky.Listen(rdb, slices.Sorted(maps.Keys(c.Backends)), options...)
}

// Warnings are sentences on what an operator should mend of the store and of what the lines keep
// there.
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

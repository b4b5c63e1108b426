package wire

import (
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"forebay/internal/config"
	"forebay/internal/leaky"
)

// Lines returns the line of each backend, by name.
func Lines(c *config.Config, rdb redis.UniversalClient) (map[string]*leaky.Line, error) {
	lines := make(map[string]*leaky.Line, len(c.Backends))
	for name, b := range c.Backends {
		rate, err := leaky.ParseRate(b.Drain.Rate)
		if err != nil {
			return nil, fmt.Errorf("backends.%s.drain.rate: %w", name, err)
		}
		lines[name] = leaky.New(rdb, leaky.Settings{
			Backend:     name,
			Rate:        rate,
			Burst:       b.Drain.Burst,
			Concurrency: b.Drain.Concurrency,
			Capacity:    b.Line.Capacity,
			MaxWait:     b.Line.MaxWait,
			ClientShare: b.Line.ClientShare,
			Attempts:    b.Retry.Attempts,
		})
	}
	return lines, nil
}

// Listen returns the process's ear for all lines of c.
func Listen(c *config.Config, rdb redis.UniversalClient) *leaky.Listener {
	return leaky.Listen(rdb, slices.Sorted(maps.Keys(c.Backends)))
}

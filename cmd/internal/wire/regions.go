package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/region"
	"github.com/forebay/forebay/internal/store"
)

// fates says whether the jobs that hold permits have ended, by the lines that they are in.
func fates(lines map[string]*leaky.Line) limits.Fates {
	return func(ctx context.Context, id string) (limits.Fate, error) {
		backend, _ := jobs.ParseID(id)
		line := lines[backend]
		if line == nil {
			return limits.Fate{}, nil // its backend left the config: the job won't run or end
		}
		look, err := line.Look(ctx, id)
		switch {
		case errors.Is(err, leaky.ErrUnknownJob):
			return limits.Fate{}, nil
		case err != nil:
			return limits.Fate{}, err
		}
		ended := look.Standing.State.Final()
		f := limits.Fate{Known: true, Ended: ended, Wait: look.Wait + look.CallTime}
		if look.Standing.State == jobs.Running {
			f.Wait = max(0, look.CallTime-look.Now.Sub(look.Standing.StartedAt))
		}
		return f, nil
	}
}

// together makes the limiter exchange counts with other regions, if the config says so. run is the
// exchange; it ends with its context.
func together(c *config.Config, limiter *limits.Limiter, own *store.Store,
	metrics prometheus.Registerer, log *slog.Logger) (run func(context.Context), err error) {
	sync := c.Region.Sync
	if sync.Redis == "" {
		return func(context.Context) {}, nil
	}
	log = log.With("region", c.Region.Name)
	at := redisAt(sync.Redis, sync.RedisLogin)
	centre, err := store.Open(context.Background(), at, log.With("redis", "centre"))
	if err != nil {
		return nil, fmt.Errorf("region.sync.redis: %w", err)
	}
	exchange := region.Join(region.Config{Limiter: limiter, Name: c.Region.Name,
		Process: processName(), Own: own.Client(), Centre: centre.Client(),
		Every: sync.Every, Share: c.Region.Share, Log: log})
	metrics.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "forebay_regions",
			Help: "Regions that share the limits, when the centre was last reached.",
		}, func() float64 { return float64(exchange.Regions()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "forebay_region_centre_lost",
			Help: "1 while the centre is lost and this region decides over its " +
				"share of every limit.",
		}, func() float64 {
			if exchange.Lost() {
				return 1
			}
			return 0
		}))
	return func(ctx context.Context) {
		exchange.Run(ctx)
		if err := centre.Close(); err != nil {
			log.Warn("region: the centre's connection", "error", err)
		}
	}, nil
}

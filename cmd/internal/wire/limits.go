package wire

import (
	"fmt"
	"time"

	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/limits"
)

// rules compiles the limits of one owner: the name by which limits of the same name in different places are told apart. They are
// what this process decides over: its region's part of each limit.
func rules(c *config.Config, owner string, given []config.Limit) ([]admission.Limit, error) {
	var out []admission.Limit
	for _, l := range given {
		rule, err := limits.Compile(limit(owner, l))
		if part := share(c); err == nil && part < 1 {
			rule, err = rule.Scaled(part)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: limit %s: %w", owner, l.Name, err)
		}
		out = append(out, admission.Limit{Rule: rule, When: admission.When{Tiers: l.When.Tier, Operations: l.When.Operation, Countries: l.When.Country}})
	}
	return out, nil
}

// share is the part of every limit that this process's region decides over: all of it where the regions tell each other what
// they counted.
func share(c *config.Config) float64 {
	if c.Region.Share == 0 || c.Region.Sync.Redis != "" {
		return 1
	}
	return c.Region.Share
}

// limit is a limit as package limits knows it.
func limit(owner string, l config.Limit) limits.Limit {
	out := limits.Limit{Name: l.Name, Owner: owner, Algorithm: limits.Algorithm(l.Algorithm), Per: limits.Per(l.Per),
		Amount: l.Limit, Window: time.Duration(l.Window), Burst: l.Burst, Shadow: !l.Enforce,
		Bytes: l.Cost.Bytes}
	switch l.Window {
	case config.Day:
		out.Window = 24 * time.Hour
	case config.Month:
		out.Window = limits.Month
	}
	return out
}

// possible is the rule of package limits for a limit of the config.
func possible(l config.Limit) error { return limit("", l).Validate() }

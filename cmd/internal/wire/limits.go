package wire

import (
	"fmt"

	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/config"
	"github.com/forebay/forebay/internal/limits"
)

// rules compiles the limits of one owner: the name by which limits of the same name in different
// places are told apart. They are what this process decides over: its region's part of each limit.
func rules(c *config.Config, owner string, given []config.Limit) ([]admission.Limit, error) {
	var out []admission.Limit
	for _, l := range given {
		rule, err := limits.Compile(l.Owned(owner))
		if part := share(c); err == nil && part < 1 {
			rule, err = rule.Scaled(part)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: limit %s: %w", owner, l.Name, err)
		}
		out = append(out, admission.Limit{Rule: rule, When: l.When})
	}
	return out, nil
}

// share is the part of every limit that this process's region decides over: all of it where the
// regions tell each other what they counted.
func share(c *config.Config) float64 {
	if c.Region.Share == 0 || c.Region.Sync.Redis != "" {
		return 1
	}
	return c.Region.Share
}

package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Algorithms of a limit.
const (
	TokenBucket          = "token-bucket"
	SlidingWindowCounter = "sliding-window-counter"
)

const (
	maxAmount = 1_000_000_000 // far above any rate that one Redis can count
	maxWindow = 366 * 24 * time.Hour
)

// eachLimit calls do for every limit of a config and its key.
func (c *Config) eachLimit(do func(key string, l *Limit)) {
	each := func(key string, limits []Limit) {
		for n := range limits {
			do(fmt.Sprintf("%s[%d]", key, n), &limits[n])
		}
	}
	for _, name := range names(c.Tiers) {
		each(join("tiers", name)+".limits", c.Tiers[name].Limits)
	}
	each("limits", c.Limits)
	for _, name := range names(c.Operations) {
		each(join("operations", name)+".limits", c.Operations[name].Limits)
	}
}

func checkLimit(r *report, key string, l Limit) {
	r.nameKey(key+".name", l.Name)
	r.oneOf(key+".per", l.Per, "client", "ip", "operation", "client+operation", "global")
	if l.Algorithm == "" {
		r.errorf(key+".algorithm", "is required: %s or %s", TokenBucket, SlidingWindowCounter)
	} else {
		r.oneOf(key+".algorithm", l.Algorithm, TokenBucket, SlidingWindowCounter)
	}

	named := "this limit"
	if l.Name != "" {
		named = "limit " + r.shown(key+".name", l.Name)
	}
	switch {
	case !r.given(key+".limit") && l.Limit == 0:
		r.errorf(key+".limit", "is required: how many requests %s allows in its window", named)
	case l.Limit < 1 || l.Limit > maxAmount:
		r.errorf(key+".limit", "%s is out of bounds for %s; write 1 to %d (to allow nothing, take the operation from the tier)",
			r.shown(key+".limit", l.Limit), named, maxAmount)
	}
	switch {
	case !r.given(key+".window") && l.Window == 0:
		r.errorf(key+".window", "is required: the time in which %s allows its amount, such as 1m", named)
	case l.Window < time.Millisecond || l.Window > maxWindow:
		r.errorf(key+".window", "%s is out of bounds for %s; write 1ms to 366d", r.shown(key+".window", formatDuration(l.Window)), named)
	}
	switch {
	case !r.given(key+".burst") && l.Burst == 0:
	case l.Algorithm == SlidingWindowCounter:
		r.errorf(key+".burst", "has no meaning for %s, which is a %s; leave it out, or use %s", named, SlidingWindowCounter, TokenBucket)
	case l.Burst < 1 || l.Burst > maxAmount:
		r.errorf(key+".burst", "%s is out of bounds for %s; write 1 to %d", r.shown(key+".burst", l.Burst), named, maxAmount)
	}
}

// keepRules reports what the rules of whoever will keep a limit say against it, if nothing else was.
func keepRules(r *report, key string, l Limit, rules []func(Limit) error) {
	fromEnv := false
	for _, below := range keysOf(reflect.TypeOf(l)) {
		if r.failed[key+"."+below] {
			return
		}
		fromEnv = fromEnv || r.places[key+"."+below].fromEnv
	}
	for _, rule := range rules {
		switch err := rule(l); {
		case err != nil && fromEnv:
			r.errorf(key, "can't be kept as the environment has it; use a rounder limit and window, and a burst that is no larger")
		case err != nil:
			r.errorf(key, "%v", err)
		}
	}
}

// checkLimitNames holds the names of all limits that apply to one request against each other.
func (c *Config) checkLimitNames(r *report) {
	distinct(r, "limits", c.Limits, nil)
	everywhere := owned{"limits", c.Limits}
	tiers := map[string]owned{}
	for _, name := range names(c.Tiers) {
		tiers[name] = owned{join("tiers", name) + ".limits", c.Tiers[name].Limits}
		distinct(r, tiers[name].key, tiers[name].limits, []owned{everywhere})
	}
	for _, name := range names(c.Operations) {
		others := []owned{everywhere}
		for _, tier := range names(c.Tiers) {
			if c.Operations[name].allows(tier) {
				others = append(others, tiers[tier])
			}
		}
		distinct(r, join("operations", name)+".limits", c.Operations[name].Limits, others)
	}
}

// owned is a list of limits and the key that it stands at.
type owned struct {
	key    string
	limits []Limit
}

// distinct reports limits of one list that share their name with an earlier one of it, or with
// one of the others that apply beside it.
func distinct(r *report, key string, limits []Limit, others []owned) {
	for n, l := range limits {
		at := fmt.Sprintf("%s[%d].name", key, n)
		for _, o := range append(others, owned{key, limits[:n]}) {
			i := slices.IndexFunc(o.limits, func(other Limit) bool { return other.Name == l.Name })
			if i >= 0 && l.Name != "" {
				other := fmt.Sprintf("%s[%d]", o.key, i)
				r.errorf(at, "%s is also the name of %s%s, and both apply to one request; rename one", r.shown(at, l.Name), other, r.onLine(other))
			}
		}
	}
}

// onLine is " (line 12)" where the file gives a key.
func (r *report) onLine(key string) string {
	if line := r.places[key].line; line > 0 {
		return fmt.Sprintf(" (line %d)", line)
	}
	return ""
}

// allows reports whether an operation may be asked for by a tier.
func (o Operation) allows(tier string) bool {
	return len(o.Tiers) == 0 || slices.Contains(o.Tiers, tier)
}

// warnUnlimited finds callers whom nothing but the lines holds back.
func (c *Config) warnUnlimited(r *report, tier string) {
	if len(c.Limits)+len(c.Tiers[tier].Limits) > 0 {
		return
	}
	var free []string
	for _, name := range names(c.Operations) {
		if o := c.Operations[name]; o.allows(tier) && len(o.Limits) == 0 {
			free = append(free, name)
		}
	}
	if len(free) > 0 {
		r.warnf(join("tiers", tier), "no limit applies to its callers on %s: one of them alone can fill the line; add tiers.%s.limits or limits",
			strings.Join(free, ", "), tier)
	}
}

package config

import (
	"fmt"
	"time"

	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/strictyaml"
)

// Owned returns the limit as a limits.Limit. The owner distinguishes limits of the same name in
// different places.
func (l Limit) Owned(owner string) limits.Limit {
	out := limits.Limit{Name: l.Name, Owner: owner, Algorithm: l.Algorithm, Per: l.Per,
		Amount: l.Limit, Window: time.Duration(l.Window), Burst: l.Burst, Shadow: !l.Enforce,
		Bytes: l.Cost.Bytes}
	if l.Window == Day {
		out.Window = limits.Month // for another algorithm a day is as invalid as a month
		if l.Algorithm == limits.FixedWindow {
			out.Window = 24 * time.Hour
		}
	}
	return out
}

// same reports whether two limits have one name.
func (l Limit) same(other Limit) bool { return l.Name == other.Name }

// limitList is a list of limits, with the tier and operation to which it applies; "": any.
type limitList struct {
	limits          []Limit
	tier, operation string
	own             string // the key of a client's list
	reads           bool   // a tier's limits on reads
}

// key returns the list's key in the config. It is computed only for messages, since there are many
// kinds of request to check.
func (list limitList) key() string {
	switch {
	case list.own != "":
		return list.own
	case list.reads:
		return strictyaml.Join("tiers", list.tier) + ".reads"
	case list.tier != "":
		return strictyaml.Join("tiers", list.tier) + ".limits"
	case list.operation != "":
		return strictyaml.Join("operations", list.operation) + ".limits"
	}
	return "limits"
}

func (list limitList) at(n int) string { return strictyaml.At(list.key(), n) }

// lists returns all lists of limits in the config.
func (c *Config) lists() []limitList {
	var all []limitList
	for _, name := range names(c.Tiers) {
		reads := limitList{limits: c.Tiers[name].Reads, tier: name, reads: true}
		all = append(all, c.tierList(name), reads)
	}
	all = append(all, c.everywhere())
	for _, name := range names(c.Operations) {
		all = append(all, c.operationList(name))
	}
	for n, client := range c.Identity.Clients {
		all = append(all, clientList(strictyaml.At("identity.clients", n), client))
	}
	return all
}

func (c *Config) everywhere() limitList { return limitList{limits: c.Limits} }

func (c *Config) tierList(name string) limitList {
	return limitList{limits: c.Tiers[name].Limits, tier: name}
}

func (c *Config) operationList(name string) limitList {
	return limitList{limits: c.Operations[name].Limits, operation: name}
}

func clientList(key string, client Client) limitList {
	return limitList{limits: client.Limits, tier: client.Tier, own: key + ".limits"}
}

// placed is a limit and its position in the config.
type placed struct {
	list limitList
	n    int
	Limit
}

func (l placed) key() string { return l.list.at(l.n) }

// meeting returns the limits that may apply to a tier's request for an operation, without clients'
// own.
func (c *Config) meeting(tier, operation string) (all []placed) {
	for _, list := range []limitList{c.everywhere(), c.tierList(tier), c.operationList(operation)} {
		all = append(all, list.meeting(tier, operation)...)
	}
	return all
}

func (list limitList) meeting(tier, operation string) (all []placed) {
	for n, l := range list.limits {
		if l.When.MayFit(tier, operation) {
			all = append(all, placed{list, n, l})
		}
	}
	return all
}

// part returns the region's own part of every limit; 1 if there is no other region.
func (c *Config) part() float64 {
	if s := c.Region.Share; s > 0 && s < 1 {
		return s
	}
	return 1
}

// fits returns the most that one request may take of a limit in this region; share explains a value
// below the whole limit. A limit that refuses nothing, or counts jobs or bytes, fits all requests.
func (c *Config) fits(l Limit) (most int64, share string) {
	whole := l.Owned("")
	if !l.Enforce || l.Algorithm == limits.Concurrency || l.Cost.Bytes || whole.Capacity() < 1 {
		return limits.MaxAmount, ""
	}
	if part := c.part(); part < 1 {
		return whole.Scaled(part).Capacity(), " as the region's share"
	}
	return whole.Capacity(), ""
}

// usual returns the cost of an operation's requests, or the default if the cost is in the payload.
func (c Cost) usual() int64 {
	if c.From != "" {
		return c.Default
	}
	return c.Fixed
}

// mostOf returns how much a limit allows at most, in brackets, or "" if that comes from the
// environment.
func mostOf(r *report, key string, most int64, share string) string {
	if limitFromEnv(r, key) {
		return ""
	}
	return fmt.Sprintf(" (%d%s)", most, share)
}

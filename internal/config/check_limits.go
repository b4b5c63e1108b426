package config

import (
	"fmt"
	"math"
	"regexp"
	"slices"

	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/strictyaml"
)

const (
	minBytes = 1024 // a small body: a smaller amount is probably one of requests
	maxGrace = 100  // far above what a first week deserves

	needsCountries = "needs to know countries; set identity.country_header or " +
		"identity.country_database"
)

// checkList checks each limit of a list by itself.
func (c *Config) checkList(r *report, list limitList) {
	for n, l := range list.limits {
		key := list.at(n)
		checkName(r, key+".name", l.Name)
		if l.Per == limits.PerCountry && !c.knowsCountries() {
			r.Errorf(key+".per", needsCountries)
		}
		c.checkWhen(r, key+".when", l.When, list)
		checkAmounts(r, key, l)
		if l.Cost.Bytes {
			c.checkBytes(r, key, l)
		}
		if list.reads {
			checkReads(r, key, l)
		}
	}
}

// checkAmounts reports what is missing, and the problems that package limits has with single
// fields.
func checkAmounts(r *report, key string, l Limit) {
	named := "this limit"
	if l.Name != "" {
		named = "limit " + r.Shown(key+".name", l.Name)
	}
	amount, window, burst := key+".limit", key+".window", key+".burst"
	switch {
	case l.Limit != 0 || r.Given(amount):
	case l.Algorithm == limits.Concurrency:
		r.Errorf(amount, "is required: how many jobs may wait and run at one time by %s", named)
	default:
		r.Errorf(amount, "is required: how many requests %s allows in its window", named)
	}
	if l.Window == 0 && !r.Given(window) && l.Algorithm != limits.Concurrency {
		r.Errorf(window, "is required: the time in which %s allows its amount, such as 1m", named)
	}
	// A window or burst that is given as 0 isn't absent: here another invalid value replaces it.
	whole := l.Owned("")
	if whole.Window == 0 && r.Given(window) {
		whole.Window = 1
	}
	if whole.Burst == 0 && r.Given(burst) {
		whole.Burst = -1
	}
	for _, p := range whole.Problems() {
		at := key + "." + p.Field
		r.Errorf(at, "%s", p.Text(r.Shown(at, p.Value), named))
	}
}

// checkBytes finds a limit of bytes that no body would fit.
func (c *Config) checkBytes(r *report, key string, l Limit) {
	amount, least, share := key+".limit", int64(minBytes), ""
	if l.Algorithm.HasBurst() && l.Burst != 0 && l.Burst != l.Limit {
		amount = key + ".burst"
	}
	if part := c.part(); part < 1 {
		least, share = int64(math.Ceil(minBytes/part)), ", of which the region has a share"
	}
	most := l.Owned("").Capacity()
	if most > 0 && most < least && l.Algorithm != limits.Concurrency {
		r.Errorf(amount, "%s is too little for a limit of bytes%s; write at least %d",
			r.Shown(amount, most), share, least)
	}
}

// checkReads finds what a limit on lists can't count: lists have no operation, and end at once.
func checkReads(r *report, key string, l Limit) {
	switch {
	case l.Per.OfOperation():
		r.Errorf(key+".per", "has no meaning for reads, which are of no operation; use client")
	case len(l.When.Operations) > 0:
		r.Errorf(key+".when.operation",
			"has no meaning for reads, which are of no operation; leave it out")
	case l.Algorithm == limits.Concurrency:
		r.Errorf(key+".algorithm", "has no meaning for reads: a client has one list at a time; "+
			"use %s",
			limits.TokenBucket)
	case l.Cost.Bytes:
		r.Errorf(key+".cost.bytes", "has no meaning for reads, which have no body; leave it out")
	}
}

var countryForm = regexp.MustCompile(`^[A-Z]{2}$`)

func (c *Config) checkWhen(r *report, key string, w limits.When, list limitList) {
	tiers, operations, countries := key+".tier", key+".operation", key+".country"
	for n, tier := range w.Tiers {
		r.Known(strictyaml.At(tiers, n), tier, "tier", names(c.Tiers))
	}
	for n, operation := range w.Operations {
		r.Known(strictyaml.At(operations, n), operation, "operation", names(c.Operations))
	}
	for n, country := range w.Countries {
		if at := strictyaml.At(countries, n); !countryForm.MatchString(country) {
			r.Errorf(at, "%s isn't a country; write its two capital letters (ISO 3166-1), such as "+
				"DE",
				r.Shown(at, country))
		}
	}
	for at, words := range map[string]limits.Names{
		tiers: w.Tiers, operations: w.Operations, countries: w.Countries,
	} {
		if words != nil && len(words) == 0 {
			r.Errorf(at, "is empty, so the limit would apply to nothing; name some, or leave it "+
				"out to mean all")
		}
		checkTwice(r, at, words)
	}
	const leavesOut = "leaves out the %s whose limit it is, so it would apply to nothing; leave " +
		"it out, or move the limit"
	switch {
	case list.tier != "" && !w.Tiers.Have(list.tier):
		r.Errorf(tiers, leavesOut, "tier")
	case list.operation != "" && !w.Operations.Have(list.operation):
		r.Errorf(operations, leavesOut, "operation")
	case len(w.Countries) > 0 && !c.knowsCountries():
		r.Errorf(countries, needsCountries)
	}
}

// checkKept reports, if nothing else is wrong with a limit, the first form in which its numbers
// can't be kept exactly: as it is, as its region's share, or for new clients.
func (c *Config) checkKept(r *report, list limitList) {
	part, graces := c.part(), c.graces(list)
	for n, l := range list.limits {
		key := list.at(n)
		keeps := func(as string, l limits.Limit) bool {
			err := l.Validate()
			switch {
			case err == nil:
			case limitFromEnv(r, key):
				r.Errorf(key, "can't be kept%s as the environment has it; use a rounder limit and "+
					"window, and a burst that is no larger", as)
			case as != "":
				r.Errorf(key, "can't be kept%s: %v", as, err)
			default:
				r.Errorf(key, "%v", err)
			}
			return err == nil
		}
		const share = " as the region's share"
		whole := l.Owned("")
		if limitFailed(r, key) || !keeps("", whole) ||
			part < 1 && !keeps(share, whole.Scaled(part)) || !l.Per.OfClient() || list.reads {
			continue
		}
		for _, factor := range graces {
			times := fmt.Sprintf(" times a tier's grace (%v)", factor)
			if keeps(times, whole.Scaled(factor)) && part < 1 {
				keeps(share+times, whole.Scaled(part).Scaled(factor))
			}
		}
	}
}

// graces returns the factors by which a grace may raise limits of a list.
func (c *Config) graces(list limitList) (factors []float64) {
	for _, name := range names(c.Tiers) {
		f := c.Tiers[name].Grace.Factor
		of := list.tier == name || list.tier == "" && c.Operations[list.operation].Tiers.Have(name)
		if of && f > 1 && f <= maxGrace && !slices.Contains(factors, f) {
			factors = append(factors, f)
		}
	}
	return factors
}

// limitKeys are the keys of a limit.
var limitKeys = []string{"", ".name", ".per", ".when", ".algorithm", ".limit", ".window", ".burst",
	".enforce", ".cost", ".cost.bytes"}

// limitFailed reports whether something is wrong with a limit.
func limitFailed(r *report, key string) bool {
	return slices.ContainsFunc(limitKeys, func(below string) bool { return r.Failed(key + below) })
}

// limitFromEnv reports whether something of a limit comes from the environment.
func limitFromEnv(r *report, key string) bool {
	return slices.ContainsFunc(limitKeys, func(below string) bool { return r.FromEnv(key + below) })
}

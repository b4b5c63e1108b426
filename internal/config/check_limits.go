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
	minBytes = 1024 // a small body, so that no limit on requests becomes one on bytes by mistake
	maxGrace = 100  // far more than a new client needs
)

// checkList checks each limit of a list by itself.
func (c *Config) checkList(r *strictyaml.Report, list limitList) {
	for n, l := range list.limits {
		key := list.at(n)
		checkName(r, key+".name", l.Name)
		if l.Per == limits.PerCountry && !c.knowsCountries() {
			r.Errorf(key+".per", "needs to know countries; set identity.country_header or "+
				"identity.country_database")
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

// checkAmounts reports missing amounts, and the problems that package limits finds in single
// fields.
func checkAmounts(r *strictyaml.Report, key string, l Limit) {
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
	// A window or burst of 0 in the file isn't the same as none: here, another invalid value stands
	// for it.
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

// checkBytes finds limits on bytes that no body fits.
func (c *Config) checkBytes(r *strictyaml.Report, key string, l Limit) {
	amount, least, share := key+".limit", int64(minBytes), ""
	if l.Algorithm.HasBurst() && l.Burst != 0 && l.Burst != l.Limit {
		amount = key + ".burst"
	}
	if part := c.part(); part < 1 {
		least, share = int64(math.Ceil(minBytes/part)), ", of which the region has a share"
	}
	if most := l.Owned("").Capacity(); most > 0 && most < least &&
		l.Algorithm != limits.Concurrency {
		r.Errorf(amount, "%s is too little for a limit of bytes%s; write at least %d",
			r.Shown(amount, most), share, least)
	}
}

// checkReads finds keys that have no meaning in a limit on lists, which have no operation and end
// at once.
func checkReads(r *strictyaml.Report, key string, l Limit) {
	switch {
	case l.Per.OfOperation():
		r.Errorf(key+".per", "has no meaning for reads, which are of no operation; use client")
	case len(l.When.Operations) > 0:
		r.Errorf(key+".when.operation", "has no meaning for reads, which are of no operation; "+
			"leave it out")
	case l.Algorithm == limits.Concurrency:
		r.Errorf(key+".algorithm", "has no meaning for reads: a client has one list at a time; "+
			"use %s", limits.TokenBucket)
	case l.Cost.Bytes:
		r.Errorf(key+".cost.bytes", "has no meaning for reads, which have no body; leave it out")
	}
}

var countryForm = regexp.MustCompile(`^[A-Z]{2}$`)

func (c *Config) checkWhen(r *strictyaml.Report, key string, w limits.When, list limitList) {
	each := func(key string, words limits.Names, check func(at, word string)) {
		if words != nil && len(words) == 0 {
			r.Errorf(key, "is empty, so the limit would apply to nothing; name some, or leave it "+
				"out to mean all")
		}
		for n, word := range words {
			check(strictyaml.At(key, n), word)
		}
		checkTwice(r, key, words)
	}
	each(key+".tier", w.Tiers, func(at, word string) { r.Known(at, word, "tier", names(c.Tiers)) })
	each(key+".operation", w.Operations,
		func(at, word string) { r.Known(at, word, "operation", names(c.Operations)) })
	each(key+".country", w.Countries, func(at, word string) {
		if !countryForm.MatchString(word) {
			r.Errorf(at, "%s isn't a country; write its two capital letters (ISO 3166-1), such as "+
				"DE", r.Shown(at, word))
		}
	})
	switch {
	case list.tier != "" && !w.Tiers.Have(list.tier):
		r.Errorf(key+".tier", "leaves out the tier whose limit it is, so it would apply to "+
			"nothing; leave it out, or move the limit")
	case list.operation != "" && !w.Operations.Have(list.operation):
		r.Errorf(key+".operation", "leaves out the operation whose limit it is, so it would apply "+
			"to nothing; leave it out, or move the limit")
	case len(w.Countries) > 0 && !c.knowsCountries():
		r.Errorf(key+".country", "needs to know countries; set identity.country_header or "+
			"identity.country_database")
	}
}

// checkKept reports the first way in which the numbers of a limit can't be counted exactly, unless
// the limit has another problem: as it stands, as its region's share, and for new clients.
func (c *Config) checkKept(r *strictyaml.Report, list limitList) {
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
		whole := l.Owned("")
		if limitFailed(r, key) || !keeps("", whole) ||
			part < 1 && !keeps(" as the region's share", whole.Scaled(part)) ||
			!l.Per.OfClient() || list.reads {
			continue
		}
		for _, factor := range graces {
			times := fmt.Sprintf(" times a tier's grace (%v)", factor)
			if keeps(times, whole.Scaled(factor)) && part < 1 {
				keeps(" as the region's share"+times, whole.Scaled(part).Scaled(factor))
			}
		}
	}
}

// graces returns the factors by which limits of a list may be widened.
func (c *Config) graces(list limitList) (factors []float64) {
	for _, name := range names(c.Tiers) {
		of := list.tier == name || list.tier == "" &&
			(list.operation == "" || c.Operations[list.operation].Tiers.Have(name))
		if f := c.Tiers[name].Grace.Factor; of && f > 1 && f <= maxGrace &&
			!slices.Contains(factors, f) {
			factors = append(factors, f)
		}
	}
	return factors
}

// limitKeys are the keys of a limit.
var limitKeys = []string{"", ".name", ".per", ".when", ".algorithm", ".limit", ".window", ".burst",
	".enforce", ".cost", ".cost.bytes"}

// limitFailed reports whether a limit has a problem.
func limitFailed(r *strictyaml.Report, key string) bool {
	return slices.ContainsFunc(limitKeys, func(below string) bool { return r.Failed(key + below) })
}

// limitFromEnv reports whether a part of a limit comes from the environment.
func limitFromEnv(r *strictyaml.Report, key string) bool {
	return slices.ContainsFunc(limitKeys, func(below string) bool { return r.FromEnv(key + below) })
}

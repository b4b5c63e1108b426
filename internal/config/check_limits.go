package config

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/forebay/forebay/internal/strictyaml"
)

// Algorithms of a limit.
const (
	TokenBucket          = "token-bucket"
	LeakyBucket          = "leaky-bucket"
	SlidingWindowCounter = "sliding-window-counter"
	SlidingWindowLog     = "sliding-window-log"
	FixedWindow          = "fixed-window"
	Concurrency          = "concurrency"
)

var algorithms = []string{TokenBucket, LeakyBucket, SlidingWindowCounter, SlidingWindowLog, FixedWindow, Concurrency}

const (
	maxAmount = 1_000_000_000 // far above any rate that one Redis can count
	maxLog    = 10_000        // each is an entry in Redis, for each client
	maxWindow = 366 * 24 * time.Hour
	minStored = 64 << 10 // what is noted beside a payload is a small part of it
	maxStored = 1 << 40  // far above any Redis
	maxGrace  = 100      // far above what a first week deserves
	minBytes  = 1024     // a small body: so that no limit of requests becomes one of bytes
)

// limitList is a list of limits, and the tier and operation whose it is; "": of any.
type limitList struct {
	limits          []Limit
	tier, operation string
	own             string // the key of a client's list
	reads           bool   // a tier's limits on reads
}

// key is where the list stands. It is made only where it is told: there are many kinds of request to look at.
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

// lists are all lists of limits of the config.
func (c *Config) lists() []limitList {
	var all []limitList
	for _, name := range names(c.Tiers) {
		all = append(all, c.tierList(name), c.readsList(name))
	}
	all = append(all, c.everywhere())
	for _, name := range names(c.Operations) {
		all = append(all, c.operationList(name))
	}
	for n, client := range c.Identity.Clients {
		all = append(all, limitList{own: fmt.Sprintf("identity.clients[%d].limits", n), limits: client.Limits, tier: client.Tier})
	}
	return all
}

func (c *Config) everywhere() limitList { return limitList{limits: c.Limits} }

func (c *Config) tierList(name string) limitList {
	return limitList{limits: c.Tiers[name].Limits, tier: name}
}

func (c *Config) readsList(name string) limitList {
	return limitList{limits: c.Tiers[name].Reads, tier: name, reads: true}
}

func (c *Config) operationList(name string) limitList {
	return limitList{limits: c.Operations[name].Limits, operation: name}
}

// checkList checks each limit of a list by itself.
func (c *Config) checkList(r *strictyaml.Report, list limitList) {
	for n, l := range list.limits {
		key := strictyaml.At(list.key(), n)
		c.checkSubject(r, key, l)
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

// checkReads finds what a limit on lists can't count: they are of no operation, and end at once.
func checkReads(r *strictyaml.Report, key string, l Limit) {
	switch {
	case l.Per == "operation" || l.Per == "client+operation":
		r.Errorf(key+".per", "has no meaning for reads, which are of no operation; use client")
	case len(l.When.Operation) > 0:
		r.Errorf(key+".when.operation", "has no meaning for reads, which are of no operation; leave it out")
	case l.Algorithm == Concurrency:
		r.Errorf(key+".algorithm", "has no meaning for reads: a client has one list at a time; use %s", TokenBucket)
	case l.Cost.Bytes:
		r.Errorf(key+".cost.bytes", "has no meaning for reads, which have no body; leave it out")
	}
}

// checkBytes finds a limit of bytes that no body would fit.
func (c *Config) checkBytes(r *strictyaml.Report, key string, l Limit) {
	amount, least, share := key+".limit", int64(minBytes), ""
	if l.bucket() && l.Burst != l.Limit {
		amount = key + ".burst"
	}
	if s := c.Region.Share; s > 0 && s < 1 {
		least, share = int64(math.Ceil(minBytes/s)), ", of which the region has a share"
	}
	switch {
	case l.Algorithm == Concurrency:
		r.Errorf(key+".cost.bytes", "has no meaning for %s, which counts jobs; leave it out, or use %s",
			Concurrency, TokenBucket)
	case l.capacity() > 0 && l.capacity() < least:
		r.Errorf(amount, "%s is too little for a limit of bytes%s; write at least %d",
			r.Shown(amount, l.capacity()), share, least)
	}
}

func (c *Config) checkSubject(r *strictyaml.Report, key string, l Limit) {
	checkName(r, key+".name", l.Name)
	if l.Per == "country" && !c.knowsCountries() {
		r.Errorf(key+".per", "needs to know countries; set identity.country_header or identity.country_database")
	}
	if l.Algorithm == "" {
		r.Errorf(key+".algorithm", "is required: one of %s", strings.Join(algorithms, ", "))
	} else {
		strictyaml.OneOf(r, key+".algorithm", l.Algorithm, algorithms...)
	}
}

var countryForm = regexp.MustCompile(`^[A-Z]{2}$`)

func (c *Config) checkWhen(r *strictyaml.Report, key string, w When, list limitList) {
	each := func(name string, words []string, check func(at, word string)) {
		if words != nil && len(words) == 0 {
			r.Errorf(key+"."+name, "is empty, so the limit would apply to nothing; name some, or leave it out to mean all")
		}
		for n, word := range words {
			at := fmt.Sprintf("%s.%s[%d]", key, name, n)
			check(at, word)
			if slices.Contains(words[:n], word) {
				r.Errorf(at, "%s stands in the list twice", r.Shown(at, word))
			}
		}
	}
	each("tier", w.Tier, func(at, word string) { r.Known(at, word, "tier", names(c.Tiers)) })
	each("operation", w.Operation, func(at, word string) { r.Known(at, word, "operation", names(c.Operations)) })
	each("country", w.Country, func(at, word string) {
		if !countryForm.MatchString(word) {
			r.Errorf(at, "%s isn't a country; write its two capital letters (ISO 3166-1), such as DE", r.Shown(at, word))
		}
	})
	switch {
	case len(w.Tier) > 0 && list.tier != "" && !slices.Contains(w.Tier, list.tier):
		r.Errorf(key+".tier", "leaves out the tier whose limit it is, so it would apply to nothing; leave it out, or move the limit")
	case len(w.Operation) > 0 && list.operation != "" && !slices.Contains(w.Operation, list.operation):
		r.Errorf(key+".operation", "leaves out the operation whose limit it is, so it would apply to nothing; leave it out, or move the limit")
	case len(w.Country) > 0 && !c.knowsCountries():
		r.Errorf(key+".country", "needs to know countries; set identity.country_header or identity.country_database")
	}
}

func checkAmounts(r *strictyaml.Report, key string, l Limit) {
	named := "this limit"
	if l.Name != "" {
		named = "limit " + r.Shown(key+".name", l.Name)
	}
	switch {
	case !r.Given(key+".limit") && l.Limit == 0 && l.Algorithm == Concurrency:
		r.Errorf(key+".limit", "is required: how many jobs may wait and run at one time by %s", named)
	case !r.Given(key+".limit") && l.Limit == 0:
		r.Errorf(key+".limit", "is required: how many requests %s allows in its window", named)
	case l.Limit < 1 || l.Limit > maxAmount:
		r.Errorf(key+".limit", "%s is out of bounds for %s; write 1 to %d (to allow nothing, take the operation from the tier)",
			r.Shown(key+".limit", l.Limit), named, maxAmount)
	case l.Algorithm == SlidingWindowLog && l.Limit > maxLog:
		r.Errorf(key+".limit", "%s is too much for %s: a %s remembers each request; write 1 to %d, or use %s",
			r.Shown(key+".limit", l.Limit), named, SlidingWindowLog, maxLog, SlidingWindowCounter)
	}
	checkWindow(r, key+".window", named, l)
	switch {
	case !r.Given(key+".burst") && l.Burst == 0:
	case slices.Contains(algorithms, l.Algorithm) && !l.bucket():
		r.Errorf(key+".burst", "has no meaning for %s, whose algorithm is %s; leave it out, or use %s", named, l.Algorithm, TokenBucket)
	case l.Burst < 1 || l.Burst > maxAmount:
		r.Errorf(key+".burst", "%s is out of bounds for %s; write 1 to %d", r.Shown(key+".burst", l.Burst), named, maxAmount)
	}
}

func checkWindow(r *strictyaml.Report, key, named string, l Limit) {
	given := r.Given(key) || l.Window != 0
	calendar := l.Window == Day || l.Window == Month
	switch {
	case l.Algorithm == Concurrency:
		if given {
			r.Errorf(key, "has no meaning for %s: %s counts the jobs that wait and run now; leave it out", named, Concurrency)
		}
	case !given:
		r.Errorf(key, "is required: the time in which %s allows its amount, such as 1m", named)
	case calendar && l.Algorithm != FixedWindow:
		if slices.Contains(algorithms, l.Algorithm) {
			r.Errorf(key, "%s is of the calendar, and the algorithm of %s is %s; write a duration such as 24h, or use %s", r.Shown(key, l.Window), named, l.Algorithm, FixedWindow)
		}
	case calendar:
	case l.Window < Window(time.Millisecond) || l.Window > Window(maxWindow):
		r.Errorf(key, "%s is out of bounds for %s; write 1ms to 366d", r.Shown(key, l.Window), named)
	}
}

func (g Grace) check(r *strictyaml.Report, key string) {
	if g == (Grace{}) && !r.Given(key) {
		return
	}
	checkPart(r, key+".factor", g.Factor, 1, maxGrace, "what a new client's limits are multiplied by")
}

// bucket reports whether a limit has a burst.
func (l Limit) bucket() bool { return l.Algorithm == TokenBucket || l.Algorithm == LeakyBucket }

// capacity is the most that one request may take.
func (l Limit) capacity() int64 {
	if l.bucket() && l.Burst > 0 {
		return l.Burst
	}
	return l.Limit
}

// graced reports whether new clients may have more of the limit.
func (l Limit) graced() bool { return l.Per == "client" || l.Per == "client+operation" }

// scaled is the limit with its amounts times factor, rounded down and within the bounds: the arithmetic of
// whoever keeps the limits.
func (l Limit) scaled(factor float64) Limit {
	scale := func(n int64) int64 { return int64(min(max(1, math.Floor(float64(n)*factor+1e-9)), maxAmount)) }
	l.Limit = scale(l.Limit)
	if l.Burst != 0 {
		l.Burst = scale(l.Burst)
	}
	if l.Algorithm == SlidingWindowLog {
		l.Limit = min(l.Limit, maxLog)
	}
	return l
}

// keepRules reports what the rules of whoever will keep the limits say against one of a list, if nothing
// else was: as it stands, as its region's share, and for new clients.
func (c *Config) keepRules(r *strictyaml.Report, list limitList, rules []Rules) {
	share := 1.0
	if s := c.Region.Share; s > 0 && s < 1 {
		share = s
	}
	graces := c.graces(list)
	for n, l := range list.limits {
		key := strictyaml.At(list.key(), n)
		failed, fromEnv := failedOrEnv(r, key)
		keeps := func(as string, l Limit) bool { return failed || keep(r, key, as, l, rules, fromEnv) }
		if !keeps("", l) || share < 1 && !keeps(" as the region's share", l.scaled(share)) || !l.graced() || list.reads {
			continue
		}
		for _, factor := range graces {
			times := fmt.Sprintf(" times a tier's grace (%v)", factor)
			if keeps(times, l.scaled(factor)) && share < 1 {
				keeps(" as the region's share"+times, l.scaled(share).scaled(factor))
			}
		}
	}
}

// graces are the factors by which limits of a list may be widened.
func (c *Config) graces(list limitList) (factors []float64) {
	for _, name := range names(c.Tiers) {
		of := list.tier == name || list.tier == "" && (list.operation == "" || c.Operations[list.operation].allows(name))
		if f := c.Tiers[name].Grace.Factor; of && f > 1 && f <= maxGrace && !slices.Contains(factors, f) {
			factors = append(factors, f)
		}
	}
	return factors
}

// counted are the keys of a limit that say what it counts.
var counted = []string{"name", "per", "when", "algorithm", "limit", "window", "burst", "enforce", "cost"}

// failedOrEnv reports whether something was found wrong with a limit, and whether something of it comes
// from the environment.
func failedOrEnv(r *strictyaml.Report, key string) (failed, fromEnv bool) {
	failed = r.Failed(key)
	for _, below := range counted {
		failed = failed || r.Failed(key+"."+below)
		fromEnv = fromEnv || r.FromEnv(key+"."+below)
	}
	return failed, fromEnv
}

// keep reports what the rules say against a limit, which as tells how it came to be; false: something.
func keep(r *strictyaml.Report, key, as string, l Limit, rules []Rules, fromEnv bool) bool {
	for _, rule := range rules {
		if rule.Limit == nil {
			continue
		}
		err := rule.Limit(l)
		switch {
		case err == nil:
			continue
		case fromEnv:
			r.Errorf(key, "can't be kept%s as the environment has it; use a rounder limit and window, and a burst that is no larger", as)
		case as != "":
			r.Errorf(key, "can't be kept%s: %v", as, err)
		default:
			r.Errorf(key, "%v", err)
		}
		return false
	}
	return true
}

package config

import (
	"fmt"
	"iter"
	"slices"

	"github.com/forebay/forebay/internal/strictyaml"
)

// Bounds of what may apply to one request. One script call decides over all limits, and a job keeps a place in
// each limit of concurrency until it ends.
const (
	maxMeeting     = 64
	maxConcurrency = 4
)

// allows reports whether an operation may be asked for by a tier.
func (o Operation) allows(tier string) bool {
	return len(o.Tiers) == 0 || slices.Contains(o.Tiers, tier)
}

// requests are all kinds of request that limits tell apart without knowing the client: a tier and an operation that
// it may use.
func (c *Config) requests() iter.Seq2[string, string] {
	tiers, operations := names(c.Tiers), names(c.Operations)
	return func(yield func(tier, operation string) bool) {
		for _, operation := range operations {
			for _, tier := range tiers {
				if c.Operations[operation].allows(tier) && !yield(tier, operation) {
					return
				}
			}
		}
	}
}

// holds reports whether the condition may hold for a tier's request for an operation, from some country.
func (w When) holds(tier, operation string) bool {
	return (len(w.Tier) == 0 || slices.Contains(w.Tier, tier)) && (len(w.Operation) == 0 || slices.Contains(w.Operation, operation))
}

// from reports whether the condition holds for a country.
func (w When) from(country string) bool {
	return len(w.Country) == 0 || slices.Contains(w.Country, country)
}

// meets reports whether both conditions may hold for one request.
func (w When) meets(other When) bool {
	apart := func(a, b []string) bool {
		return len(a) > 0 && len(b) > 0 && !slices.ContainsFunc(a, func(word string) bool { return slices.Contains(b, word) })
	}
	return !apart(w.Tier, other.Tier) && !apart(w.Operation, other.Operation) && !apart(w.Country, other.Country)
}

// placed is a limit and where it stands.
type placed struct {
	list limitList
	n    int
	Limit
}

func (l placed) key() string { return strictyaml.At(l.list.key(), l.n) }

// meeting are the limits that may apply to a tier's request for an operation, before a client's own.
func (c *Config) meeting(tier, operation string) []placed {
	var all []placed
	for _, list := range []limitList{c.everywhere(), c.tierList(tier), c.operationList(operation)} {
		all = append(all, list.holding(tier, operation)...)
	}
	return all
}

func (list limitList) holding(tier, operation string) (all []placed) {
	for n, l := range list.limits {
		if l.When.holds(tier, operation) {
			all = append(all, placed{list, n, l})
		}
	}
	return all
}

// checkMeeting holds the limits that apply to one request against its cost and against their bounds.
func (c *Config) checkMeeting(r *strictyaml.Report, tier, operation string) {
	all := c.meeting(tier, operation)
	c.checkNumber(r, tier, operation, all)
	cost := c.Operations[operation].Cost
	key := strictyaml.Join("operations", operation) + ".cost"
	if cost.From != "" {
		key += ".default"
	}
	for _, l := range all {
		if most, share := c.fits(l.Limit); most < cost.usual() {
			r.Errorf(key, "is more than limit %s (%s%s) can ever allow%s, so no request would be accepted; lower the cost, or raise the limit",
				r.Shown(l.key()+".name", l.Name), l.key(), r.OnLine(l.key()), mostOf(r, l.key(), most, share))
		}
	}
}

// checkOwn holds a client's own limits against the costs of operations and against the others that apply.
func (c *Config) checkOwn(r *strictyaml.Report, key string, client Client) {
	if len(client.Limits) == 0 || !nameForm.MatchString(client.Tier) {
		return
	}
	list := limitList{own: key + ".limits", limits: client.Limits, tier: client.Tier}
	for _, operation := range names(c.Operations) {
		if !c.Operations[operation].allows(client.Tier) {
			continue
		}
		own := list.holding(client.Tier, operation)
		for _, l := range own {
			if most, share := c.fits(l.Limit); most < c.Operations[operation].Cost.usual() {
				r.Errorf(l.key()+".limit", "can never allow a request for operation %s, which costs more%s; raise it, or lower the cost", operation, mostOf(r, l.key(), most, share))
			}
		}
		others := slices.DeleteFunc(c.meeting(client.Tier, operation), func(l placed) bool {
			return l.list.tier == client.Tier && slices.ContainsFunc(client.Limits, func(o Limit) bool { return o.Name == l.Name })
		})
		for _, l := range own {
			i := slices.IndexFunc(others, func(o placed) bool { return o.Name == l.Name && o.When.meets(l.When) })
			if i >= 0 && l.Name != "" {
				r.Errorf(l.key()+".name", "%s is also the name of %s%s, which isn't of the tier, so this one can't replace it; rename one", r.Shown(l.key()+".name", l.Name), others[i].key(), r.OnLine(others[i].key()))
			}
		}
		c.checkNumber(r, client.Tier, operation, append(others, own...))
	}
}

// usual is the cost that an operation's requests have, or may have.
func (c Cost) usual() int64 {
	if c.From != "" {
		return c.Default
	}
	return c.Fixed
}

// fits is the most that one request may take of a limit in this region; share says where that is less than the whole.
// What refuses nothing, or counts jobs or bytes, fits all.
func (c *Config) fits(l Limit) (most int64, share string) {
	if !l.Enforce || l.Algorithm == Concurrency || l.Cost.Bytes || l.capacity() < 1 {
		return maxAmount, ""
	}
	if s := c.Region.Share; s > 0 && s < 1 {
		return l.scaled(s).capacity(), " as the region's share"
	}
	return l.capacity(), ""
}

// mostOf tells how much a limit allows at most, if that isn't the environment's word.
func mostOf(r *strictyaml.Report, key string, most int64, share string) string {
	if _, fromEnv := failedOrEnv(r, key); fromEnv {
		return ""
	}
	return fmt.Sprintf(" (%d%s)", most, share)
}

// checkNumber reports the first limit that is too much for one request.
func (c *Config) checkNumber(r *strictyaml.Report, tier, operation string, all []placed) {
	if len(all) > maxMeeting {
		r.Errorf(all[maxMeeting].key(), "is one too many: %d limits may apply to a request of tier %s for operation %s; at most %d can", len(all), tier, operation, maxMeeting)
	}
	jobs := slices.DeleteFunc(slices.Clone(all), func(l placed) bool { return l.Algorithm != Concurrency })
	if len(jobs) <= maxConcurrency {
		return
	}
	countries := []string{""}
	for _, l := range jobs {
		countries = append(countries, l.When.Country...)
	}
	for _, country := range countries {
		meet := slices.DeleteFunc(slices.Clone(jobs), func(l placed) bool { return !l.When.from(country) })
		if len(meet) > maxConcurrency {
			r.Errorf(meet[maxConcurrency].key(), "is one too many: %d limits of %s may apply to a request of tier %s for operation %s; at most %d can", len(meet), Concurrency, tier, operation, maxConcurrency)
			return
		}
	}
}

// checkLimitNames holds the names of all limits that apply to one request against each other.
func (c *Config) checkLimitNames(r *strictyaml.Report) {
	distinct(r, c.everywhere(), nil)
	for _, name := range names(c.Tiers) {
		distinct(r, c.tierList(name), []limitList{c.everywhere()})
	}
	for _, name := range names(c.Operations) {
		others := []limitList{c.everywhere()}
		for _, tier := range names(c.Tiers) {
			if c.Operations[name].allows(tier) {
				others = append(others, c.tierList(tier))
			}
		}
		distinct(r, c.operationList(name), others)
	}
	for _, list := range c.lists() {
		if list.own != "" || list.reads {
			distinct(r, list, nil) // the rest is checkOwn's; reads meet no other list
		}
	}
}

// distinct reports limits of one list that share their name with an earlier one of it, or with one of the others
// that may apply beside it. Within a list names are unique whatever the conditions: they would share a count.
func distinct(r *strictyaml.Report, list limitList, others []limitList) {
	for n, l := range list.limits {
		at := fmt.Sprintf("%s[%d].name", list.key(), n)
		same := func(o Limit) bool { return o.Name == l.Name && l.Name != "" }
		for _, o := range others {
			reach := l.When.within(list)
			i := slices.IndexFunc(o.limits, func(other Limit) bool { return same(other) && reach.meets(other.When.within(o)) })
			if i >= 0 {
				other := strictyaml.At(o.key(), i)
				r.Errorf(at, "%s is also the name of %s%s, and both apply to one request; rename one", r.Shown(at, l.Name), other, r.OnLine(other))
			}
		}
		if i := slices.IndexFunc(list.limits[:n], same); i >= 0 {
			other := strictyaml.At(list.key(), i)
			r.Errorf(at, "%s is also the name of %s%s; rename one", r.Shown(at, l.Name), other, r.OnLine(other))
		}
	}
}

// within is the condition with that of the list added.
func (w When) within(list limitList) When {
	if list.tier != "" {
		w.Tier = []string{list.tier}
	}
	if list.operation != "" {
		w.Operation = []string{list.operation}
	}
	return w
}

package config

import (
	"iter"
	"slices"

	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/strictyaml"
)

// Bounds on the limits that may apply to one request. One script call decides on all of them, and a
// job holds a permit of each concurrency limit until it ends.
const (
	maxMeeting     = 64
	maxConcurrency = 4
)

// requests yields all kinds of request that limits distinguish without knowing the client: a tier
// and an operation that it may use.
func (c *Config) requests() iter.Seq2[string, string] {
	tiers, operations := names(c.Tiers), names(c.Operations)
	return func(yield func(tier, operation string) bool) {
		for _, operation := range operations {
			for _, tier := range tiers {
				if c.Operations[operation].Tiers.Have(tier) && !yield(tier, operation) {
					return
				}
			}
		}
	}
}

// checkMeeting checks the limits that apply to one request against its cost and against their
// bounds.
func (c *Config) checkMeeting(r *report, tier, operation string) {
	all := c.meeting(tier, operation)
	checkNumber(r, tier, operation, all)
	cost := c.Operations[operation].Cost
	key := strictyaml.Join("operations", operation) + ".cost"
	if cost.From != "" {
		key += ".default"
	}
	for _, l := range all {
		if most, share := c.fits(l.Limit); most < cost.usual() {
			r.Errorf(key, "is more than limit %s (%s%s) can ever allow%s, so no request would be "+
				"accepted; lower the cost, or raise the limit",
				r.Shown(l.key()+".name", l.Name), l.key(), r.OnLine(l.key()),
				mostOf(r, l.key(), most, share))
		}
	}
}

// checkOwn checks a client's own limits against the costs of operations and against the others that
// apply.
func (c *Config) checkOwn(r *report, key string, client Client) {
	if len(client.Limits) == 0 || !nameForm.MatchString(client.Tier) {
		return
	}
	list := clientList(key, client)
	for _, operation := range names(c.Operations) {
		if !c.Operations[operation].Tiers.Have(client.Tier) {
			continue
		}
		others := slices.DeleteFunc(c.meeting(client.Tier, operation), func(l placed) bool {
			return l.list.tier == client.Tier && slices.ContainsFunc(client.Limits, l.same)
		})
		own := list.meeting(client.Tier, operation)
		for _, l := range own {
			if most, share := c.fits(l.Limit); most < c.Operations[operation].Cost.usual() {
				r.Errorf(l.key()+".limit", "can never allow a request for operation %s, which "+
					"costs more%s; raise it, or lower the cost",
					operation, mostOf(r, l.key(), most, share))
			}
			i := slices.IndexFunc(others, func(o placed) bool {
				return o.same(l.Limit) && o.When.Overlaps(l.When)
			})
			if i >= 0 && l.Name != "" {
				other := others[i].key()
				r.Errorf(l.key()+".name", "%s is also the name of %s%s, which isn't of the tier, "+
					"so this one can't replace it; rename one",
					r.Shown(l.key()+".name", l.Name), other, r.OnLine(other))
			}
		}
		checkNumber(r, client.Tier, operation, append(others, own...))
	}
}

// checkNumber reports the first limit that is too much for one request.
func checkNumber(r *report, tier, operation string, all []placed) {
	if len(all) > maxMeeting {
		r.Errorf(all[maxMeeting].key(), "is one too many: %d limits may apply to a request of "+
			"tier %s for operation %s; at most %d can",
			len(all), tier, operation, maxMeeting)
	}
	jobs := slices.DeleteFunc(slices.Clone(all), func(l placed) bool {
		return l.Algorithm != limits.Concurrency
	})
	if len(jobs) <= maxConcurrency {
		return
	}
	countries := []string{""}
	for _, l := range jobs {
		countries = append(countries, l.When.Countries...)
	}
	for _, country := range countries {
		meet := slices.DeleteFunc(slices.Clone(jobs), func(l placed) bool {
			return !l.When.Countries.Have(country)
		})
		if len(meet) > maxConcurrency {
			r.Errorf(meet[maxConcurrency].key(), "is one too many: %d limits of %s may apply to a "+
				"request of tier %s for operation %s; at most %d can",
				len(meet), limits.Concurrency, tier, operation, maxConcurrency)
			return
		}
	}
}

// checkLimitNames compares the names of all limits that apply to one request.
func (c *Config) checkLimitNames(r *report) {
	for _, list := range c.lists() {
		var others []limitList
		switch {
		case list.own != "" || list.reads: // checkOwn looks at the rest; reads meet no other list
		case list.tier != "":
			others = []limitList{c.everywhere()}
		case list.operation != "":
			others = []limitList{c.everywhere()}
			for _, tier := range names(c.Tiers) {
				if c.Operations[list.operation].Tiers.Have(tier) {
					others = append(others, c.tierList(tier))
				}
			}
		}
		distinct(r, list, others)
	}
}

// distinct reports limits of a list that share their name with an earlier one of the list, or with
// a limit of others that may apply to the same request. Within a list names are unique whatever the
// conditions: such limits would share a count.
func distinct(r *report, list limitList, others []limitList) {
	for n, l := range list.limits {
		if l.Name == "" {
			continue
		}
		at := list.at(n) + ".name"
		report := func(other, why string) {
			r.Errorf(at, "%s is also the name of %s%s%s; rename "+
				"one", r.Shown(at, l.Name), other, r.OnLine(other), why)
		}
		for _, o := range others {
			i := slices.IndexFunc(o.limits, func(other Limit) bool {
				return l.same(other) && within(l.When, list).Overlaps(within(other.When, o))
			})
			if i >= 0 {
				report(o.at(i), ", and both apply to one request")
			}
		}
		if i := slices.IndexFunc(list.limits[:n], l.same); i >= 0 {
			report(list.at(i), "")
		}
	}
}

// within returns a limit's condition together with that of its list.
func within(w limits.When, list limitList) limits.When {
	if list.tier != "" {
		w.Tiers = limits.Names{list.tier}
	}
	if list.operation != "" {
		w.Operations = limits.Names{list.operation}
	}
	return w
}

package config

import (
	"slices"

	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/strictyaml"
	"github.com/forebay/forebay/internal/units"
)

const (
	// maxFallbacks bounds the {operation} steps of one list. Each is a submission of its own, and
	// the client waits.
	maxFallbacks = 3
	// maxFixedBody bounds a {body} step, in bytes. A longer one is a document, and better served
	// from elsewhere.
	maxFixedBody = 64 << 10
)

// Policy returns the operation's policy in the form of package degrade.
func (o Operation) Policy() degrade.Policy {
	p := degrade.Policy{FreshFor: o.Cache.FreshFor, StaleFor: o.Cache.StaleFor,
		Share: o.Cache.Share,
		Key:   o.Cache.Key, Refresh: o.Cache.Refresh}
	if when := o.Degrade.When; when.Backend != "" {
		p.Sick = degrade.Sick{On: true, Below: when.Below}
	}
	for _, step := range o.OnOverload {
		switch {
		case step.Operation != "":
			p.Steps = append(p.Steps,
				degrade.Step{Kind: degrade.Operation, Operation: step.Operation})
		case step.Body != "":
			p.Steps = append(p.Steps, degrade.Step{Kind: degrade.Body, Body: []byte(step.Body)})
		default:
			p.Steps = append(p.Steps, degrade.Step{Kind: degrade.Kind(step.Word)})
		}
	}
	return p
}

// servesStale reports whether a stale answer may ever be served, if the steps are in a valid order.
func (o Operation) servesStale() bool { return o.Cache.StaleFor != 0 && o.triesStale() }

// triesStale reports whether one of the steps is a stale answer.
func (o Operation) triesStale() bool { return slices.Contains(o.OnOverload, Step{Word: "stale"}) }

func (c *Config) checkOverload(r *strictyaml.Report, key string, o Operation) {
	at := key + ".on_overload"
	fallbacks, answered := 0, false
	for n, step := range o.OnOverload {
		item := strictyaml.At(at, n)
		if answered && step.Word != "reject" {
			r.Errorf(item, "is never reached: the body before it answers every request")
		}
		switch {
		case step.Word == "" && (step.Operation == "") == (step.Body == ""):
			if !r.FailedWithin(item) {
				r.Errorf(item, "wants one of operation and body")
			}
		case step.Operation != "":
			if fallbacks++; fallbacks > maxFallbacks {
				r.Errorf(item, "is one operation too many; at most %d are tried", maxFallbacks)
			}
			c.checkFallback(r, item+".operation", key, o, step.Operation)
		case step.Body != "":
			answered = true
			if len(step.Body) > maxFixedBody {
				r.Errorf(item+".body", "is longer than %v", units.Size(maxFixedBody))
			}
		default:
			if step.Word != "stale" && step.Word != "reject" {
				r.Errorf(item, "%s is none of stale, reject, {operation: name}, {body: {...}}",
					r.Shown(item, step.Word))
			}
		}
		if step != (Step{}) && slices.Contains(o.OnOverload[:n], step) {
			r.Errorf(item, "stands in the list twice")
		}
	}
	if n := len(o.OnOverload); n == 0 || o.OnOverload[n-1].Word != "reject" {
		r.Errorf(at, "must end with reject, which is what is left when nothing else can be "+
			"answered; write [stale, reject] or [reject]")
	}
}

// checkFallback checks a fallback operation against the operation that it is for.
func (c *Config) checkFallback(r *strictyaml.Report, key, of string, o Operation, name string) {
	if strictyaml.Join("operations", name) == of {
		r.Errorf(key, "%s is the operation itself, which was refused; name another",
			r.Shown(key, name))
		return
	}
	r.Known(key, name, "operation", names(c.Operations))
	other, ok := c.Operations[name]
	if !ok {
		return
	}
	for _, tier := range names(c.Tiers) {
		if o.Tiers.Have(tier) && other.Tiers.Have(tier) {
			return
		}
	}
	r.Errorf(key, "%s is open to none of the tiers that may use this operation; widen its tiers, "+
		"or name another", r.Shown(key, name))
}

func (o Operation) checkCache(r *strictyaml.Report, key string) {
	key += ".cache"
	stale, fresh := key+".stale_for", key+".fresh_for"
	if (o.Cache.StaleFor != 0 || r.Given(stale)) && !o.triesStale() {
		r.Errorf(stale, "has no effect without stale in on_overload; write on_overload: [stale, "+
			"reject], or leave it out")
	}
	if o.Cache.FreshFor != 0 && o.Cache.StaleFor != 0 && o.Cache.StaleFor <= o.Cache.FreshFor {
		r.Errorf(stale, "%s isn't longer than fresh_for (%s), and both count from the backend's "+
			"answer, so none is ever stale; raise it, or leave it out",
			r.Shown(stale, o.Cache.StaleFor), r.Shown(fresh, o.Cache.FreshFor))
	}
	if o.Cache.Refresh && !o.servesStale() {
		r.Errorf(key+".refresh", "has no effect where no stale answer is served; set stale_for, "+
			"or leave it out")
	}
	for n, pointer := range o.Cache.Key {
		checkPointer(r, strictyaml.At(key+".key", n), pointer, "month")
	}
	checkTwice(r, key+".key", o.Cache.Key)
	if r.Given(key+".key") && len(o.Cache.Key) == 0 {
		r.Errorf(key+".key", "is empty, so all payloads would have one answer; list JSON "+
			"Pointers, or leave it out")
	}
}

func (o Operation) checkDegrade(r *strictyaml.Report, key string) {
	key += ".degrade"
	if o.Degrade == (Degrade{}) && !r.Given(key) {
		return
	}
	key += ".when"
	checkPart(r, key+".below", o.Degrade.When.Below, 0, 1, "a part of the backend's rate")
	if !o.servesStale() {
		r.Errorf(key, "has no effect where no stale answer is served; set cache.stale_for and "+
			"stale in on_overload, or leave it out")
	}
}

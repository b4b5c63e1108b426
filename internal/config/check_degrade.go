package config

import (
	"fmt"
	"slices"

	"github.com/forebay/forebay/internal/strictyaml"
	"github.com/forebay/forebay/internal/units"
)

const (
	// maxSimplified bounds the {operation} steps of one list: each is a whole admission, for a client that waits.
	maxSimplified = 3
	// maxFixedBody bounds a {body} step, in bytes: what is longer is a document, and better served from elsewhere.
	maxFixedBody = 64 << 10
)

// serves reports whether stale answers are among what is tried.
func (o Operation) servesStale() bool { return slices.Contains(o.OnOverload, Step{Word: "stale"}) }

func (c *Config) checkOverload(r *strictyaml.Report, key string, o Operation) {
	at := key + ".on_overload"
	simplified, answered := 0, false
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
			if simplified++; simplified > maxSimplified {
				r.Errorf(item, "is one operation too many; at most %d are tried", maxSimplified)
			}
			c.checkSimplified(r, item+".operation", key, o, step.Operation)
		case step.Body != "":
			answered = true
			if len(step.Body) > maxFixedBody {
				r.Errorf(item+".body", "is longer than %v", units.Size(maxFixedBody))
			}
		default:
			if step.Word != "stale" && step.Word != "reject" {
				r.Errorf(item, "%s is none of stale, reject, {operation: name}, {body: {...}}", r.Shown(item, step.Word))
			}
		}
		if step != (Step{}) && slices.Contains(o.OnOverload[:n], step) {
			r.Errorf(item, "stands in the list twice")
		}
	}
	if n := len(o.OnOverload); n == 0 || o.OnOverload[n-1].Word != "reject" {
		r.Errorf(at, "must end with reject, which is what is left when nothing else can be answered; write [stale, reject] or [reject]")
	}
}

// checkSimplified holds the operation that stands in for another against that.
func (c *Config) checkSimplified(r *strictyaml.Report, key, of string, o Operation, name string) {
	if strictyaml.Join("operations", name) == of {
		r.Errorf(key, "%s is the operation itself, which was refused; name another", r.Shown(key, name))
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
	r.Errorf(key, "%s is open to none of the tiers that may use this operation; widen its tiers, or name another", r.Shown(key, name))
}

func (o Operation) checkCache(r *strictyaml.Report, key string) {
	key += ".cache"
	if o.Cache.StaleFor != 0 || r.Given(key+".stale_for") {
		if !o.servesStale() {
			r.Errorf(key+".stale_for", "has no effect without stale in on_overload; write on_overload: [stale, reject], or leave it out")
		}
	}
	if o.Cache.FreshFor != 0 || r.Given(key+".fresh_for") {
		if stale := o.Cache.StaleFor; stale != 0 && stale <= o.Cache.FreshFor {
			r.Errorf(key+".stale_for", "%s isn't longer than fresh_for (%s), and both count from the backend's answer, so none is ever stale; raise it, or leave it out",
				r.Shown(key+".stale_for", stale), r.Shown(key+".fresh_for", o.Cache.FreshFor))
		}
	}
	if o.Cache.Refresh && (o.Cache.StaleFor == 0 || !o.servesStale()) {
		r.Errorf(key+".refresh", "has no effect where no stale answer is served; set stale_for, or leave it out")
	}
	for n, pointer := range o.Cache.Key {
		at := fmt.Sprintf("%s.key[%d]", key, n)
		checkPointer(r, at, pointer, "month")
	}
	checkTwice(r, key+".key", o.Cache.Key)
	if r.Given(key+".key") && len(o.Cache.Key) == 0 {
		r.Errorf(key+".key", "is empty, so all payloads would have one answer; list JSON Pointers, or leave it out")
	}
}

func (o Operation) checkDegrade(r *strictyaml.Report, key string) {
	when := o.Degrade.When
	key += ".degrade"
	if o.Degrade == (Degrade{}) && !r.Given(key) {
		return
	}
	key += ".when"
	checkPart(r, key+".below", when.Below, 0, 1, "a part of the backend's rate")
	if o.Cache.StaleFor == 0 || !o.servesStale() {
		r.Errorf(key, "has no effect where no stale answer is served; set cache.stale_for and stale in on_overload, or leave it out")
	}
}

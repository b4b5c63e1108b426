package config

import (
	"fmt"
	"slices"
	"time"
)

const (
	// maxSimplified bounds the {operation} steps of one list: each is a whole admission, for a client that waits.
	maxSimplified = 3
	// maxFixedBody bounds a {body} step, in bytes: what is longer is a document, and better served from elsewhere.
	maxFixedBody = 64 << 10
)

// serves reports whether stale answers are among what is tried.
func (o Operation) servesStale() bool { return slices.Contains(o.OnOverload, Step{Word: "stale"}) }

func (c *Config) checkOverload(r *report, key string, o Operation) {
	at := key + ".on_overload"
	simplified, answered := 0, false
	for n, step := range o.OnOverload {
		item := fmt.Sprintf("%s[%d]", at, n)
		if answered && step.Word != "reject" {
			r.errorf(item, "is never reached: the body before it answers every request")
		}
		switch {
		case step.Operation != "":
			if simplified++; simplified > maxSimplified {
				r.errorf(item, "is one operation too many; at most %d are tried", maxSimplified)
			}
			c.checkSimplified(r, item+".operation", key, o, step.Operation)
		case step.Body != "":
			answered = true
			if len(step.Body) > maxFixedBody {
				r.errorf(item+".body", "is longer than %v", Size(maxFixedBody))
			}
		case step.Word != "":
			if step.Word != "stale" && step.Word != "reject" {
				r.errorf(item, "%s is none of stale, reject, {operation: name}, {body: {...}}", r.shown(item, step.Word))
			}
		}
		if step != (Step{}) && slices.Contains(o.OnOverload[:n], step) {
			r.errorf(item, "stands in the list twice")
		}
	}
	if n := len(o.OnOverload); n == 0 || o.OnOverload[n-1].Word != "reject" {
		r.errorf(at, "must end with reject, which is what is left when nothing else can be answered; write [stale, reject] or [reject]")
	}
}

// checkSimplified holds the operation that stands in for another against that.
func (c *Config) checkSimplified(r *report, key, of string, o Operation, name string) {
	if join("operations", name) == of {
		r.errorf(key, "%s is the operation itself, which was refused; name another", r.shown(key, name))
		return
	}
	r.known(key, name, "operation", names(c.Operations))
	other, ok := c.Operations[name]
	if !ok {
		return
	}
	for _, tier := range names(c.Tiers) {
		if o.allows(tier) && other.allows(tier) {
			return
		}
	}
	r.errorf(key, "%s is open to none of the tiers that may use this operation; widen its tiers, or name another", r.shown(key, name))
}

func (o Operation) checkCache(r *report, key string) {
	key += ".cache"
	if o.Cache.StaleFor != 0 || r.given(key+".stale_for") {
		r.duration(key+".stale_for", o.Cache.StaleFor, time.Second, maxStale)
		if !o.servesStale() {
			r.errorf(key+".stale_for", "has no effect without stale in on_overload; write on_overload: [stale, reject], or leave it out")
		}
	}
	if o.Cache.FreshFor != 0 || r.given(key+".fresh_for") {
		r.duration(key+".fresh_for", o.Cache.FreshFor, time.Second, maxStale)
		if stale := o.Cache.StaleFor; stale != 0 && stale <= o.Cache.FreshFor {
			r.errorf(key+".stale_for", "%s isn't longer than fresh_for (%s), and both count from the backend's answer, so none is ever stale; raise it, or leave it out",
				r.shown(key+".stale_for", formatDuration(stale)), r.shown(key+".fresh_for", formatDuration(o.Cache.FreshFor)))
		}
	}
	r.oneOf(key+".share", o.Cache.Share, "client", "tier", "all")
	if o.Cache.Refresh && (o.Cache.StaleFor == 0 || !o.servesStale()) {
		r.errorf(key+".refresh", "has no effect where no stale answer is served; set stale_for, or leave it out")
	}
	for n, pointer := range o.Cache.Key {
		at := fmt.Sprintf("%s.key[%d]", key, n)
		switch {
		case !pointerForm.MatchString(pointer) || len(pointer) > 256:
			r.errorf(at, "%s isn't a JSON Pointer of at most 256 characters; write it as /month, or /options/month for a field within another", r.shown(at, pointer))
		case slices.Contains(o.Cache.Key[:n], pointer):
			r.errorf(at, "%s stands in the list twice", r.shown(at, pointer))
		}
	}
	if r.given(key+".key") && len(o.Cache.Key) == 0 {
		r.errorf(key+".key", "is empty, so all payloads would have one answer; list JSON Pointers, or leave it out")
	}
}

func (o Operation) checkDegrade(r *report, key string) {
	when := o.Degrade.When
	key += ".degrade"
	if o.Degrade == (Degrade{}) && !r.given(key) {
		return
	}
	key += ".when"
	if when.Backend != "sick" {
		if when.Backend == "" {
			r.errorf(key+".backend", "is required: sick")
		} else {
			r.oneOf(key+".backend", when.Backend, "sick")
		}
	}
	if r.given(key+".below") && (when.Below <= 0 || when.Below > 1) {
		r.errorf(key+".below", "%s is out of bounds; write a part of the backend's rate, above 0 and at most 1", r.shown(key+".below", when.Below))
	}
	if o.Cache.StaleFor == 0 || !o.servesStale() {
		r.errorf(key, "has no effect where no stale answer is served; set cache.stale_for and stale in on_overload, or leave it out")
	}
}

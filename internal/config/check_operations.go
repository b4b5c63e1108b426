package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/strictyaml"
	"github.com/forebay/forebay/internal/units"
)

const (
	// maxFallbacks bounds the {operation} steps of one list. Each is a whole admission, for which
	// the client waits.
	maxFallbacks = 3
	// maxFixedBody bounds a {body} step, in bytes. A longer one is a document, and better served
	// from elsewhere.
	maxFixedBody = 64 << 10
)

func (c *Config) checkOperation(r *report, key string, o Operation) {
	if o.Backend == "" {
		r.Errorf(key+".backend", "is required; known backends: "+
			"%s", strictyaml.List(names(c.Backends)))
	} else {
		r.Known(key+".backend", o.Backend, "backend", names(c.Backends))
	}
	checkPath(r, key+".path", o.Path)

	if o.Tiers != nil && len(o.Tiers) == 0 {
		r.Errorf(key+".tiers",
			"is empty, so nobody could use it; list tiers, or leave it out to allow all")
	}
	for n, tier := range o.Tiers {
		r.Known(strictyaml.At(key+".tiers", n), tier, "tier", names(c.Tiers))
	}
	checkTwice(r, key+".tiers", o.Tiers)
	o.Cost.check(r, key+".cost")
	c.checkOverload(r, key, o)
	o.checkCache(r, key+".cache")
	o.checkDegrade(r, key+".degrade")
}

func checkPath(r *report, key, path string) {
	_, err := url.ParseRequestURI(path)
	switch {
	case !strings.HasPrefix(path, "/"):
		r.Errorf(key, "%s must begin with /", r.Shown(key, path))
	case err != nil || strings.ContainsAny(path, " #"):
		r.Errorf(key, "%s isn't a path; write other characters as %%XX", r.Shown(key, path))
	}
}

// pointerForm is RFC 6901 without the empty pointer, which means the whole payload.
var pointerForm = regexp.MustCompile(`^(?:/(?:[^~/]|~[01])*)+$`)

// checkPointer checks a JSON Pointer. Errors show the example.
func checkPointer(r *report, key, pointer, example string) {
	if !pointerForm.MatchString(pointer) || len(pointer) > 256 {
		r.Errorf(key, "%s isn't a JSON Pointer of at most 256 characters; write it as /%s, or "+
			"/options/%s for a field within another", r.Shown(key, pointer), example, example)
	}
}

func (c Cost) check(r *report, key string) {
	if c.From == "" {
		return
	}
	checkPointer(r, key+".from", c.From, "pages")
	if usual, most := key+".default", key+".max"; c.Default > c.Max && !r.Failed(most) {
		r.Errorf(usual, "%s is more than max (%s); raise max, or lower the default",
			r.Shown(usual, c.Default), r.Shown(most, c.Max))
	}
}

// Policy returns what the operation permits, as a degrade.Policy.
func (o Operation) Policy() degrade.Policy {
	p := degrade.Policy{FreshFor: o.Cache.FreshFor, StaleFor: o.Cache.StaleFor,
		Share: o.Cache.Share, Key: o.Cache.Key, Refresh: o.Cache.Refresh}
	if when := o.Degrade.When; when.Backend != "" {
		p.Sick = degrade.Sick{On: true, Below: when.Below}
	}
	for _, step := range o.OnOverload {
		is := degrade.Kind(step.Word)
		switch {
		case step.Operation != "":
			is = degrade.Operation
		case step.Body != "":
			is = degrade.Body
		}
		p.Steps = append(p.Steps,
			degrade.Step{Kind: is, Operation: step.Operation, Body: []byte(step.Body)})
	}
	return p
}

// triesStale reports whether on_overload has a stale answer.
func (o Operation) triesStale() bool { return slices.Contains(o.OnOverload, Step{Word: "stale"}) }

// servesStale reports whether a stale answer may ever be served, if the steps are in a right order.
func (o Operation) servesStale() bool { return o.Cache.StaleFor != 0 && o.triesStale() }

func (c *Config) checkOverload(r *report, key string, o Operation) {
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
		case step.Word != "stale" && step.Word != "reject":
			r.Errorf(item, "%s is none of stale, reject, {operation: name}, {body: {...}}",
				r.Shown(item, step.Word))
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

// checkFallback checks that some tier may use both an operation and the named fallback operation.
func (c *Config) checkFallback(r *report, key, of string, o Operation, name string) {
	if strictyaml.Join("operations", name) == of {
		r.Errorf(key, "%s is the operation itself, which was refused; name "+
			"another", r.Shown(key, name))
		return
	}
	r.Known(key, name, "operation", names(c.Operations))
	other, ok := c.Operations[name]
	if ok && !slices.ContainsFunc(names(c.Tiers), func(tier string) bool {
		return o.Tiers.Have(tier) && other.Tiers.Have(tier)
	}) {
		r.Errorf(key, "%s is open to none of the tiers that may use this operation; widen its "+
			"tiers, or name another", r.Shown(key, name))
	}
}

func (o Operation) checkCache(r *report, key string) {
	stale, fresh := key+".stale_for", key+".fresh_for"
	if (o.Cache.StaleFor != 0 || r.Given(stale)) && !o.triesStale() {
		r.Errorf(stale, "has no effect without stale in on_overload; write on_overload: "+
			"[stale, reject], or leave it out")
	}
	if o.Cache.FreshFor != 0 && o.Cache.StaleFor != 0 && o.Cache.StaleFor <= o.Cache.FreshFor {
		r.Errorf(stale, "%s isn't longer than fresh_for (%s), and both count from the backend's "+
			"answer, so none is ever stale; raise it, or leave it out",
			r.Shown(stale, o.Cache.StaleFor), r.Shown(fresh, o.Cache.FreshFor))
	}
	if o.Cache.Refresh && !o.servesStale() {
		r.Errorf(key+".refresh",
			"has no effect where no stale answer is served; set stale_for, or leave it out")
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

func (o Operation) checkDegrade(r *report, key string) {
	if o.Degrade == (Degrade{}) && !r.Given(key) {
		return
	}
	checkPart(r, key+".when.below", o.Degrade.When.Below, 0, 1, "a part of the backend's rate")
	if !o.servesStale() {
		r.Errorf(key+".when", "has no effect where no stale answer is served; set cache.stale_for "+
			"and stale in on_overload, or leave it out")
	}
}

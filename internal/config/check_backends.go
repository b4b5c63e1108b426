package config

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	day      = 24 * time.Hour
	maxStay  = 30 * day // how long a job may stay in Redis, before it is finished and after
	maxStale = 366 * day
)

func (b Backend) check(r *report, key string) {
	checkURL(r, key+".url", b.URL)
	if b.Drain.Rate == "" {
		r.errorf(key+".drain.rate", "is required: what the backend can bear, such as 5/s, 6/m or unlimited")
	} else if err := checkRate(b.Drain.Rate); err != nil {
		r.errorf(key+".drain.rate", "%s %v", r.shown(key+".drain.rate", b.Drain.Rate), err)
	}
	r.number(key+".drain.burst", float64(b.Drain.Burst), 1, 10_000)
	r.number(key+".drain.concurrency", float64(b.Drain.Concurrency), 1, 10_000)

	r.number(key+".line.capacity", float64(b.Line.Capacity), 1, 10_000_000)
	r.duration(key+".line.max_wait", b.Line.MaxWait, 100*time.Millisecond, maxStay)
	if b.Line.ClientShare <= 0 || b.Line.ClientShare > 1 {
		r.errorf(key+".line.client_share", "%s is out of bounds; write the part of the line that one client may hold, above 0 and at most 1",
			r.shown(key+".line.client_share", b.Line.ClientShare))
	}

	r.duration(key+".timeout", b.Timeout, 10*time.Millisecond, day)
	r.duration(key+".max_age", b.MaxAge, time.Second, maxStay)
	r.duration(key+".keep_failed", b.KeepFailed, time.Second, maxStay)
	b.Retry.check(r, key+".retry")
	checkHeaders(r, key+".headers", b.Headers)
}

func (t Retry) check(r *report, key string) {
	r.number(key+".attempts", float64(t.Attempts), 1, 100)
	r.duration(key+".base", t.Base, time.Millisecond, day)
	r.duration(key+".cap", t.Cap, time.Millisecond, day)
	if t.Base > t.Cap {
		r.errorf(key+".base", "is longer than %s.cap; no wait is longer than cap, so raise that or lower base", key)
	}
	statuses := func(list string, all, before []int) {
		for n, status := range all {
			at := fmt.Sprintf("%s.%s[%d]", key, list, n)
			switch {
			case slices.Contains(before, status):
				r.errorf(at, "%s is in %s.rest: it closes the backend's gate and uses up no attempt; leave it out of one of the lists",
					r.shown(at, status), key)
			case status < 400 || status > 599:
				r.errorf(at, "%s is no status of a failure; write one of 400 to 599", r.shown(at, status))
			case slices.Contains(all[:n], status):
				r.errorf(at, "%s stands in the list twice", r.shown(at, status))
			}
		}
	}
	statuses("rest", t.Rest, nil)
	if rest := t.Rest; r.given(key + ".rest") {
		statuses("on", t.On, rest)
	} else { // 529 wasn't always a default: a list of on that has it stands, and goes first
		statuses("on", t.On, slices.DeleteFunc(slices.Clone(rest), func(status int) bool { return status == 529 }))
	}
}

func checkURL(r *report, key, text string) {
	const form = "http://host:port or https://host/path"
	if text == "" {
		r.errorf(key, "is required: %s", form)
		return
	}
	// The URL isn't shown: a user in it may be a secret.
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || !isHost(u.Hostname()) || !isPort(u.Port()):
		r.errorf(key, "isn't a URL of a service; write %s", form)
	case u.User != nil:
		r.errorf(key, "holds a user; send credentials in headers, such as Authorization: Basic ${NAME}")
	case strings.ContainsAny(text, "?#"):
		r.errorf(key, "holds a query or a fragment; write %s", form)
	}
}

// isPort reports whether a URL's port can be connected to; "" is its scheme's.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}

// headerName is RFC 9110's token.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

// reserved are the fields that the service sets itself for each call, or that belong to the
// connection and would break it.
var reserved = []string{"Idempotency-Key", "Traceparent", "Tracestate", "Host", "Content-Length", "Transfer-Encoding", "Connection",
	"Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Upgrade", "Expect"}

func checkHeaders(r *report, key string, headers map[string]Secret) {
	spelling := map[string]string{}
	for _, name := range names(headers) {
		at := join(key, name)
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !headerName.MatchString(name):
			r.errorf(at, "%s isn't a header name", brief(name))
		case slices.Contains(reserved, canonical) || strings.HasPrefix(canonical, "Forebay-"):
			r.errorf(at, "is set by the service itself; leave it out")
		case spelling[canonical] != "":
			r.errorf(at, "is the same header as %s; header names are the same in any case", spelling[canonical])
		case strings.ContainsFunc(string(headers[name]), isControl):
			r.errorf(at, "has a line break or another control character in its value; does a variable end with one?")
		case len(headers[name]) > 8<<10:
			r.errorf(at, "is longer than 8KiB, which few servers accept")
		}
		spelling[canonical] = name
	}
}

func (c *Config) checkOperation(r *report, key string, o Operation) {
	if o.Backend == "" {
		r.errorf(key+".backend", "is required; known backends: %s", list(names(c.Backends)))
	} else {
		r.known(key+".backend", o.Backend, "backend", names(c.Backends))
	}
	r.oneOf(key+".method", o.Method, http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete)
	checkPath(r, key+".path", o.Path)

	if o.Tiers != nil && len(o.Tiers) == 0 {
		r.errorf(key+".tiers", "is empty, so nobody could use it; list tiers, or leave it out to allow all")
	}
	for n, tier := range o.Tiers {
		at := fmt.Sprintf("%s.tiers[%d]", key, n)
		r.known(at, tier, "tier", names(c.Tiers))
		if slices.Contains(o.Tiers[:n], tier) {
			r.errorf(at, "%s stands in the list twice", r.shown(at, tier))
		}
	}
	if o.OnFailure != "" {
		r.oneOf(key+".on_failure", o.OnFailure, "local", "allow", "refuse")
	}
	o.Cost.check(r, key+".cost")
	c.checkOverload(r, key, o)
	o.checkCache(r, key)
	o.checkDegrade(r, key)
	r.duration(key+".keep_result", o.KeepResult, time.Second, maxStay)
	r.size(key+".max_result", o.MaxResult, 1, 64<<20)
}

// pointerForm is RFC 6901 without the empty pointer: the whole payload is no number beside others.
var pointerForm = regexp.MustCompile(`^(?:/(?:[^~/]|~[01])*)+$`)

func (c Cost) check(r *report, key string) {
	const form = "/pages, or /options/pages for a field within another"
	amount := func(key string, n int64) {
		if n < 1 || n > maxAmount {
			r.errorf(key, "%s is out of bounds; write 1 to %d", r.shown(key, n), maxAmount)
		}
	}
	if c.From == "" && c.Fixed != 0 || r.places[key].text != "" {
		amount(key, c.Fixed)
		return
	}
	switch {
	case c.From == "":
		r.errorf(key+".from", "is required: a JSON Pointer to the number in the payload, such as %s", form)
	case !pointerForm.MatchString(c.From) || len(c.From) > 256:
		r.errorf(key+".from", "%s isn't a JSON Pointer of at most 256 characters; write it as %s", r.shown(key+".from", c.From), form)
	}
	amount(key+".default", c.Default)
	if c.Max == 0 && !r.given(key+".max") {
		r.errorf(key+".max", "is required: the highest cost that a request may have")
		return
	}
	amount(key+".max", c.Max)
	if c.Default > c.Max {
		r.errorf(key+".default", "%s is more than max (%s); raise max, or lower the default", r.shown(key+".default", c.Default), r.shown(key+".max", c.Max))
	}
}

func checkPath(r *report, key, path string) {
	_, err := url.ParseRequestURI(path)
	switch {
	case path == "":
		r.errorf(key, "is required: where the backend is called, such as /render")
	case path[0] != '/':
		r.errorf(key, "%s must begin with /", r.shown(key, path))
	case err != nil || strings.ContainsAny(path, " #"):
		r.errorf(key, "%s isn't a path; write other characters as %%XX", r.shown(key, path))
	}
}

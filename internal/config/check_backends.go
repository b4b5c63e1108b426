package config

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/forebay/forebay/internal/strictyaml"
)

func (b Backend) check(r *strictyaml.Report, key string) {
	checkURL(r, key+".url", b.URL)
	checkPart(r, key+".line.client_share", b.Line.ClientShare, 0, 1, "the part of the line that "+
		"one client may hold")
	b.Retry.check(r, key+".retry")
	checkHeaders(r, key+".headers", b.Headers)
}

func (t Retry) check(r *strictyaml.Report, key string) {
	if t.Base > t.Cap {
		r.Errorf(key+".base", "is longer than %s.cap; no wait is longer than cap, so raise that "+
			"or lower base", key)
	}
	statuses := func(list string, all, before []int) {
		for n, status := range all {
			at := fmt.Sprintf("%s.%s[%d]", key, list, n)
			switch {
			case slices.Contains(before, status):
				r.Errorf(at, "%s is in %s.rest: it closes the backend's gate and uses up no "+
					"attempt; leave it out of one of the lists",
					r.Shown(at, status), key)
			case status < 400 || status > 599:
				r.Errorf(at, "%s is no status of a failure; write one of 400 to 599",
					r.Shown(at, status))
			}
		}
		checkTwice(r, key+"."+list, all)
	}
	statuses("rest", t.Rest, nil)
	if rest := t.Rest; r.Given(key + ".rest") {
		statuses("on", t.On, rest)
	} else {
		// 529 wasn't always a default of rest: a list of on that has it is valid, and takes
		// precedence.
		statuses("on", t.On, slices.DeleteFunc(slices.Clone(rest),
			func(status int) bool { return status == 529 }))
	}
}

func checkURL(r *strictyaml.Report, key, text string) {
	const form = "http://host:port or https://host/path"
	if text == "" {
		r.Errorf(key, "is required: %s", form)
		return
	}
	// The URL isn't shown: its user may be a secret.
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || !isHost(u.Hostname()) ||
		!isPort(u.Port()):
		r.Errorf(key, "isn't a URL of a service; write %s", form)
	case u.User != nil:
		r.Errorf(key, "holds a user; send credentials in headers, such as Authorization: Basic "+
			"${NAME}")
	case strings.ContainsAny(text, "?#"):
		r.Errorf(key, "holds a query or a fragment; write %s", form)
	}
}

// isPort reports whether a URL's port can be connected to; "" is the scheme's port.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}

// headerName is a token of RFC 9110.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

// reserved are the fields that the service itself sets for each call, or that would break the
// connection.
var reserved = []string{"Idempotency-Key", "Traceparent", "Tracestate", "Host", "Content-Length",
	"Transfer-Encoding", "Connection",
	"Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Upgrade", "Expect"}

func checkHeaders(r *strictyaml.Report, key string, headers map[string]strictyaml.Secret) {
	spelling := map[string]string{}
	for _, name := range names(headers) {
		at := strictyaml.Join(key, name)
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !headerName.MatchString(name):
			r.Errorf(at, "%s isn't a header name", strictyaml.Quote(name))
		case slices.Contains(reserved, canonical) || strings.HasPrefix(canonical, "Forebay-"):
			r.Errorf(at, "is set by the service itself; leave it out")
		case spelling[canonical] != "":
			r.Errorf(at, "is the same header as %s; header names are the same in any case",
				spelling[canonical])
		case strings.ContainsFunc(string(headers[name]), isControl):
			r.Errorf(at, "has a line break or another control character in its value; does a "+
				"variable end with one?")
		case len(headers[name]) > 8<<10:
			r.Errorf(at, "is longer than 8KiB, which few servers accept")
		}
		spelling[canonical] = name
	}
}

func (c *Config) checkOperation(r *strictyaml.Report, key string, o Operation) {
	if o.Backend == "" {
		r.Errorf(key+".backend", "is required; known backends: %s",
			strictyaml.List(names(c.Backends)))
	} else {
		r.Known(key+".backend", o.Backend, "backend", names(c.Backends))
	}
	checkPath(r, key+".path", o.Path)

	if o.Tiers != nil && len(o.Tiers) == 0 {
		r.Errorf(key+".tiers", "is empty, so nobody could use it; list tiers, or leave it out to "+
			"allow all")
	}
	for n, tier := range o.Tiers {
		at := fmt.Sprintf("%s.tiers[%d]", key, n)
		r.Known(at, tier, "tier", names(c.Tiers))
	}
	checkTwice(r, key+".tiers", o.Tiers)
	o.Cost.check(r, key+".cost")
	c.checkOverload(r, key, o)
	o.checkCache(r, key)
	o.checkDegrade(r, key)
}

// pointerForm is RFC 6901 without the empty pointer: the whole payload isn't a field.
var pointerForm = regexp.MustCompile(`^(?:/(?:[^~/]|~[01])*)+$`)

// checkPointer checks a JSON Pointer. Its message shows one to the field example.
func checkPointer(r *strictyaml.Report, key, pointer, example string) {
	if !pointerForm.MatchString(pointer) || len(pointer) > 256 {
		r.Errorf(key, "%s isn't a JSON Pointer of at most 256 characters; write it as /%s, or "+
			"/options/%s for a field within another",
			r.Shown(key, pointer), example, example)
	}
}

func (c Cost) check(r *strictyaml.Report, key string) {
	if c.From == "" {
		return
	}
	checkPointer(r, key+".from", c.From, "pages")
	if c.Default > c.Max && !r.Failed(key+".max") {
		r.Errorf(key+".default", "%s is more than max (%s); raise max, or lower the default",
			r.Shown(key+".default", c.Default), r.Shown(key+".max", c.Max))
	}
}

func checkPath(r *strictyaml.Report, key, path string) {
	_, err := url.ParseRequestURI(path)
	switch {
	case !strings.HasPrefix(path, "/"):
		r.Errorf(key, "%s must begin with /", r.Shown(key, path))
	case err != nil || strings.ContainsAny(path, " #"):
		r.Errorf(key, "%s isn't a path; write other characters as %%XX", r.Shown(key, path))
	}
}

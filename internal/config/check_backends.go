package config

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/forebay/forebay/internal/strictyaml"
)

func (b Backend) check(r *report, key string) {
	checkURL(r, key+".url", b.URL)
	checkPart(r, key+".line.client_share", b.Line.ClientShare, 0, 1,
		"the part of the line that one client may hold")
	b.Retry.check(r, key+".retry")
	checkHeaders(r, key+".headers", b.Headers)
}

func (t Retry) check(r *report, key string) {
	if t.Base > t.Cap {
		r.Errorf(key+".base", "is longer than %s.cap; no wait is longer than cap, so raise that "+
			"or lower base", key)
	}
	rest := t.Rest
	if !r.Given(key + ".rest") {
		// 529 wasn't always a default of rest: a list of on that has it takes precedence.
		rest = slices.DeleteFunc(slices.Clone(rest), func(status int) bool { return status == 529 })
	}
	checkStatuses(r, key+".rest", t.Rest)
	for n, status := range t.On {
		if at := strictyaml.At(key+".on", n); slices.Contains(rest, status) {
			r.Errorf(at, "%s is in %s.rest: it closes the backend's gate and uses up no attempt; "+
				"leave it out of one of the lists", r.Shown(at, status), key)
		}
	}
	checkStatuses(r, key+".on", t.On)
}

func checkStatuses(r *report, key string, all []int) {
	for n, status := range all {
		if at := strictyaml.At(key, n); status < 400 || status > 599 {
			r.Errorf(at, "%s is no status of a failure; write one of 400 to "+
				"599", r.Shown(at, status))
		}
	}
	checkTwice(r, key, all)
}

func checkURL(r *report, key, text string) {
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
		r.Errorf(key, "holds a user; send credentials in headers, such as "+
			"Authorization: Basic ${NAME}")
	case strings.ContainsAny(text, "?#"):
		r.Errorf(key, "holds a query or a fragment; write %s", form)
	}
}

// isPort reports whether a URL's port is valid; "" is the scheme's port.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}

// headerName is a token of RFC 9110.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

// reserved are the fields that the worker sets itself for each call, or that would break the
// connection.
var reserved = []string{"Idempotency-Key", "Traceparent", "Tracestate", "Host", "Content-Length",
	"Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Upgrade",
	"Expect"}

func checkHeaders(r *report, key string, headers map[string]strictyaml.Secret) {
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

package web

import (
	"math/rand/v2"
	"net/http"
	"strings"
)

// maxRequestID bounds the request ids that are accepted from clients, in bytes.
const maxRequestID = 64

// requestID returns the id that a request has, if it is valid (1 to 64 letters, digits and _.-),
// otherwise a new one.
func requestID(h http.Header) string {
	given := h.Get("X-Request-Id")
	if given == "" || len(given) > maxRequestID {
		return newRequestID()
	}
	for i := range len(given) {
		b := given[i]
		if (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && (b < '0' || b > '9') &&
			b != '_' && b != '.' && b != '-' {
			return newRequestID()
		}
	}
	return given
}

// newRequestID returns an id of 26 letters and digits, with 128 random bits. It only serves to find
// log lines, so it needn't be secret.
func newRequestID() string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	var id [26]byte
	a, b := rand.Uint64(), rand.Uint64()
	for i := range len(id) / 2 {
		id[2*i], id[2*i+1] = letters[a>>(5*i)%32], letters[b>>(5*i)%32]
	}
	return string(id[:])
}

// Traceparent returns a request's W3C trace context, for the backend, or "" if there is none or it
// is malformed.
func Traceparent(h http.Header) string {
	lines := h["Traceparent"]
	if len(lines) != 1 {
		return ""
	}
	// 00-<32 hex>-<16 hex>-<2 hex>; ids of zeroes alone are invalid.
	const zeroTrace, zeroParent = "00000000000000000000000000000000", "0000000000000000"
	given := lines[0]
	if len(given) != 55 || given[:3] != "00-" || given[35] != '-' || given[52] != '-' {
		return ""
	}
	trace, parent, flags := given[3:35], given[36:52], given[53:]
	if strings.Trim(trace+parent+flags, "0123456789abcdef") != "" ||
		trace == zeroTrace || parent == zeroParent {
		return ""
	}
	return given
}

// Matches reports whether the lines of an If-None-Match field name a tag, by weak comparison
// (RFC 9110, section 13.1.2).
func Matches(lines []string, tag string) bool {
	want := strings.TrimPrefix(tag, "W/")
	return AnyTag(lines, func(tag string) bool { return tag == want })
}

// IfMatch reads an If-Match field (RFC 9110, section 13.1.1): whether it is *, and whether it names
// a tag, by strong comparison. An error is the problem of a field that is neither * nor a list of
// entity tags.
func IfMatch(lines []string, tag string) (any, found bool, err error) {
	if len(lines) == 1 && strings.Trim(lines[0], " \t") == "*" {
		return true, true, nil
	}
	tags := 0
	for _, line := range lines {
		for line != "" {
			var item string
			item, line = CutListItem(line)
			if item = strings.Trim(item, " \t"); item == "" {
				continue // as in any list
			}
			text, opened := strings.CutPrefix(strings.TrimPrefix(item, "W/"), `"`)
			text, closed := strings.CutSuffix(text, `"`)
			if !opened || !closed || strings.ContainsFunc(text, func(r rune) bool {
				return r <= ' ' || r == '"' || r == 0x7f
			}) {
				return false, false, InvalidRequest("If-Match must be *, or an ETag in its quotes.")
			}
			tags++
			found = found || item == tag
		}
	}
	if tags == 0 {
		return false, false, InvalidRequest("If-Match is empty: send * or an ETag, or none.")
	}
	return false, found, nil
}

// AnyTag reports whether is returns true for one of the tags of an If-None-Match field, which it
// gets without their W/. For a *, AnyTag returns true.
func AnyTag(lines []string, is func(tag string) bool) bool {
	for _, line := range lines {
		for line != "" {
			var item string
			item, line = CutListItem(line)
			item = strings.Trim(item, " \t")
			if item == "*" || is(strings.TrimPrefix(item, "W/")) {
				return true
			}
		}
	}
	return false
}

// CutListItem cuts the first item off a comma-separated list. A comma within a quoted string is no
// separator.
func CutListItem(list string) (item, rest string) {
	quoted := false
	for i := 0; i < len(list); i++ {
		switch {
		case list[i] == '"':
			quoted = !quoted
		case list[i] == '\\' && quoted:
			i++
		case list[i] == ',' && !quoted:
			return list[:i], list[i+1:]
		}
	}
	return list, ""
}

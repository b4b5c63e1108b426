package httpapi

import (
	"strconv"
	"strings"
	"time"

	"github.com/forebay/forebay/internal/web"
)

// maxWait bounds how long an answer is held back for a client that asked for it (Prefer: wait=N).
// Proxies cut silent connections from 60 s on; 30 s is well below that.
const maxWait = 30 * time.Second

// preferredWait returns the wait of a request's Prefer lines (RFC 7240), cut to maxWait; 0 if there
// is none. The first of several counts. Preferences that aren't understood are ignored, as the RFC
// requires.
func preferredWait(lines []string) time.Duration {
	for _, line := range lines {
		for line != "" {
			var preference string
			preference, line = web.CutListItem(line)
			preference, _, _ = strings.Cut(preference, ";")
			name, value, _ := strings.Cut(preference, "=")
			if strings.EqualFold(strings.Trim(name, " \t"), "wait") {
				return waitSeconds(strings.Trim(value, " \t"))
			}
		}
	}
	return 0
}

// waitSeconds reads delta-seconds, quoted or not.
func waitSeconds(text string) time.Duration {
	if n := len(text); n >= 2 && text[0] == '"' && text[n-1] == '"' {
		text = text[1 : n-1]
	}
	var wait time.Duration
	for _, digit := range []byte(text) {
		if digit < '0' || digit > '9' {
			return 0
		}
		wait = min(wait*10+time.Duration(digit-'0')*time.Second, maxWait)
	}
	return wait
}

// wantsStream reports whether a request's Accept lines name server-sent events, and prefer no other
// form of a status. A wildcard doesn't count: clients that can't read a stream send it too.
func wantsStream(lines []string) bool {
	const stream, plain = "text/event-stream", "application/json"
	wish := quality(lines, stream)
	return wish > 0 && wish >= quality(lines, plain, "application/*", "*/*")
}

// quality returns the weight that Accept lines give to the first of the ranges that they name (RFC
// 9110, section 12.5.1), in thousandths; 0 if they name none.
func quality(lines []string, ranges ...string) int {
	for _, want := range ranges {
		for _, line := range lines {
			for line != "" {
				var item string
				item, line = web.CutListItem(line)
				kind, parameters, _ := strings.Cut(item, ";")
				if strings.EqualFold(strings.Trim(kind, " \t"), want) {
					return weight(parameters)
				}
			}
		}
	}
	return 0
}

// weight reads the q of a media range's parameters, in thousandths; 1000 if there is none. A
// malformed q counts as 0, since it can't express a preference.
func weight(parameters string) int {
	for parameters != "" {
		var parameter string
		parameter, parameters, _ = strings.Cut(parameters, ";")
		name, value, _ := strings.Cut(parameter, "=")
		if !strings.EqualFold(strings.Trim(name, " \t"), "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.Trim(value, " \t"), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return int(q * 1000)
	}
	return 1000
}

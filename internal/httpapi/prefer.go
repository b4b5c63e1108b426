package httpapi

import (
	"strings"
	"time"
)

// maxWait bounds how long an answer is held back for a client that asked for it (Prefer: wait=N). Proxies cut silent
// connections from 60 s on; 30 s keeps well away from that.
const maxWait = 30 * time.Second

// preferredWait returns the wait of a request's Prefer lines (RFC 7240), cut to maxWait; 0 where there is none. Of several
// the first counts. What isn't understood is ignored, as the RFC asks for.
func preferredWait(lines []string) time.Duration {
	for _, line := range lines {
		for line != "" {
			var preference string
			preference, line = cutListItem(line)
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

// cutListItem cuts the first item off a comma-separated list. A comma within a quoted string separates nothing.
func cutListItem(list string) (item, rest string) {
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

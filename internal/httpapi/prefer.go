package httpapi

import (
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

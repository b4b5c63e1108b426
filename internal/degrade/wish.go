package degrade

import (
	"strings"
	"time"
)

// Wish is what a request's Cache-Control says about stale answers. The zero value has no wish: the policy alone decides.
type Wish struct {
	NoCache      bool          // no-cache or no-store: no stale answer at all
	MaxStale     time.Duration // with HasMaxStale: no answer older than this, in whole seconds
	OnlyIfCached bool
	HasMaxStale  bool // max-stale=N was given; without a number it accepts any age, which is no wish
}

// maxDelta is what RFC 9111, section 1.2.2, has a larger number of seconds count as.
const maxDelta = 1 << 31

// ParseCacheControl reads the lines of a request's Cache-Control field (RFC 9111, section 5.2.1). Of several max-stale the smallest
// counts. Directives that it doesn't know, and numbers that aren't, are ignored, as the RFC asks for.
func ParseCacheControl(lines []string) Wish {
	var w Wish
	for _, line := range lines {
		for line != "" {
			var name, value string
			name, value, line = directive(line)
			switch {
			case strings.EqualFold(name, "no-cache"), strings.EqualFold(name, "no-store"):
				w.NoCache = true
			case strings.EqualFold(name, "only-if-cached"):
				w.OnlyIfCached = true
			case strings.EqualFold(name, "max-stale"):
				stale, ok := seconds(value)
				if ok && (!w.HasMaxStale || stale < w.MaxStale) {
					w.MaxStale, w.HasMaxStale = stale, true
				}
			}
		}
	}
	return w
}

// directive cuts the first of a list of directives (name, name=value or name="value") off a field line. Commas within a quoted
// value belong to it.
func directive(line string) (name, value, rest string) {
	end, quoted := 0, false
	for ; end < len(line) && (quoted || line[end] != ','); end++ {
		switch {
		case line[end] == '"':
			quoted = !quoted
		case line[end] == '\\' && quoted && end+1 < len(line):
			end++
		}
	}
	if end < len(line) {
		rest = line[end+1:]
	}
	name, value, _ = strings.Cut(line[:end], "=")
	value = strings.Trim(value, " \t")
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		value = value[1 : n-1] // RFC 9111, section 5.2: both forms are to be accepted
	}
	return strings.Trim(name, " \t"), value, rest
}

// seconds reads a non-negative whole number of seconds.
func seconds(text string) (time.Duration, bool) {
	var n int64
	for _, digit := range []byte(text) {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		n = min(n*10+int64(digit-'0'), maxDelta)
	}
	return time.Duration(n) * time.Second, text != ""
}

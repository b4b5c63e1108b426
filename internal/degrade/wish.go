package degrade

import (
	"iter"
	"strings"
	"time"
)

// Wish says which stored answers a request accepts, by its Cache-Control. With the zero value, the
// policy alone decides.
type Wish struct {
	NoCache      bool // no-cache or no-store: no stored answer at all
	NoStore      bool // no-store: NoCache, and the answer isn't stored for others
	OnlyIfCached bool // a stored answer or none: no new work
	// with HasMaxAge: no answer older than this, fresh or stale; in whole seconds
	MaxAge    time.Duration
	HasMaxAge bool // max-age=N was given
	// with HasMaxStale: no answer stale for longer than this; in whole seconds
	MaxStale    time.Duration
	HasMaxStale bool // max-stale=N was given; without a number it accepts any age
}

// bears reports whether the wish accepts an answer of the given age.
func (w Wish) bears(age time.Duration) bool { return !w.HasMaxAge || age <= w.MaxAge }

// maxDelta replaces a larger number of seconds, as RFC 9111, section 1.2.2, asks.
const maxDelta = 1 << 31

// ParseCacheControl parses the lines of a request's Cache-Control field (RFC 9111, section 5.2.1).
// The smallest of several max-age or max-stale counts. Unknown directives and malformed numbers are
// ignored, as the RFC asks.
func ParseCacheControl(lines []string) Wish {
	var w Wish
	for name, value := range directives(lines) {
		switch {
		case strings.EqualFold(name, "no-cache"):
			w.NoCache = true
		case strings.EqualFold(name, "no-store"):
			w.NoCache, w.NoStore = true, true
		case strings.EqualFold(name, "only-if-cached"):
			w.OnlyIfCached = true
		case strings.EqualFold(name, "max-age"):
			narrow(&w.MaxAge, &w.HasMaxAge, value)
		case strings.EqualFold(name, "max-stale"):
			narrow(&w.MaxStale, &w.HasMaxStale, value)
		}
	}
	return w
}

// narrow sets *to to a number of seconds if value is one and less than any before it.
func narrow(to *time.Duration, has *bool, value string) {
	if d, ok := seconds(value); ok && (!*has || d < *to) {
		*to, *has = d, true
	}
}

// directives iterates over the directives in the lines of a Cache-Control field.
func directives(lines []string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for _, line := range lines {
			for line != "" {
				var name, value string
				name, value, line = directive(line)
				if !yield(name, value) {
					return
				}
			}
		}
	}
}

// directive cuts the first directive (name, name=value or name="value") off a field line. Commas
// within a quoted value belong to the value.
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
		value = value[1 : n-1] // RFC 9111, section 5.2: both forms are accepted
	}
	return strings.Trim(name, " \t"), value, rest
}

// seconds parses a non-negative whole number of seconds.
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

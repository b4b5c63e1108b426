package httpapi

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/web"
)

// LegacyHeaders says how X-RateLimit-Reset counts, and whether answers have X-RateLimit fields at
// all.
type LegacyHeaders string

const (
	Epoch LegacyHeaders = "epoch" // Unix seconds
	Delta LegacyHeaders = "delta" // seconds from now
	Off   LegacyHeaders = "off"
)

// writeRateLimits writes the RateLimit fields (draft-ietf-httpapi-ratelimit-headers-11) and the
// older X-RateLimit fields. Only this file knows their syntax, since the draft isn't final. Names
// are in h as the draft writes them, not in Go's canonical form. Shadow limits are left out: a
// client that obeys the fields would obey a limit that isn't in force.
func writeRateLimits(h http.Header, p *admission.Plan, v *limits.Verdict, legacy LegacyHeaders) {
	speaker, any := spokesman(v)
	if !any {
		return
	}
	field := make([]byte, 0, 48*len(v.Standings)+3*20)
	for _, s := range v.Standings {
		l := s.Rule.Limit()
		if l.Shadow {
			continue
		}
		if len(field) > 0 {
			field = append(field, ", "...)
		}
		field = append(field, '"')
		field = append(field, l.Name...)
		field = append(field, `";r=`...)
		field = strconv.AppendInt(field, s.Remaining, 10)
		if l.Algorithm != limits.Concurrency { // that one has no window
			field = append(field, ";t="...)
			field = strconv.AppendInt(field, web.Seconds(effectiveWindow(s, l)), 10)
		}
	}
	h[api.HeaderRateLimitPolicy] = policyOf(p, v)
	// All values are parts of one text and of one list: two allocations an answer instead of eight.
	ends := [4]int{len(field)}
	l := speaker.Rule.Limit()
	if legacy != Off {
		field = strconv.AppendInt(field, l.Capacity(), 10)
		ends[1] = len(field)
		field = strconv.AppendInt(field, speaker.Remaining, 10)
		ends[2] = len(field)
		reset := web.Seconds(untilReset(speaker))
		if legacy != Delta {
			reset = resetAt(v, speaker)
		}
		field = strconv.AppendInt(field, reset, 10)
		ends[3] = len(field)
	}
	text := string(field)
	values := [4]string{text[:ends[0]]}
	h[api.HeaderRateLimit] = values[0:1:1]
	if legacy == Off {
		return
	}
	values[1], values[2], values[3] = text[ends[0]:ends[1]], text[ends[1]:ends[2]], text[ends[2]:]
	h[api.HeaderLegacyLimit], h[api.HeaderLegacyRemaining] = values[1:2:2], values[2:3:3]
	if l.Algorithm == limits.Concurrency && !speaker.Violated {
		return // when a job ends isn't known
	}
	h[api.HeaderLegacyReset] = values[3:4:4]
}

// resetAt returns untilReset as Unix seconds, by the clock that decided, so a month's reset is
// exact.
func resetAt(v *limits.Verdict, s limits.Standing) int64 {
	return web.Seconds(time.Duration(v.At.UnixNano()) + untilReset(s))
}

// spokesman returns the standing that the X-RateLimit fields describe: the strictest. The fields
// are about requests in a window, so a limit on jobs at one time, or on bytes, that doesn't refuse
// is described only if there is no other limit.
func spokesman(v *limits.Verdict) (speaker limits.Standing, any bool) {
	speaker, any = v.Strictest()
	if !any || speaker.Violated || countsRequests(speaker) {
		return speaker, any
	}
	found := false
	for _, s := range v.Standings {
		if s.Rule.Limit().Shadow || !countsRequests(s) {
			continue
		}
		if !found || s.Remaining < speaker.Remaining ||
			s.Remaining == speaker.Remaining && s.Reset > speaker.Reset {
			speaker, found = s, true
		}
	}
	return speaker, true
}

// countsRequests reports whether a limit counts requests, in units of their cost, in a window.
func countsRequests(s limits.Standing) bool {
	l := s.Rule.Limit()
	return l.Algorithm != limits.Concurrency && !l.Bytes
}

// policyOf returns RateLimit-Policy for an answer. It states the limits of the standings. While the
// store or a region's centre is unavailable, those are parts of the plan's limits.
func policyOf(p *admission.Plan, v *limits.Verdict) []string {
	planned := p.Policy != nil
	for i, s := range v.Standings {
		planned = planned && s.Rule == p.Rules[i]
	}
	if planned {
		return p.Policy
	}
	var field []byte
	for i, s := range v.Standings {
		field = appendPolicy(field, s.Rule.Limit(), p.Grace(i), v.At)
	}
	return []string{string(field)}
}

// LastingPolicy returns RateLimit-Policy for a plan's whole rules, or nil if it changes with the
// month, or if no limit is in force. It is for admission.Config.Policy.
func LastingPolicy(p *admission.Plan) []string {
	var field []byte
	for i, r := range p.Rules {
		l := r.Limit()
		if l.Window == limits.Month && !l.Shadow {
			return nil
		}
		field = appendPolicy(field, l, p.Grace(i), time.Time{})
	}
	if field == nil {
		return nil
	}
	return []string{string(field)}
}

// unitBytes is the unit of a limit of bytes, as the RateLimit draft names it.
const unitBytes = "content-bytes"

// appendPolicy states a limit in whole seconds, as the field's syntax requires. A month is as long
// as the current one.
func appendPolicy(field []byte, l limits.Limit, grace float64, at time.Time) []byte {
	if l.Shadow {
		return field
	}
	if len(field) > 0 {
		field = append(field, ", "...)
	}
	field = append(field, '"')
	field = append(field, l.Name...)
	field = append(field, `";q=`...)
	quota, seconds, unit := l.Amount, int64(0), ""
	switch {
	case l.Algorithm == limits.Concurrency:
		unit = "concurrent-requests"
	case l.Window == limits.Month:
		seconds = monthSeconds(at)
	default:
		seconds = web.Seconds(l.Window)
		inWhole := float64(l.Amount) * float64(seconds) / l.Window.Seconds()
		quota = int64(math.Floor(inWhole + 1e-9))
	}
	if l.Bytes {
		unit = unitBytes
	}
	field = strconv.AppendInt(field, quota, 10)
	if unit != "" {
		field = append(append(append(field, `;qu="`...), unit...), '"')
	}
	if seconds > 0 {
		field = append(field, ";w="...)
		field = strconv.AppendInt(field, seconds, 10)
	}
	if grace != 1 {
		field = append(field, ";forebay-grace="...)
		// A Decimal of RFC 9651 has three digits.
		field = strconv.AppendFloat(field, math.Floor(grace*1000)/1000, 'f', -1, 64)
	}
	return field
}

// monthSeconds returns the length of the UTC month of a moment.
func monthSeconds(at time.Time) int64 {
	at = at.UTC()
	first := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	return int64(first.AddDate(0, 1, 0).Sub(first) / time.Second)
}

// effectiveWindow returns the t beside r: a client that uses r in every t stays within the limit. A
// bucket's saved tokens are spread at its own rate, as the draft's section 6 asks: r/t is never
// over q/w. If none is left, t is the time until the next one.
func effectiveWindow(s limits.Standing, l limits.Limit) time.Duration {
	bucket := l.Algorithm == limits.TokenBucket || l.Algorithm == limits.LeakyBucket
	switch perToken := float64(l.Window) / float64(l.Amount); {
	case s.Violated && !s.Never:
		return s.RetryAfter
	case l.Algorithm == limits.SlidingWindowLog && s.Reset == 0:
		return l.Window // nothing is used: a request now would count for this long
	case !bucket:
		return s.Reset
	case s.Remaining == 0:
		return s.Reset - time.Duration(float64(l.Capacity()-1)*perToken)
	default:
		return time.Duration(float64(s.Remaining) * perToken)
	}
}

// untilReset returns the value of X-RateLimit-Reset: on a refusal the same as Retry-After,
// otherwise the time until the limit regains room (Standing.Reset).
func untilReset(s limits.Standing) time.Duration {
	if s.Violated && !s.Never {
		return s.RetryAfter
	}
	return s.Reset
}

package httpapi

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"forebay/api"
	"forebay/internal/admission"
)

// LegacyHeaders says how X-RateLimit-Reset counts, and whether the X-RateLimit fields are there at all.
type LegacyHeaders string

const (
	Epoch LegacyHeaders = "epoch" // Unix seconds
	Delta LegacyHeaders = "delta" // seconds from now
	Off   LegacyHeaders = "off"
)

// planKey names a plan. Operation "" is for calls that name none: status, result, and what failed before its operation was known.
type planKey struct{ tier, operation string }

// plan is what applies to a tier's requests for an operation: the limits, and the field that states them.
type plan struct {
	weight float64 // the tier's
	rules  []*admission.Rule
	own    []*admission.Rule // those of rules that count for the operation alone
	policy []string          // RateLimit-Policy, the same on every answer
}

// plans are all plans, and the one that failed authentications spend.
func plans(c Config) (all map[planKey]*plan, addresses *plan) {
	all = make(map[planKey]*plan)
	for name, tier := range c.Tiers {
		base := slices.Concat(tier.Limits, c.Limits)
		common, perOperation := split(base, ofOperation)
		all[planKey{tier: name}] = newPlan(tier.Weight, common, nil)
		for _, o := range c.Operations {
			all[planKey{name, o.Name}] = newPlan(tier.Weight, common, slices.Concat(perOperation, o.Limits))
		}
	}
	_, ips := split(c.Limits, func(r *admission.Rule) bool { return r.Limit().Per == admission.PerIP })
	return all, newPlan(0, ips, nil)
}

func split(rules []*admission.Rule, is func(*admission.Rule) bool) (others, those []*admission.Rule) {
	for _, r := range rules {
		if is(r) {
			those = append(those, r)
		} else {
			others = append(others, r)
		}
	}
	return others, those
}

// ofOperation reports whether the limit's count is an operation's.
func ofOperation(r *admission.Rule) bool {
	per := r.Limit().Per
	return per == admission.PerOperation || per == admission.PerClientOperation
}

func newPlan(weight float64, common, own []*admission.Rule) *plan {
	p := &plan{weight: weight, rules: slices.Concat(common, own), own: own}
	var items []string
	for _, r := range p.rules {
		items = append(items, policyItem(r.Limit()))
	}
	if items != nil {
		p.policy = []string{strings.Join(items, ", ")}
	}
	return p
}

// policyItem states a limit in whole seconds, as the field's syntax has it.
func policyItem(l admission.Limit) string {
	seconds := wholeSeconds(l.Window)
	quota := float64(l.Amount) * float64(seconds) / l.Window.Seconds()
	return fmt.Sprintf(`"%s";q=%d;w=%d`, l.Name, int64(math.Floor(quota+1e-9)), seconds)
}

// write writes the RateLimit fields (draft-ietf-httpapi-ratelimit-headers-11) and their older kin. This is the only place that knows how
// they're spelled: the draft isn't done. Names stand in h as the draft writes them, not as Go would.
func (p *plan) write(h http.Header, v *admission.Verdict, legacy LegacyHeaders, now time.Time) {
	strictest, any := v.Strictest()
	if !any {
		return
	}
	field := make([]byte, 0, 48*len(v.Standings))
	for i, s := range v.Standings {
		if i > 0 {
			field = append(field, ", "...)
		}
		field = append(field, '"')
		field = append(field, s.Rule.Limit().Name...)
		field = append(field, `";r=`...)
		field = strconv.AppendInt(field, s.Remaining, 10)
		field = append(field, ";t="...)
		field = strconv.AppendInt(field, wholeOrNone(effectiveWindow(s)), 10)
	}
	values := [4]string{string(field)} // one allocation for all
	h[api.HeaderRateLimitPolicy] = p.policy
	h[api.HeaderRateLimit] = values[0:1:1]
	if legacy == Off {
		return
	}
	reset := wholeOrNone(untilReset(strictest))
	if legacy != Delta {
		reset = wholeOrNone(time.Duration(now.UnixNano()) + untilReset(strictest))
	}
	values[1] = strconv.FormatInt(strictest.Rule.Limit().Capacity(), 10)
	values[2] = strconv.FormatInt(strictest.Remaining, 10)
	values[3] = strconv.FormatInt(reset, 10)
	h[api.HeaderLegacyLimit], h[api.HeaderLegacyRemaining], h[api.HeaderLegacyReset] = values[1:2:2], values[2:3:3], values[3:4:4]
}

// effectiveWindow is the t beside r: a client that uses r in every t keeps to the limit. A bucket's saved tokens are spread at
// its own rate (as the draft's section 6 asks: r/t is never over q/w), and with none left t is when the next one comes.
func effectiveWindow(s admission.Standing) time.Duration {
	l := s.Rule.Limit()
	switch perToken := float64(l.Window) / float64(l.Amount); {
	case s.Violated:
		return s.RetryAfter
	case l.Algorithm != admission.TokenBucket:
		return s.Reset
	case s.Remaining == 0:
		return s.Reset - time.Duration(float64(l.Capacity()-1)*perToken)
	default:
		return time.Duration(float64(s.Remaining) * perToken)
	}
}

// untilReset is what X-RateLimit-Reset tells: on a refusal the same as Retry-After, else when nothing is used up any more.
func untilReset(s admission.Standing) time.Duration {
	if s.Violated {
		return s.RetryAfter
	}
	return s.Reset
}

// wholeOrNone rounds up to seconds.
func wholeOrNone(d time.Duration) int64 {
	return int64((max(d, 0) + time.Second - 1) / time.Second)
}

// wholeSeconds rounds up to seconds, at least one: what a Retry-After can say.
func wholeSeconds(d time.Duration) int { return int(max(wholeOrNone(d), 1)) }

// refunded brings the standings of a verdict to what they are after its refund.
func refunded(v *admission.Verdict, cost int64) {
	for i := range v.Standings {
		s := &v.Standings[i]
		s.Remaining = min(s.Remaining+cost, s.Rule.Limit().Capacity())
	}
}

// overLimit is the answer to a request that a limit refused.
func overLimit(v admission.Verdict) *api.Problem {
	s, _ := v.Strictest()
	l := s.Rule.Limit()
	if v.Never {
		p := problem(http.StatusUnprocessableEntity, api.CodeCostTooHigh,
			fmt.Sprintf("This request costs more than limit %s ever allows at once, which is %d.", l.Name, l.Capacity()))
		p.Reason = v.Reason
		return p
	}
	return &api.Problem{
		Type: api.TypeQuotaExceeded, Title: "Quota Exceeded", Status: http.StatusTooManyRequests, Code: api.CodeRateLimit,
		Detail:           fmt.Sprintf("Limit %s allows %s per %s.", l.Name, requests(l.Amount), windowWord(l.Window)),
		Reason:           v.Reason,
		ViolatedPolicies: violated(v),
		RetryAfter:       wholeSeconds(v.RetryAfter),
	}
}

func violated(v admission.Verdict) []string {
	var names []string
	for _, s := range v.Standings {
		if s.Violated {
			names = append(names, s.Rule.Limit().Name)
		}
	}
	return names
}

func requests(n int64) string {
	if n == 1 {
		return "1 request"
	}
	return strconv.FormatInt(n, 10) + " requests"
}

func windowWord(window time.Duration) string {
	switch window {
	case time.Second:
		return "second"
	case time.Minute:
		return "minute"
	case time.Hour:
		return "hour"
	case 24 * time.Hour:
		return "day"
	}
	return windowText(window)
}

// windowText writes a duration as the config does: 1m rather than 1m0s.
func windowText(d time.Duration) string {
	text := d.String()
	for _, empty := range []string{"0s", "0m"} {
		if short, cut := strings.CutSuffix(text, empty); cut && strings.HasSuffix(short, map[string]string{"0s": "m", "0m": "h"}[empty]) {
			text = short
		}
	}
	return text
}

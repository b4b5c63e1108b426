package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/units"
	"github.com/forebay/forebay/internal/web"
)

// overLimit returns the answer to a request that a limit refused; bytes is the size of its body.
func overLimit(o *admission.Refused, bytes int64) *api.Problem {
	v := *o.Verdict
	s, _ := v.Strictest()
	l := s.Rule.Limit()
	switch o.By {
	case admission.ByPart:
		p := web.StoreUnavailable()
		p.Detail = fmt.Sprintf("The service has lost touch with the rest of it, and its share of "+
			"limit %s is less than this request takes. Try again.", l.Name)
		return p
	case admission.ByCost:
		detail := fmt.Sprintf("This request costs more than limit %s ever allows at once, "+
			"which is %d.", l.Name, l.Capacity())
		if l.Bytes {
			detail = fmt.Sprintf("The body of this request has %d bytes, more than limit %s "+
				"ever allows at once, which is %d.", bytes, l.Name, l.Capacity())
		}
		p := web.Problem(http.StatusUnprocessableEntity, api.CodeCostTooHigh, detail)
		p.Reason = v.Reason
		return p
	}
	detail := "Limit " + l.Name + " allows " + allowance(l) + "."
	if o.Plan.Reads {
		detail = "Limit " + l.Name + " allows lists to look at " + number(l.Amount, "job") +
			" per " + windowWord(l.Window) + "."
	}
	return &api.Problem{
		Type:             api.TypeQuotaExceeded,
		Title:            "Quota Exceeded",
		Status:           http.StatusTooManyRequests,
		Code:             api.CodeRateLimit,
		Detail:           detail,
		Reason:           v.Reason,
		ViolatedPolicies: violated(v),
		RetryAfter:       web.WholeSeconds(v.RetryAfter),
	}
}

// violated returns the names of the limits in force that refused.
func violated(v limits.Verdict) []string {
	var names []string
	for _, s := range v.Standings {
		if l := s.Rule.Limit(); s.Violated && !l.Shadow {
			names = append(names, l.Name)
		}
	}
	return names
}

// allowance returns a limit in words, such as "60 requests per minute".
func allowance(l limits.Limit) string {
	switch {
	case l.Algorithm == limits.Concurrency:
		return number(l.Amount, "job") + " at one time"
	case l.Bytes:
		return number(l.Amount, "byte") + " per " + windowWord(l.Window)
	}
	return number(l.Amount, "request") + " per " + windowWord(l.Window)
}

func number(n int64, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return strconv.FormatInt(n, 10) + " " + of + "s"
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

// windowText returns a window as a config has it: 1m rather than 1m0s; "" if the limit has none.
func windowText(d time.Duration) string {
	switch d {
	case 0:
		return ""
	case limits.Month:
		return "month"
	}
	return units.ShortDuration(d)
}

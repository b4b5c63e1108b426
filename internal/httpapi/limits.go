package httpapi

import (
	"errors"
	"net/http"
	"time"

	"forebay/api"
	"forebay/internal/admission"
)

// rateLimits answers GET /v1/rate-limits: the caller's limits, and then those of each operation that the caller may request.
func (s *Server) rateLimits(c *call) error {
	answer := api.RateLimits{Limits: []api.Limit{}}
	if v := c.standings(); v != nil {
		for _, st := range v.Standings {
			answer.Limits = append(answer.Limits, limitView(st, ""))
		}
	} else if len(c.plan.rules) > 0 {
		return storeError{errNoStandings}
	}
	for _, name := range s.allowed(c.client.Tier) {
		rules := s.plans[planKey{c.client.Tier, name}].own
		if len(rules) == 0 {
			continue
		}
		v, err := s.Limiter.Peek(c.ctx, admission.Request{Rules: rules, Cost: 1,
			Subject: admission.Subject{Client: c.client.ID, Address: c.client.Address, Operation: name}})
		if err != nil {
			return storeError{err}
		}
		for _, st := range v.Standings {
			answer.Limits = append(answer.Limits, limitView(st, name))
		}
	}
	return c.json(http.StatusOK, answer)
}

var errNoStandings = errors.New("the limits can't be read")

func limitView(st admission.Standing, operation string) api.Limit {
	l := st.Rule.Limit()
	return api.Limit{
		Name: l.Name, Operation: operation, Scope: string(l.Per), Algorithm: string(l.Algorithm),
		Limit: l.Amount, Burst: l.Burst, Remaining: st.Remaining,
		Reset:  wholeOrNone(time.Duration(time.Now().UnixNano()) + untilReset(st)),
		Window: windowText(l.Window), Enforced: true,
	}
}

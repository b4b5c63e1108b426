package httpapi

import (
	"net/http"

	"github.com/forebay/forebay/api"
)

// shadowLimits answers GET /admin/v1/shadow-limits: whom limits that aren't enforced would have refused.
func (s *Server) shadowLimits(c *call) error {
	asked, err := parseQuery(c.r.URL.RawQuery, "limit")
	if err != nil {
		return err
	}
	limit := asked["limit"] // "": all
	answer := api.ShadowLimits{Refusals: []api.ShadowRefusal{}}
	if s.Shadows == nil {
		return c.json(http.StatusOK, answer)
	}
	counts, err := s.Shadows.Top(c.ctx)
	if err != nil {
		return storeError{err}
	}
	for _, n := range counts {
		if limit == "" || n.Limit == limit {
			answer.Refusals = append(answer.Refusals,
				api.ShadowRefusal{Limit: n.Limit, Client: n.Client, Operation: n.Operation, Count: n.Count, LastAt: api.Time{Time: n.Last}})
		}
	}
	return c.json(http.StatusOK, answer)
}

package httpapi

import (
	"net/http"
	"net/url"

	"forebay/api"
)

// shadowLimits answers GET /admin/v1/shadow-limits: whom limits that aren't enforced would have refused.
func (s *Server) shadowLimits(c *call) error {
	limit, err := parseShadowQuery(c.r.URL.RawQuery)
	if err != nil {
		return err
	}
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

// parseShadowQuery returns the one limit that is asked for; "": all.
func parseShadowQuery(raw string) (limit string, err error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return "", invalidRequest("The query can't be read.")
	}
	for name, given := range values {
		if name != "limit" || len(given) != 1 {
			return "", invalidRequest("The query may have one parameter: ?limit=<name>.")
		}
		limit = given[0]
	}
	return limit, nil
}

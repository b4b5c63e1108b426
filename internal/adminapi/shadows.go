package adminapi

import (
	"net/http"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/web"
)

// shadowLimits answers GET /admin/v1/shadow-limits: the clients that limits which aren't enforced
// would have refused.
func (s *Server) shadowLimits(c *web.Call) error {
	asked, err := web.ParseQuery(c.R.URL.RawQuery, "limit")
	if err != nil {
		return err
	}
	limit := asked["limit"] // "": all
	answer := api.ShadowLimits{Refusals: []api.ShadowRefusal{}}
	if s.Shadows == nil {
		return c.JSON(http.StatusOK, answer)
	}
	counts, err := s.Shadows.Top(c.Ctx)
	if err != nil {
		return web.StoreError(err)
	}
	for _, n := range counts {
		if limit == "" || n.Limit == limit {
			answer.Refusals = append(answer.Refusals, api.ShadowRefusal{Limit: n.Limit,
				Client: n.Client, Operation: n.Operation, Count: n.Count,
				LastAt: api.Time{Time: n.Last}})
		}
	}
	return c.JSON(http.StatusOK, answer)
}

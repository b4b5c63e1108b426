package adminapi

import (
	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/web"
)

// config answers GET /admin/v1/config: what this process runs with.
func (s *Server) config(c *web.Call) error {
	asked, err := parseQuery(c)
	if err != nil {
		return err
	}
	return show(c, asked, s.Running, func(r api.RunningConfig) string { return r.Config })
}

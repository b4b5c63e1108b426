package adminapi

import (
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/text"
	"github.com/forebay/forebay/internal/web"
)

// explain answers GET /admin/v1/jobs/{id}/explain: why a job of any client is where it is.
func (s *Server) explain(c *web.Call) error {
	asked, err := parseQuery(c)
	if err != nil {
		return err
	}
	id := c.Var("id")
	backend, ok := jobs.ParseID(id)
	line := s.Lines[backend]
	if !ok || line == nil {
		return jobview.UnknownJob()
	}
	e, err := line.Explain(c.Ctx, id)
	if err != nil {
		return jobview.LookError(err)
	}
	return show(c, asked, jobview.ExplainForOperator(e), text.Explain)
}

package httpapi

import (
	"net/http"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/text"
	"github.com/forebay/forebay/internal/web"
)

// explain answers GET /v1/jobs/{id}?explain=1: why the caller's job is where it is. It has Redis
// look at many jobs, so it counts against the caller's limits on reads as a list does.
func (s *Server) explain(c *call) error {
	asked, err := web.ParseQuery(c.R.URL.RawQuery, "explain", "format")
	if err != nil {
		return err
	}
	if asked["explain"] != "1" {
		return web.InvalidRequest("The parameter explain must be 1; leave it out for the status.")
	}
	format := asked["format"]
	if format != "" && format != "json" && format != "text" {
		return web.InvalidRequest("The parameter format must be json or text.")
	}
	id := c.Var("id")
	backend, ok := jobs.ParseID(id)
	line := s.Lines[backend]
	if !ok || line == nil {
		return jobview.UnknownJob()
	}
	leave, err := c.listTurn()
	if err != nil {
		return err
	}
	defer leave()
	charged, err := c.chargeReads(leaky.MaxWork)
	if err != nil {
		return err
	}
	e, err := line.Explain(c.Ctx, id)
	charged.settle(c, leaky.MaxWork-int(min(e.Position, leaky.MaxWork)))
	if err := c.mustOwn(id, e.Look, err); err != nil {
		return err
	}
	h := c.W.Header()
	h["Cache-Control"] = privateNoCache
	h["Vary"] = varyByCaller
	v := jobview.ExplainForClient(e)
	if format != "text" {
		return c.JSON(http.StatusOK, v)
	}
	c.Bytes(http.StatusOK, "text/plain; charset=utf-8", []byte(text.Explain(v)))
	return nil
}

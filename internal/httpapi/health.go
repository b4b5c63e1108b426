package httpapi

import (
	"net/http"
	"slices"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/web"
)

// Probes are answered from memory: they need no key, count against no limit, and cost the store
// nothing.

// NotReady returns why this process should get no requests, or nil if it should get them. While the
// store is unavailable, a process is still ready if its config lets it answer checks or serve
// stored answers: the store is unavailable to all processes at once, and if none were ready,
// clients would get nothing. With withStore, the store must be available too. A full line doesn't
// matter, or overload would take all processes out of service.
func (s *Server) NotReady(withStore bool) error {
	switch {
	case s.Web.Leaving():
		return web.ShuttingDown()
	case !s.Store.Writable(), !s.Store.Healthy() && (withStore || !s.answersWithoutStore()):
		return web.StoreUnavailable()
	}
	return nil
}

func (s *Server) answersWithoutStore() bool {
	return slices.ContainsFunc(s.Admission.Operations, func(o admission.Operation) bool {
		fixed := func(s degrade.Step) bool { return s.Kind == degrade.Body }
		stored := o.Overload.Keeps() || slices.ContainsFunc(o.Overload.Steps, fixed)
		return o.OnFailure == admission.CheckLocal || o.OnFailure == admission.CheckAllow ||
			stored && !s.Admission.RejectOnFailure
	})
}

// publicReadyz answers GET /readyz on the public listener: only whether the process is ready.
func (s *Server) publicReadyz(c *call) error {
	if s.NotReady(web.WithStore(c.R)) != nil {
		p := web.Problem(http.StatusServiceUnavailable, api.CodeNotReady,
			"This process isn't ready. Another one may be.")
		p.RetryAfter = 1
		return p
	}
	c.W.Header()["Cache-Control"] = web.NoStore
	return c.JSON(http.StatusOK, api.Health{Status: "ready"})
}

// openAPI answers GET /openapi.yaml.
func (s *Server) openAPI(c *call) error {
	c.Bytes(http.StatusOK, "application/yaml", api.OpenAPI)
	return nil
}

package httpapi

import (
	"net/http"

	"forebay/api"
)

// Probes are answered from memory: they ask for no key, count against no limit, and cost the store nothing.

// livez answers GET /livez: the process is up.
func (s *Server) livez(c *call) error {
	c.w.Header()["Cache-Control"] = noStore
	return c.json(http.StatusOK, api.Health{Status: "alive"})
}

// readyz answers GET /readyz: the store is reachable and takes writes, and the process isn't shutting down. A full line stays ready, or
// overload would take all processes out of service.
func (s *Server) readyz(c *call) error {
	if s.isDraining() {
		return shuttingDown()
	}
	if !s.Store.Healthy() || !s.Store.Writable() {
		return storeUnavailable()
	}
	answer := api.Health{Status: "ready", Store: "redis", Warnings: s.Store.Warnings()}
	if s.Store.Embedded() {
		answer.Store = "embedded"
	}
	c.w.Header()["Cache-Control"] = noStore
	return c.json(http.StatusOK, answer)
}

// openAPI answers GET /openapi.yaml.
func (s *Server) openAPI(c *call) error {
	c.bytes(http.StatusOK, "application/yaml", api.OpenAPI)
	return nil
}

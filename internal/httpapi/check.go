package httpapi

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/web"
)

// check answers GET /v1/check, and any method at any path under /v1/check/. A gateway sends it
// before it lets a request through to a service that isn't ours. The answer is 200 or the reason
// for a refusal. The key comes in the request's own fields, which gateways forward: nginx's
// auth_request as configured, Traefik's ForwardAuth and Caddy's forward_auth by default. The
// address and the method come in the fields that the config names, from trusted proxies only. A
// check is charged to the same limits as a job of the operation, except concurrency limits, since
// Forebay doesn't learn when the work ends.
func (s *Server) check(c *call) error {
	query, malformed := parseCheck(c.R)
	if c.crossSite() {
		return web.Problem(http.StatusForbidden, api.CodeCrossSite,
			"A check is for gateways: pages of other sites can't ask for one.")
	}
	if malformed == nil && s.Admission.Operation(query.operation) != nil &&
		s.isPreflight(c.R) {
		c.admission = false
		c.W.Header()["Cache-Control"] = web.NoStore
		c.Bytes(http.StatusOK, "", nil)
		return nil
	}
	if err := c.readCaller(); err != nil {
		return err
	}
	c.plan = s.Admission.CheckPlan(c.caller, "")
	if malformed != nil {
		return malformed
	}
	o, err := s.operationFor(c, query.operation)
	if err != nil {
		return err
	}
	c.plan = s.Admission.CheckPlan(c.caller, o.Name)
	cost, err := query.costOf(o)
	if err != nil {
		return err
	}
	outcome, err := s.Admission.Check(c.Ctx, c.caller, o, cost)
	if err != nil {
		return err
	}
	return c.render(outcome)
}

// crossSite reports whether a page of another site made a browser send the request, which would be
// charged to its user's address. A browser sends no key by itself, so a request with a key is
// intended. A trusted proxy's request doesn't count as one: it has the fields of the request that
// it asks about, which may come from another site.
func (c *call) crossSite() bool {
	h := c.R.Header
	if len(h["Authorization"]) > 0 || len(h["X-Api-Key"]) > 0 || c.s.Identity.FromProxy(c.R) {
		return false
	}
	asked := *c.R
	// CrossOriginProtection lets safe methods pass, but this GET has an effect.
	asked.Method = http.MethodPost
	return c.s.sites.Check(&asked) != nil
}

// isPreflight reports whether a gateway asks about a CORS preflight: OPTIONS, with the two fields
// that browsers always send with one (Fetch standard, section 4.8). It carries no key, since
// browsers never send one with it, and costs nothing. The method is believed only from a trusted
// proxy, and only in the field that the config names, which the gateway sets itself. A client could
// send any other field through the gateway.
func (s *Server) isPreflight(r *http.Request) bool {
	h := r.Header
	if s.CheckMethod == "" || len(h["Authorization"]) > 0 || len(h["X-Api-Key"]) > 0 {
		return false
	}
	if h.Get("Origin") == "" || h.Get("Access-Control-Request-Method") == "" {
		return false
	}
	given := h.Values(s.CheckMethod)
	return len(given) == 1 && given[0] == http.MethodOptions && s.Identity.FromProxy(r)
}

// checkQuery is what a check asks about.
type checkQuery struct {
	operation string
	cost      string // as given
	hasCost   bool
}

// parseCheck reads the operation and the cost to check. Under /v1/check/, path and query are the
// original request's, which the client controls, so the gateway names the operation in header
// fields. At /v1/check such fields are ignored, since gateways there forward those of their
// clients. The query is read strictly, because a misspelled parameter would check something
// different.
func parseCheck(r *http.Request) (q checkQuery, err error) {
	if named := r.Header.Values(api.HeaderOperation); len(named) > 0 && r.URL.Path != "/v1/check" {
		cost := r.Header.Values(api.HeaderCost)
		if len(named) > 1 || len(cost) > 1 {
			return q, web.InvalidRequest(
				"Forebay-Operation and Forebay-Cost can be given once only.")
		}
		q.operation = named[0]
		if q.hasCost = len(cost) > 0; q.hasCost {
			q.cost = cost[0]
		}
		return q, nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return q, web.InvalidRequest("The query can't be read.")
	}
	for name, given := range values {
		if len(given) != 1 {
			return q, web.InvalidRequest("The query gives " + web.Brief(name) + " twice.")
		}
		switch name {
		case "operation":
			q.operation = given[0]
		case "cost":
			q.cost, q.hasCost = given[0], true
		default:
			return q, web.InvalidRequest("There is no parameter " + web.Brief(name) +
				": use operation and cost.")
		}
	}
	if q.operation == "" {
		return q, web.InvalidRequest("Name the operation: ?operation=<name>, " +
			"or under /v1/check/ the field Forebay-Operation.")
	}
	return q, nil
}

// costOf returns the cost that the check is charged. The gateway may give a higher cost than the
// operation's config, never a lower one.
func (q checkQuery) costOf(o *admission.Operation) (int64, error) {
	if !q.hasCost {
		return o.Cost.Standard(), nil
	}
	least, most := o.Cost.Fixed, int64(limits.MaxAmount)
	if o.Cost.From != "" {
		least, most = 1, o.Cost.Max
	}
	n, ok := admission.WholeNumber(q.cost)
	if !ok || n < least || n > most {
		return 0, web.InvalidRequest(fmt.Sprintf(
			"The cost must be a whole number from %d to %d, in digits alone.", least, most))
	}
	return n, nil
}

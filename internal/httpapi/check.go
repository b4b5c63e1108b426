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

// check answers GET /v1/check, and any method at /v1/check/ and any path, which a gateway asks before it lets a request through to something that isn't ours: 200, or why not. The
// key comes in the request's own fields, which gateways hand on (nginx's auth_request as it is configured, Traefik's ForwardAuth and Caddy's
// forward_auth by themselves), the address and the method in those that the config names, from trusted proxies alone.
// It spends the same counts as a job of the operation would, but for limits on jobs at one time: nobody will tell when the work ends.
func (s *Server) check(c *call) error {
	query, malformed := parseCheck(c.R)
	if c.crossSite() {
		return web.Problem(http.StatusForbidden, api.CodeCrossSite, "A check is for gateways: pages of other sites can't ask for one.")
	}
	if malformed == nil && s.Admission.Operation(query.operation) != nil && s.isPreflight(c.R) {
		c.admission = false
		c.W.Header()["Cache-Control"] = web.NoStore
		c.Bytes(http.StatusOK, "", nil)
		return nil
	}
	client, unknown := s.Identity.Identify(c.R)
	if unknown != nil {
		return c.unidentified(client, unknown)
	}
	c.identify(client)
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

// crossSite reports whether a page of another site made a browser send the request, which spends what its user's
// address may. A browser sends no key by itself, so a request with one is its client's wish. A trusted proxy hands on the
// fields of the request that it asks about, which may well come from another site.
func (c *call) crossSite() bool {
	h := c.R.Header
	if len(h["Authorization"]) > 0 || len(h["X-Api-Key"]) > 0 || c.s.Identity.FromProxy(c.R) {
		return false
	}
	asked := *c.R
	asked.Method = http.MethodPost // of those that are safe http has no doubt: this one has an effect
	return c.s.sites.Check(&asked) != nil
}

// isPreflight reports whether a gateway asks about a CORS preflight: OPTIONS, with the two fields that browsers always
// send with one (Fetch standard, section 4.8). It carries no key, as browsers never send one with it, and costs
// nothing. The method is believed only from a trusted proxy and only in the one field that the config names, which the gateway sets itself:
// any other a client could send through it.
func (s *Server) isPreflight(r *http.Request) bool {
	h := r.Header
	if s.CheckMethod == "" || len(h["Authorization"]) > 0 || len(h["X-Api-Key"]) > 0 {
		return false
	}
	if h.Get("Origin") == "" || h.Get("Access-Control-Request-Method") == "" {
		return false
	}
	told := h.Values(s.CheckMethod)
	return len(told) == 1 && told[0] == http.MethodOptions && s.Identity.FromProxy(r)
}

// checkQuery is what a check asks about.
type checkQuery struct {
	operation string
	cost      string // as given
	hasCost   bool
}

// parseCheck reads what is asked about. Under /v1/check/ stands the path of the original request, and
// after it that request's query, which is the client's own: so the gateway names the operation in fields
// there. At /v1/check the fields say nothing, since other gateways hand on those of their clients. Our own
// query is read strictly: a misspelt parameter would be a check of something else.
func parseCheck(r *http.Request) (q checkQuery, err error) {
	if named := r.Header.Values(api.HeaderOperation); len(named) > 0 && r.URL.Path != "/v1/check" {
		cost := r.Header.Values(api.HeaderCost)
		if len(named) > 1 || len(cost) > 1 {
			return q, web.InvalidRequest("Forebay-Operation and Forebay-Cost can be given once only.")
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
			return q, web.InvalidRequest("There is no parameter " + web.Brief(name) + ": use operation and cost.")
		}
	}
	if q.operation == "" {
		return q, web.InvalidRequest("Name the operation: ?operation=<name>, or under /v1/check/ the field Forebay-Operation.")
	}
	return q, nil
}

// costOf is what the check spends. The gateway may say more than the operation's config does, and never less.
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
		return 0, web.InvalidRequest(fmt.Sprintf("The cost must be a whole number from %d to %d, in digits alone.", least, most))
	}
	return n, nil
}

package httpapi

import (
	"errors"
	"net/http"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/web"
)

// rateLimits answers GET /v1/rate-limits: the caller's limits, then those of each operation that
// the caller may request.
func (s *Server) rateLimits(c *call) error {
	if !s.Store.Healthy() {
		return web.StoreError(web.ErrUnhealthy)
	}
	c.peek(0) // a client that asks for its limits gets their present state
	answer := api.RateLimits{Limits: []api.Limit{}}
	if v := c.standings(); v != nil {
		for i, st := range v.Standings {
			answer.Limits = append(answer.Limits, c.limitView(v, st, c.plan.Grace(i)))
		}
	} else if len(c.plan.Rules) > 0 {
		return web.StoreError(errNoStandings)
	}
	for _, name := range s.Admission.Open(c.caller.Tier) {
		p := c.s.Admission.Plan(c.caller, name)
		rules := p.Rules[p.Own:]
		if len(rules) == 0 {
			continue
		}
		v, err := s.Admission.Limiter.Peek(c.Ctx, limits.Request{Rules: rules, Cost: 1,
			Subject: admission.Subject(c.caller.Client, name)})
		if err != nil {
			return web.StoreError(err)
		}
		for i, st := range v.Standings {
			view := c.limitView(&v, st, p.Grace(p.Own+i))
			view.Operation = name
			answer.Limits = append(answer.Limits, view)
		}
	}
	return c.JSON(http.StatusOK, answer)
}

var errNoStandings = errors.New("the limits can't be read")

// limitView returns where a limit stands for the caller.
func (c *call) limitView(v *limits.Verdict, st limits.Standing, grace float64) api.Limit {
	view := api.Limit{Policy: c.policyView(st.Rule.Limit(), grace), Remaining: st.Remaining}
	if view.Window != "" {
		view.Reset = resetAt(v, st)
	}
	return view
}

// policyView returns a limit as it applies to the caller.
func (c *call) policyView(l limits.Limit, grace float64) api.Policy {
	view := api.Policy{Name: l.Name, Scope: string(l.Per), Algorithm: string(l.Algorithm),
		Limit: l.Amount, Burst: l.Burst, Window: windowText(l.Window), Enforced: !l.Shadow}
	if l.Bytes {
		view.Unit = unitBytes
	}
	if grace != 1 {
		view.GraceUntil = web.Time(c.caller.NewUntil)
	}
	return view
}

// operationsList answers GET /v1/operations: the operations that the caller may request, and their
// limits. It needs no store.
func (s *Server) operationsList(c *call) error {
	return c.JSON(http.StatusOK, s.published(c))
}

// published returns the operations and the limits that a caller may know of.
func (s *Server) published(c *call) api.Operations {
	answer := api.Operations{Tier: c.caller.Tier, Operations: []api.Operation{}}
	for _, name := range s.Admission.Open(c.caller.Tier) {
		o := s.Admission.Operation(name)
		view := api.Operation{Name: name, Cost: costView(o.Cost), OnOverload: []string{},
			Limits: []api.Policy{}, FreshFor: windowText(o.Overload.FreshFor), Coalesce: o.Coalesce}
		if o.Overload.Allows(degrade.Wish{}) {
			view.StaleFor = windowText(o.Overload.StaleFor)
		}
		for _, step := range s.stepsFor(c, o) {
			word := string(step.Kind)
			if step.Kind == degrade.Operation {
				word += ":" + step.Operation
			}
			view.OnOverload = append(view.OnOverload, word)
		}
		p := c.s.Admission.Plan(c.caller, name)
		for i, r := range p.Rules {
			view.Limits = append(view.Limits, c.policyView(r.Limit(), p.Grace(i)))
		}
		answer.Operations = append(answer.Operations, view)
	}
	return answer
}

// stepsFor returns the steps of an operation's on_overload that may give the caller an answer.
func (s *Server) stepsFor(c *call, o *admission.Operation) (steps []degrade.Step) {
	for _, step := range o.Overload.Steps {
		other := s.Admission.Operation(step.Operation)
		if step.Kind != degrade.Operation || other != nil && other.Open(c.caller.Tier) {
			steps = append(steps, step)
		}
	}
	return steps
}

func costView(c admission.Cost) api.Cost {
	if c.From == "" {
		return api.Cost{Fixed: c.Fixed}
	}
	return api.Cost{From: c.From, Default: c.Default, Max: c.Max}
}

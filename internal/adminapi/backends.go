package adminapi

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// operator calls h for operators only.
func (s *Server) operator(h handler) handler {
	return func(c *web.Call) error {
		c.W.Header()["Cache-Control"] = web.NoStore
		if p := s.operators.Check(c.W.Header(), c.R); p != nil {
			return p
		}
		return h(c)
	}
}

// listBackends answers GET /admin/v1/backends.
func (s *Server) listBackends(c *web.Call) error {
	answer := api.Backends{Backends: []api.Backend{}}
	for _, name := range slices.Sorted(maps.Keys(s.Lines)) {
		st, err := s.Lines[name].Status(c.Ctx)
		if err != nil {
			return web.StoreError(err)
		}
		answer.Backends = append(answer.Backends, backendView(name, st))
	}
	return c.JSON(http.StatusOK, answer)
}

// getBackend answers GET /admin/v1/backends/{name}.
func (s *Server) getBackend(c *web.Call) error {
	name, line, err := s.backend(c)
	if err != nil {
		return err
	}
	return s.showBackend(c, name, line)
}

// showBackend answers with a backend as it is now.
func (s *Server) showBackend(c *web.Call, name string, line Drain) error {
	st, err := line.Status(c.Ctx)
	if err != nil {
		return web.StoreError(err)
	}
	c.W.Header().Set("ETag", settingsTag(st))
	return c.JSON(http.StatusOK, backendView(name, st))
}

// settingsTag is the entity tag of a backend's settings: configured, overridden, and by whom. It
// isn't one of the counters beside them.
func settingsTag(st leaky.Status) string {
	hash := sha256.New()
	for _, name := range leaky.Tunables() {
		io.WriteString(hash, st.Configured.Text(name)+"\n")
	}
	return fmt.Sprintf(`"%s-%x"`, st.Version, hash.Sum(nil)[:4])
}

func (s *Server) backend(c *web.Call) (string, Line, error) {
	name := c.Var("name")
	line := s.Lines[name]
	if line == nil {
		return "", nil, unknownBackend(name)
	}
	return name, line, nil
}

func unknownBackend(name string) *api.Problem {
	return web.Problem(http.StatusNotFound, api.CodeUnknownBackend,
		"There is no backend "+web.Brief(name)+".")
}

func backendView(name string, st leaky.Status) api.Backend {
	o := st.Override
	note := func(name string) api.OverrideNote { return jobview.Note(st.Notes[name]) }
	v := api.Backend{
		Name:  name,
		Rate:  setting(st.Configured.Rate.String(), nil, st.EffectiveText(), note("rate")),
		Burst: setting(st.Configured.Burst, o.Burst, st.Burst, note("burst")),
		Concurrency: setting(st.Configured.Concurrency, o.Concurrency, st.EffectiveConcurrency,
			note("concurrency")),
		Capacity: setting(st.Configured.Capacity, o.Capacity, st.Capacity, note("capacity")),
		Feedback: setting(st.Configured.Feedback.String(), nil, st.Feedback.String(),
			note("feedback")),
		Paused: st.Paused, TunedBy: st.By, TunedAt: web.Time(st.At), TunedReason: st.Reason,
		Factor: st.Factor, Probing: st.Probing, GateUntil: web.Time(st.GateUntil),
		WaitingOn: st.WaitingOn, Waiting: st.Waiting, Delayed: st.Delayed, InFlight: st.InFlight,
		OldestWaitSeconds: st.OldestWait.Seconds(), CallSeconds: st.CallTime.Seconds(),
		RecentCalls: api.RecentCalls{Ended: st.Recent.Ended, PerSecond: st.Recent.PerSecond,
			P50Seconds: st.Recent.P50.Seconds(), P95Seconds: st.Recent.P95.Seconds(),
			P99Seconds: st.Recent.P99.Seconds()},
		Outcomes: outcomesView(st.Books),
	}
	if o.Paused != nil {
		pause := note("paused")
		v.Pause = &pause
	}
	if o.Rate != nil {
		text := o.Rate.String()
		v.Rate.Override = &text
	}
	if o.Feedback != nil {
		text := o.Feedback.String()
		v.Feedback.Override = &text
	}
	if st.Cause != leaky.NoSign {
		text := string(st.Cause)
		v.Cause = &text
	}
	return v
}

func setting[T any](configured T, override *T, effective T, note api.OverrideNote) api.Setting[T] {
	return api.Setting[T]{Configured: configured, Override: override, Effective: effective,
		OverrideNote: note}
}

func outcomesView(b leaky.Books) api.Outcomes {
	return api.Outcomes{Accepted: b.Accepted, Succeeded: b.Succeeded, Failed: b.Failed,
		Canceled: b.Canceled, Expired: b.Expired, Lost: b.Lost, Redriven: b.Redriven,
		Started: b.Started, Throttled: b.Throttled}
}

// books answers GET /admin/v1/backends/{name}/books.
func (s *Server) books(c *web.Call) error {
	name, line, err := s.backend(c)
	if err != nil {
		return err
	}
	r, err := line.CheckBooks(c.Ctx)
	if err != nil {
		return web.StoreError(err)
	}
	return c.JSON(http.StatusOK, api.Books{
		Backend: name, At: api.Time{Time: r.At},
		Balanced: r.Difference == 0, Difference: r.Difference,
		Waiting: r.Waiting, Delayed: r.Delayed, InFlight: r.InFlight, FailedListed: r.Listed,
		Outcomes: outcomesView(r.Books), Repairs: r.Repairs,
	})
}

// showMetrics answers GET /metrics.
func (s *Server) showMetrics() handler {
	h := s.Web.Exposition()
	return func(c *web.Call) error {
		c.Serve(h)
		return nil
	}
}

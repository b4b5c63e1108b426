package adminapi

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/history"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/text"
	"github.com/forebay/forebay/internal/web"
)

// forecast answers GET /admin/v1/backends/{name}/forecast: what the line is going to do as it is,
// and with the settings that the query proposes.
func (s *Server) forecast(c *web.Call) error {
	name, _, err := s.backend(c)
	if err != nil {
		return err
	}
	asked, err := parseQuery(c, "rate", "concurrency", "paused")
	if err != nil {
		return err
	}
	proposal, err := parseProposal(asked)
	if err != nil {
		return err
	}
	seen, due := s.watch.Status(c.Ctx, name), s.watch.Dues(c.Ctx, name)
	if seen.Err != nil {
		return web.StoreError(seen.Err)
	}
	if due.Err != nil {
		return web.StoreError(due.Err)
	}
	return show(c, asked, forecastView(name, seen.Value, due.Value, s.arrivals(c.Ctx, name),
		proposal), text.Forecast)
}

// arrivals are the jobs that entered a line in the last minute, with those that it refused since it
// was full or too slow, as far as there is a history: a larger one would have had them, too.
func (s *Server) arrivals(ctx context.Context, backend string) leaky.Arrivals {
	in := s.watch.Recent(backend).Arrivals
	if s.Tallies == nil || in.Over == 0 {
		return in
	}
	now := s.now()
	span, err := history.Fit(now, now.Add(-time.Minute), now, 5*time.Second, 1)
	if err != nil {
		return in
	}
	points, err := s.Tallies.Read(ctx, backend, span)
	if err != nil {
		return in // what is known without them
	}
	return withRefused(in, points)
}

// withRefused adds the jobs that a line refused to those that entered it. Their spreads add up as
// those of things that don't depend on each other.
func withRefused(in leaky.Arrivals, points []history.Point) leaky.Arrivals {
	var rates []float64
	mean := 0.0
	for _, p := range points {
		n := p.Rejected[string(leaky.LineFull)] + p.Rejected[string(leaky.WaitTooLong)]
		rates = append(rates, float64(n)/p.Length.Seconds())
		mean += rates[len(rates)-1] / float64(len(points))
	}
	spread := in.Spread * in.Spread
	for _, rate := range rates {
		spread += (rate - mean) * (rate - mean) / float64(len(rates))
	}
	in.PerSecond, in.Spread = in.PerSecond+mean, math.Sqrt(spread)
	return in
}

// parseProposal reads the settings that a forecast is asked for, as the body of a PATCH has them.
func parseProposal(asked map[string]string) (leaky.Override, error) {
	var o leaky.Override
	var wrong web.FieldErrors
	if rate := asked["rate"]; rate != "" {
		quoted, _ := json.Marshal(rate) // a string: it can't fail
		o.Rate = readRate(&wrong, web.Member{Name: "rate", Value: quoted})
	}
	if n := asked["concurrency"]; n != "" {
		_, most := o.Field("concurrency")
		o.Concurrency = wrong.Count(web.Member{Name: "concurrency", Value: []byte(n)}, most)
	}
	if paused := asked["paused"]; paused != "" {
		o.Paused = wrong.Flag(web.Member{Name: "paused", Value: []byte(paused)})
	}
	return o, wrong.Err()
}

func forecastView(name string, st leaky.Status, due leaky.Dues, in leaky.Arrivals,
	proposal leaky.Override) api.Forecast {
	v := api.Forecast{Backend: name, At: api.Time{Time: st.Now}, Waiting: st.Waiting,
		Delayed: st.Delayed, CallSeconds: st.CallTime.Seconds(),
		Arrivals: api.Arrivals{Known: in.Over > 0, PerSecond: hundredths(in.PerSecond),
			Spread: hundredths(in.Spread), OverSeconds: math.Round(in.Over.Seconds())},
		Now: outlookView(st.Now, leaky.Forecast(st, leaky.Override{}, in, due))}
	if len(proposal.Names()) > 0 {
		v.Proposed = new(outlookView(st.Now, leaky.Forecast(st, proposal, in, due)))
	}
	return v
}

func outlookView(now time.Time, o leaky.Outlook) api.Outlook {
	v := api.Outlook{Rate: o.Rate.String(), Concurrency: o.Concurrency, Paused: o.Paused,
		BoundBy: o.BoundBy, ConcurrencyNeeded: o.Needed, EmptyAt: after(now, o.EmptyIn),
		FullAt: after(now, o.FullIn), FullBy: string(o.FullBy), Expiring: o.Expiring,
		ExpiringEstimated: o.Sampled}
	if !math.IsInf(o.PerSecond, 1) {
		v.PerSecond = new(hundredths(o.PerSecond))
	}
	if o.RefusedPerMinute != nil {
		v.RefusedPerMinute = new(hundredths(*o.RefusedPerMinute))
	}
	if o.Wait != nil {
		v.WaitSeconds = new(hundredths(o.Wait.Seconds()))
	}
	return v
}

// after is a moment that is so far away; nil: there is none.
func after(now time.Time, in *time.Duration) *api.Time {
	if in == nil {
		return nil
	}
	return &api.Time{Time: now.Add(*in)}
}

func hundredths(x float64) float64 { return math.Round(x*100) / 100 }

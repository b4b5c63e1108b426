package adminapi

import (
	"encoding/json"
	"math"
	"time"

	"github.com/forebay/forebay/api"
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
	asked, err := web.ParseQuery(c.R.URL.RawQuery, "rate", "concurrency", "paused", formatParameter)
	if err != nil {
		return err
	}
	format := asked[formatParameter]
	if err := checkFormat(format); err != nil {
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
	return show(c, format, forecastView(name, seen.Value, due.Value, s.watch.Recent(name).Arrivals,
		proposal), text.Forecast)
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

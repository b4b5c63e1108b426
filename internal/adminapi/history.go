package adminapi

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/history"
	"github.com/forebay/forebay/internal/text"
	"github.com/forebay/forebay/internal/units"
	"github.com/forebay/forebay/internal/web"
)

// Tallies are counts by backend and time, in package history.
type Tallies interface {
	Now() time.Time // on Redis's clock
	Read(ctx context.Context, backend string, s history.Span) ([]history.Point, error)
}

// maxBetween bounds the events within a history.
const maxBetween = 200

// history answers GET /admin/v1/history: what happened, step by step.
func (s *Server) history(c *web.Call) error {
	asked, err := parseQuery(c, "backend", "from", "to", "step")
	if err != nil {
		return err
	}
	backends := slices.Sorted(maps.Keys(s.Lines))
	if name := asked["backend"]; name != "" {
		if s.Lines[name] == nil {
			return unknownBackend(name)
		}
		backends = []string{name}
	}
	now := s.now()
	span, err := readSpan(now, asked, len(backends))
	if err != nil {
		return err
	}
	answer := api.History{From: api.Time{Time: span.From}, To: api.Time{Time: span.To},
		StepSeconds: int(span.Step.Seconds()), Backends: []api.BackendHistory{},
		Events: []api.HistoryEvent{}}
	for _, name := range backends {
		found := api.BackendHistory{Backend: name, Points: []api.HistoryPoint{}}
		if s.Tallies != nil {
			points, err := s.Tallies.Read(c.Ctx, name, span)
			if err != nil {
				return web.StoreError(err)
			}
			for _, p := range points {
				found.Points = append(found.Points, pointView(p))
			}
		}
		answer.Backends = append(answer.Backends, found)
	}
	if answer.Events, err = s.between(c.Ctx, span, asked["backend"]); err != nil {
		return web.StoreError(err)
	}
	return show(c, asked, answer, text.History)
}

// between are the events of a span: those of a backend and those of none; "": all.
func (s *Server) between(ctx context.Context, span history.Span, backend string) (
	[]api.HistoryEvent, error) {
	events := []api.HistoryEvent{}
	if s.Events == nil {
		return events, nil
	}
	all, _, err := s.Events.List(ctx, history.Filter{From: span.From, To: span.To,
		Limit: history.MaxEvents})
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if backend == "" || e.Backend == "" || e.Backend == backend {
			events = append(events,
				api.HistoryEvent{ID: e.ID, Time: e.Time, Type: e.Type, Backend: e.Backend})
		}
	}
	return events[max(0, len(events)-maxBetween):], nil
}

// now is the time on Redis's clock, if it is known.
func (s *Server) now() time.Time {
	if s.Tallies == nil {
		return time.Now().UTC()
	}
	return s.Tallies.Now().UTC()
}

// readSpan reads from, to and step of a query about some backends.
func readSpan(now time.Time, asked map[string]string, backends int) (history.Span, error) {
	from, err := readTime(now, "from", asked["from"])
	if err != nil {
		return history.Span{}, err
	}
	to, err := readTime(now, "to", asked["to"])
	if err != nil {
		return history.Span{}, err
	}
	var step time.Duration
	if text := asked["step"]; text != "" {
		if step, err = units.ParseDuration(text); err != nil {
			return history.Span{}, web.InvalidRequest("The parameter step " + err.Error() + ".")
		}
	}
	span, err := history.Fit(now, from, to, step, backends)
	if err != nil {
		return history.Span{}, web.InvalidRequest(web.Sentence(err))
	}
	return span, nil
}

// readTime reads a time of a query: RFC 3339, or how long it was before now, such as -15m. "" is
// the zero time.
func readTime(now time.Time, name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, relative := strings.CutPrefix(text, "-"); relative {
		if d, err := units.ParseDuration(ago); err == nil {
			return now.Add(-d), nil
		}
	} else if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC(), nil
	}
	return time.Time{}, web.InvalidRequest("The parameter " + name + " must be a time such as " +
		"2026-11-30T16:00:00Z, or how long ago, such as -15m.")
}

func pointView(p history.Point) api.HistoryPoint {
	v := api.HistoryPoint{At: api.Time{Time: p.At}, Seconds: int(p.Length.Seconds()),
		Accepted: p.Accepted, Fresh: p.Fresh, Degraded: p.Degraded, RejectedBy: p.Rejected}
	for _, n := range p.Rejected {
		v.Rejected += n
	}
	v.Offered = v.Accepted + v.Fresh + v.Degraded + v.Rejected
	l := p.Line
	if l == nil {
		return v
	}
	v.Line = &api.HistoryLine{Waiting: l.Waiting, Capacity: l.Capacity,
		OldestWaitSeconds: math.Round(l.OldestWait.Seconds()*1000) / 1000,
		Rate:              setting(perSecond(l.Configured), nil, perSecond(l.Effective), api.OverrideNote{}),
		Paused:            l.Paused, Probing: l.Probing, Cause: l.Cause,
		Started: l.Started, Throttled: l.Throttled, Succeeded: l.Succeeded, Failed: l.Failed,
		Canceled: l.Canceled, Expired: l.Expired}
	if l.Override > 0 {
		v.Line.Rate.Override = new(perSecond(l.Override))
	}
	return v
}

// perSecond writes a rate with four digits: those of tallies are no more exact.
func perSecond(rate float64) string {
	if math.IsInf(rate, 1) {
		return "unlimited"
	}
	const digits = 4
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(rate, 'g', digits, 64), 64)
	return strconv.FormatFloat(rounded, 'f', -1, 64) + "/s"
}

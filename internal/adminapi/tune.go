package adminapi

import (
	"log/slog"
	"net/http"
	"strconv"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/rawjson"
	"github.com/forebay/forebay/internal/web"
)

// Bounds of what can be set live: the config's own. Each call in flight is a connection, and a
// worker takes at most jobs.MaxConcurrency at once.
const (
	maxTuned    = jobs.MaxConcurrency
	maxCapacity = 10_000_000
	maxTuneBody = 4 << 10
)

// tuneBackend answers PATCH /admin/v1/backends/{name}.
func (s *Server) tuneBackend(c *web.Call) error {
	name, line, err := s.backend(c)
	if err != nil {
		return err
	}
	body, err := web.ReadBody(c.W, c.R, maxTuneBody)
	if err != nil {
		return err
	}
	o, err := parseTuning(body)
	if err != nil {
		return err
	}
	return s.change(c, name, line, &o)
}

// resetBackend answers DELETE /admin/v1/backends/{name}/override.
func (s *Server) resetBackend(c *web.Call) error {
	name, line, err := s.backend(c)
	if err != nil {
		return err
	}
	return s.change(c, name, line, nil)
}

// parseTuning reads the body of a PATCH.
func parseTuning(body []byte) (leaky.Override, error) {
	fields, err := web.Members(body)
	if err != nil {
		return leaky.Override{}, err
	}
	if len(fields) == 0 {
		return leaky.Override{}, web.InvalidRequest("Nothing is to be changed: " +
			"name rate, burst, concurrency, capacity, paused or feedback.")
	}
	var o leaky.Override
	var wrong web.FieldErrors
	for _, m := range fields {
		switch m.Name {
		case "rate":
			o.Rate = readRate(&wrong, m)
		case "burst":
			o.Burst = wrong.Count(m, maxTuned)
		case "concurrency":
			o.Concurrency = wrong.Count(m, maxTuned)
		case "capacity":
			o.Capacity = wrong.Count(m, maxCapacity)
		case "paused":
			o.Paused = wrong.Flag(m)
		case "feedback":
			o.Feedback = readOnOff(&wrong, m)
		default:
			wrong.Unknown(m)
		}
	}
	return o, wrong.Err()
}

// readOnOff reads a switch as the config writes it.
func readOnOff(f *web.FieldErrors, m web.Member) *bool {
	text, _ := rawjson.Text(m.Value)
	on := text == api.FeedbackOn
	if !on && text != api.FeedbackOff {
		f.Add(m.Name, `Must be "on" or "off".`)
		return nil
	}
	return &on
}

// readRate reads a drain rate.
func readRate(f *web.FieldErrors, m web.Member) *leaky.Rate {
	text, ok := rawjson.Text(m.Value)
	if !ok {
		f.Add(m.Name, `Must be a string such as "5/s".`)
		return nil
	}
	if len(text) > 32 {
		f.Add(m.Name, "Is too long.")
		return nil
	}
	rate, err := leaky.ParseRate(text)
	if err != nil {
		f.Add(m.Name, web.Sentence(err))
		return nil
	}
	return &rate
}

// tunable is one field of an override, for the log.
type tunable struct {
	name string
	text func(leaky.Status) string // the value in force
	set  func(leaky.Override) bool // an override has it
}

var tunables = []tunable{
	{"rate", func(st leaky.Status) string { return st.Rate.String() },
		func(o leaky.Override) bool { return o.Rate != nil }},
	{"burst", func(st leaky.Status) string { return strconv.Itoa(st.Burst) },
		func(o leaky.Override) bool { return o.Burst != nil }},
	{"concurrency", func(st leaky.Status) string { return strconv.Itoa(st.Concurrency) },
		func(o leaky.Override) bool { return o.Concurrency != nil }},
	{"capacity", func(st leaky.Status) string { return strconv.Itoa(st.Capacity) },
		func(o leaky.Override) bool { return o.Capacity != nil }},
	{"paused", func(st leaky.Status) string { return strconv.FormatBool(st.Paused) },
		func(o leaky.Override) bool { return o.Paused != nil }},
	{"feedback", func(st leaky.Status) string { return onOff(st.Feedback) },
		func(o leaky.Override) bool { return o.Feedback != nil }},
}

// change sets an override, or with nil removes all overrides, logs the change, and answers with the
// backend as it is now.
func (s *Server) change(c *web.Call, name string, line Drain, o *leaky.Override) error {
	before, err := line.Status(c.Ctx)
	if err != nil {
		return web.StoreError(err)
	}
	var what string
	touched, wanted := before.Override, asConfigured(before)
	if o == nil {
		what, err = "backend reset", line.ResetTuning(c.Ctx, operatorName(c.R))
	} else {
		what, err = "backend tuned", line.Tune(c.Ctx, *o, operatorName(c.R))
		touched, wanted = *o, overridden(before, *o)
	}
	details := []slog.Attr{slog.String("backend", name)}
	for _, f := range tunables {
		if f.set(touched) {
			details = append(details, slog.String(f.name, f.text(before)+" → "+f.text(wanted)))
		}
	}
	s.audit(c, what, err, details...)
	if err != nil {
		return web.StoreError(err)
	}
	after, err := line.Status(c.Ctx)
	if err != nil {
		return web.StoreError(err)
	}
	return c.JSON(http.StatusOK, backendView(name, after))
}

// overridden is a backend's settings after o is set.
func overridden(st leaky.Status, o leaky.Override) leaky.Status {
	put(&st.Rate, o.Rate)
	put(&st.Burst, o.Burst)
	put(&st.Concurrency, o.Concurrency)
	put(&st.Capacity, o.Capacity)
	put(&st.Paused, o.Paused)
	put(&st.Feedback, o.Feedback)
	return st
}

func put[T any](to, value *T) {
	if value != nil {
		*to = *value
	}
}

// asConfigured is a backend's settings without overrides.
func asConfigured(st leaky.Status) leaky.Status {
	c := st.Configured
	st.Rate, st.Burst, st.Concurrency = c.Rate, c.Burst, c.Concurrency
	st.Capacity, st.Paused, st.Feedback = c.Capacity, false, c.Feedback
	return st
}

package httpapi

import (
	"log/slog"
	"net"
	"net/http"
	"strconv"

	"forebay/api"
	"forebay/internal/jobs"
	"forebay/internal/leaky"
)

// Bounds of what can be set live: the config's own. Each call in flight is a connection, and a worker takes at most
// jobs.MaxConcurrency at once.
const (
	maxTuned    = jobs.MaxConcurrency
	maxCapacity = 10_000_000
	maxTuneBody = 4 << 10
)

// tuneBackend answers PATCH /admin/v1/backends/{name}.
func (s *Server) tuneBackend(c *call) error {
	name, line, err := s.backend(c)
	if err != nil {
		return err
	}
	body, err := readBody(c.w, c.r, maxTuneBody)
	if err != nil {
		return err
	}
	o, err := parseTuning(body)
	if err != nil {
		return err
	}
	return s.change(c, name, line, func(by string) error { return line.Tune(c.ctx, o, by) })
}

// resetBackend answers DELETE /admin/v1/backends/{name}/override.
func (s *Server) resetBackend(c *call) error {
	name, line, err := s.backend(c)
	if err != nil {
		return err
	}
	return s.change(c, name, line, func(by string) error { return line.ResetTuning(c.ctx, by) })
}

// parseTuning reads the body of a PATCH.
func parseTuning(body []byte) (leaky.Override, error) {
	fields, err := members(body)
	if err != nil {
		return leaky.Override{}, err
	}
	if len(fields) == 0 {
		return leaky.Override{}, invalidRequest("Nothing is to be changed: name rate, burst, concurrency, capacity or paused.")
	}
	var o leaky.Override
	var wrong fieldErrors
	for _, m := range fields {
		switch m.name {
		case "rate":
			o.Rate = wrong.rate(m)
		case "burst":
			o.Burst = wrong.count(m, maxTuned)
		case "concurrency":
			o.Concurrency = wrong.count(m, maxTuned)
		case "capacity":
			o.Capacity = wrong.count(m, maxCapacity)
		case "paused":
			o.Paused = wrong.flag(m)
		default:
			wrong.unknown(m)
		}
	}
	return o, wrong.err()
}

func (f *fieldErrors) rate(m member) *leaky.Rate {
	text, ok := textOf(m.value)
	if !ok {
		f.add(m.name, `Must be a string such as "5/s".`)
		return nil
	}
	if len(text) > 32 {
		f.add(m.name, "Is too long.")
		return nil
	}
	rate, err := leaky.ParseRate(text)
	if err != nil {
		f.add(m.name, sentence(err))
		return nil
	}
	return &rate
}

// change does one change of a backend's settings, writes it into the log and answers with the backend as it is now.
func (s *Server) change(c *call, name string, line Line, do func(by string) error) error {
	before, err := line.Status(c.ctx)
	if err != nil {
		return storeError{err}
	}
	by := operatorName(c.r)
	if err := do(by); err != nil {
		return storeError{err}
	}
	after, err := line.Status(c.ctx)
	if err != nil {
		return storeError{err}
	}
	s.Log.LogAttrs(c.ctx, slog.LevelInfo, "backend tuned", slog.String("backend", name), slog.String("by", by),
		slog.String("request_id", c.requestID), slog.String("from", settingsText(before)), slog.String("to", settingsText(after)))
	return c.json(http.StatusOK, backendView(name, after))
}

func settingsText(st leaky.Status) string {
	return "rate=" + st.Rate.String() + " burst=" + strconv.Itoa(st.Burst) + " concurrency=" + strconv.Itoa(st.Concurrency) +
		" capacity=" + strconv.Itoa(st.Capacity) + " paused=" + strconv.FormatBool(st.Paused)
}

// operatorName is who asks for a change, as it goes on record: what it calls itself, where that is short visible ASCII, else its address.
func operatorName(r *http.Request) string {
	const limit = 64
	if name := r.Header.Get(api.HeaderOperator); name != "" && len(name) <= limit && visible(name) {
		return name
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "unknown"
	}
	return host
}

func visible(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

package adminapi

import (
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/web"
)

// audit logs a change that an operator made, and records it among the events: the operator's name,
// and the change; the log has its address too. With an error it isn't known whether the change was
// made, and both say so.
func (s *Server) audit(c *web.Call, what string, err error, details ...slog.Attr) {
	attrs := []slog.Attr{slog.Bool("audit", true), slog.String("by", operatorName(c.R)),
		slog.String("address", remoteHost(c.R)), slog.String("request_id", c.RequestID)}
	if err != nil {
		attrs = append(attrs, slog.String("outcome", "unknown"), slog.Any("error", err))
	}
	s.Audit.LogAttrs(c.Ctx, slog.LevelInfo, what, append(attrs, details...)...)
	if s.Events != nil {
		s.Events.Record(changeEvent(operatorName(c.R), what, err, details))
	}
}

// becomes separates what a setting was from what it is, in the details of a change.
const becomes = " → "

// changeEvent is the event of a change. Its type is what the log calls the change.
func changeEvent(by, what string, err error, details []slog.Attr) api.OperationEvent {
	e := api.OperationEvent{Type: strings.ReplaceAll(what, " ", "_"), By: by,
		Before: map[string]string{}, After: map[string]string{}}
	var texts []string
	for _, d := range details {
		value := d.Value.String()
		before, after, isChange := strings.Cut(value, becomes)
		switch {
		case d.Key == "backend":
			e.Backend = value
		case d.Key == "job_id":
			e.Backend, _ = jobs.ParseID(value)
			texts = append(texts, value)
		case d.Key == "reason":
			e.Reason = value
		case isChange:
			e.Before[d.Key], e.After[d.Key] = before, after
		case value != "":
			texts = append(texts, d.Key+" "+value)
		}
	}
	if err != nil {
		texts = append(texts, "outcome unknown")
	}
	e.Text = strings.Join(texts, ", ")
	return e
}

// operatorName is the name of the operator that is recorded for a change: the name in the request,
// if that is short visible ASCII, otherwise its address.
func operatorName(r *http.Request) string {
	const limit = 64
	if name := r.Header.Get(api.HeaderOperator); name != "" && len(name) <= limit && visible(name) {
		return name
	}
	return remoteHost(r)
}

// remoteHost is the other end of the connection.
func remoteHost(r *http.Request) string {
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

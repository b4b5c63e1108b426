package adminapi

import (
	"log/slog"
	"net"
	"net/http"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/web"
)

// audit logs a change that an operator made: the operator's name and address, and the change. With
// an error it isn't known whether the change was made, and the line says so.
func (s *Server) audit(c *web.Call, what string, err error, details ...slog.Attr) {
	attrs := []slog.Attr{slog.Bool("audit", true), slog.String("by", operatorName(c.R)),
		slog.String("address", remoteHost(c.R)), slog.String("request_id", c.RequestID)}
	if err != nil {
		attrs = append(attrs, slog.String("outcome", "unknown"), slog.Any("error", err))
	}
	s.Audit.LogAttrs(c.Ctx, slog.LevelInfo, what, append(attrs, details...)...)
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

package web

import (
	"log/slog"
	"net/http"
	"time"
)

// Timeouts and bounds of a listener. Reading is bounded so that slow senders don't hold
// connections. The time for writing covers the longest wait that a client may ask for (30 s) and
// twice StoreTime; the rest is for slow readers of answers that are in memory whole. A handler that
// writes in pieces sets a deadline for each.
const (
	headerTime = 5 * time.Second
	// ReadTime bounds the reading of a request.
	ReadTime  = 30 * time.Second
	writeTime = 90 * time.Second
	idleTime  = 2 * time.Minute
	maxHeader = 16 << 10
)

// NewHTTPServer returns an http.Server for a handler, with every timeout and bound set.
func NewHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           closingAfterTransfer(h),
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       ReadTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		// net/http would answer OPTIONS * by itself, past the handler.
		DisableGeneralOptionsHandler: true,
		// Bad handshakes and the like are the callers' faults.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// closingAfterTransfer lets h answer, and closes a connection after a request with
// Transfer-Encoding. If the request had a Content-Length too, which net/http doesn't report, two
// readers may disagree on where the next request begins (RFC 9112, section 6.1).
func closingAfterTransfer(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header()["Connection"] = closing
		}
		h.ServeHTTP(w, r)
	})
}

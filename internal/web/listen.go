package web

import (
	"log/slog"
	"net/http"
	"time"
)

// Timeouts and bounds of a listener. Reading is bounded so that slow senders hold no connection.
// Writing takes the longest wait that a client may ask for (30 s) and twice StoreTime, and leaves
// the rest for a client that reads slowly an answer that is in memory whole. A handler that writes
// in pieces sets a deadline for each.
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
		// Bad handshakes and the like are the callers' business.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// closingAfterTransfer has h answer, and no connection outlive a request with Transfer-Encoding.
// Where Content-Length stood beside it, which net/http doesn't tell, two readers may differ on
// where the next request begins (RFC 9112, section 6.1).
func closingAfterTransfer(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header()["Connection"] = closing
		}
		h.ServeHTTP(w, r)
	})
}

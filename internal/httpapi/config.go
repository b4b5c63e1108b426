package httpapi

import (
	"sync/atomic"

	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/web"
)

// Config has the dependencies and settings of a Server. Its names must be known.
type Config struct {
	Identity  Identifier
	Admission *admission.Admission
	Lines     map[string]Line // by backend
	Finals    Finals
	Answers   Answers
	Store     Store
	Callbacks Callbacks   // nil: no job's end is notified
	Web       *web.Server // speaks HTTP, logs, and takes the metrics
	// Tally returns what counts the decisions of a kind; nil: nothing but the metrics does. It is
	// called once for each kind, and must return nil for none.
	Tally func(operation, decision, reason string) *atomic.Int64

	Requests
}

// Requests are bounds and forms of the public API's requests.
type Requests struct {
	// CheckMethod is the field in which a gateway that is a trusted proxy names the original
	// request's method; "": none.
	CheckMethod string
	MaxBody     int64 // bytes of a POST's body
	// MaxBuffered bounds the bytes of all POSTs' bodies that are in memory at one time, and
	// separately those of all answers that clients haven't read yet; 0: no bound.
	MaxBuffered int64
	Legacy      LegacyHeaders // "": Epoch
}

// Callbacks are the webhooks that are notified of jobs' ends.
type Callbacks interface {
	// For returns the URL to notify of the end of a client's job: the one that the request asks
	// for, or the client's own ("" if it has none). The error's text is fit for the client.
	For(client, asked string) (url string, err error)
}

package web

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/forebay/forebay/api"
)

// Problem returns a problem of the generic type, which its code tells from others.
func Problem(status int, code, detail string) *api.Problem {
	return &api.Problem{Type: api.TypeBlank, Title: http.StatusText(status), Status: status,
		Code: code, Detail: detail}
}

// InvalidRequest returns the problem of a request that isn't as this API takes it.
func InvalidRequest(detail string) *api.Problem {
	return Problem(http.StatusBadRequest, api.CodeInvalidRequest, detail)
}

// Sentence returns the text of an error as a problem's detail. The text must be fit for clients.
func Sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// ShuttingDown returns the problem of a request that comes while the process stops.
func ShuttingDown() *api.Problem {
	p := Problem(http.StatusServiceUnavailable, api.CodeShuttingDown,
		"This process is shutting down. Another one will answer.")
	p.RetryAfter = 1
	return p
}

// StoreError returns err as a failure of the store, or of the time that a request has for it: it is
// answered with StoreUnavailable.
func StoreError(err error) error { return storeError{err} }

type storeError struct{ err error }

func (e storeError) Error() string { return e.err.Error() }
func (e storeError) Unwrap() error { return e.err }

// ErrUnhealthy is why the store isn't even asked.
var ErrUnhealthy = errors.New("the store isn't healthy")

// StoreUnavailable returns the problem of a request that needs the store while that fails.
func StoreUnavailable() *api.Problem {
	p := Problem(http.StatusServiceUnavailable, api.CodeStore,
		"The service can't reach its store. Try again.")
	// The store is tried four times a second. Requests that were refused together come back apart.
	p.RetryAfter = 1 + rand.IntN(3)
	return p
}

// InternalError returns the problem of a request that met a fault of this service.
func InternalError() *api.Problem {
	return Problem(http.StatusInternalServerError, api.CodeInternal,
		"Something went wrong inside the service. It has been logged under this request_id.")
}

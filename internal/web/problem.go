package web

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/forebay/forebay/api"
)

// Problem returns a problem of the generic type, identified by its code.
func Problem(status int, code, detail string) *api.Problem {
	return &api.Problem{Type: api.TypeBlank, Title: http.StatusText(status), Status: status,
		Code: code, Detail: detail}
}

// InvalidRequest returns the problem of a malformed request.
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

// StoreError marks err as a failure of the store, or as the end of a request's time for it:
// Call.Fail answers with StoreUnavailable.
func StoreError(err error) error { return storeError{err} }

type storeError struct{ err error }

func (e storeError) Error() string { return e.err.Error() }
func (e storeError) Unwrap() error { return e.err }

// ErrUnhealthy is the error of a call that isn't made because the store is unhealthy.
var ErrUnhealthy = errors.New("the store isn't healthy")

// StoreUnavailable returns the problem of a request that needs the store while that fails.
func StoreUnavailable() *api.Problem {
	p := Problem(http.StatusServiceUnavailable, api.CodeStore,
		"The service can't reach its store. Try again.")
	// The store is probed four times a second. Clients that were refused together return at
	// different times.
	p.RetryAfter = 1 + rand.IntN(3)
	return p
}

// InternalError returns the problem of a request that met a fault of this service.
func InternalError() *api.Problem {
	return Problem(http.StatusInternalServerError, api.CodeInternal,
		"Something went wrong inside the service. It has been logged under this request_id.")
}

package httpapi

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
)

// Handlers return errors; call.fail alone turns them into answers. An *api.Problem is the answer itself, a storeError becomes a
// 503, and anything else is a 500 whose detail is logged and never served.

// problem is an error of the generic type, told by its code.
func problem(status int, code, detail string) *api.Problem {
	return &api.Problem{Type: api.TypeBlank, Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

func invalidRequest(detail string) *api.Problem {
	return problem(http.StatusBadRequest, api.CodeInvalidRequest, detail)
}

// sentence makes a detail of an error that is fit to be read by clients.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// unknownJob is the one answer to a job that isn't there, an id that is none, and another client's job.
func unknownJob() *api.Problem {
	return problem(http.StatusNotFound, api.CodeUnknownJob, "There is no such job. It may have been forgotten: see expires_at.")
}

func shuttingDown() *api.Problem {
	p := problem(http.StatusServiceUnavailable, api.CodeShuttingDown, "This process is shutting down. Another one will answer.")
	p.RetryAfter = 1
	return p
}

// storeError is a failure of Redis, or of the time that a request has for it.
type storeError struct{ err error }

func (e storeError) Error() string { return e.err.Error() }
func (e storeError) Unwrap() error { return e.err }

var errUnhealthy = errors.New("the store isn't healthy")

// storeFailed notes that the store failed, and is the answer for when there is nothing better.
func (c *call) storeFailed(err error) error {
	return c.problemOf(storeError{err})
}

func storeUnavailable() *api.Problem {
	p := problem(http.StatusServiceUnavailable, api.CodeStore, "The service can't reach its store. Try again.")
	p.RetryAfter = 1 + rand.IntN(3) // it's looked for four times a second; those who were refused together come back apart
	return p
}

func internalError() *api.Problem {
	return problem(http.StatusInternalServerError, api.CodeInternal, "Something went wrong inside the service. It has been logged under this request_id.")
}

// failureProblem is why a job failed, as the error member of its status and as the answer to the question for its result. 424 since the
// call itself went well: a 5xx would have proxies and clients retry what is final.
func failureProblem(f jobs.Failure) *api.Problem {
	return problem(http.StatusFailedDependency, f.Code, f.Detail)
}

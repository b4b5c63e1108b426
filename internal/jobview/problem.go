package jobview

import (
	"errors"
	"net/http"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// UnknownJob returns the answer for a job that doesn't exist, an invalid id and another client's
// job alike.
func UnknownJob() *api.Problem {
	return web.Problem(http.StatusNotFound, api.CodeUnknownJob,
		"There is no such job. It may have been forgotten: see expires_at.")
}

// FailureProblem returns why a job failed, for the error member of its status and as the answer to
// a request for its result. Its status is 424, since a 5xx would make proxies and clients retry
// what is final.
func FailureProblem(f jobs.Failure) *api.Problem {
	return web.Problem(http.StatusFailedDependency, f.Code, f.Detail)
}

// LookError returns the answer to an error of leaky's Look, or of a later call for the same job:
// either the job has been removed, or the store fails.
func LookError(err error) error {
	if errors.Is(err, leaky.ErrUnknownJob) {
		return UnknownJob()
	}
	return web.StoreError(err)
}

package jobview

import (
	"errors"
	"net/http"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// UnknownJob is the one answer to a job that isn't there, an id that is none, and another client's
// job.
func UnknownJob() *api.Problem {
	return web.Problem(http.StatusNotFound, api.CodeUnknownJob,
		"There is no such job. It may have been forgotten: see expires_at.")
}

// FailureProblem is why a job failed, as the error member of its status and as the answer to the
// question for its result. It is a 424 since the call itself went well: a 5xx would have proxies
// and clients retry what is final.
func FailureProblem(f jobs.Failure) *api.Problem {
	return web.Problem(http.StatusFailedDependency, f.Code, f.Detail)
}

// LookError is the answer to an error of leaky's Look and of what follows on it: either the job was
// forgotten in between, or the store fails.
func LookError(err error) error {
	if errors.Is(err, leaky.ErrUnknownJob) {
		return UnknownJob()
	}
	return web.StoreError(err)
}

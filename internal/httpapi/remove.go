package httpapi

import (
	"errors"
	"net/http"

	"forebay/api"
	"forebay/internal/leaky"
)

// remove answers DELETE /v1/jobs/{id}: it cancels the job, or with ?purge=1 removes what is kept of one that has ended. The query is read
// strictly: a misspelt purge would cancel a job that runs.
func (s *Server) remove(c *call) error {
	asked, err := parseQuery(c.r.URL.RawQuery, "purge")
	if err != nil {
		return err
	}
	switch asked["purge"] {
	case "":
		return s.cancel(c)
	case "1":
		return s.purge(c)
	}
	return invalidRequest("The parameter purge must be 1; without it the job is canceled.")
}

func (s *Server) purge(c *call) error {
	line, look, err := s.ownJob(c)
	if err != nil {
		return err
	}
	outcome, err := line.Purge(c.ctx, look.Job.ID)
	if err != nil {
		return c.ownLookError(err)
	}
	if outcome == leaky.NotEnded {
		return problem(http.StatusConflict, api.CodeNotFinished, "The job hasn't ended: cancel it first.")
	}
	c.head(http.StatusNoContent)
	return nil
}

// ownLookError is lookError for a client's own question: it alone learns of a job of its that ended and is on record no more.
func (c *call) ownLookError(err error) error {
	var gone *leaky.GoneError
	if errors.As(err, &gone) && gone.OwnedBy(c.client.ID) {
		return problem(http.StatusGone, api.CodeJobGone, "The job ended, and is kept no more: its time was over, or it was purged.")
	}
	return lookError(err)
}

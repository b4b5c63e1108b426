package httpapi

import (
	"errors"
	"net/http"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// remove answers DELETE /v1/jobs/{id}: it cancels the job, or with ?purge=1 removes the record of a
// job that has ended. The query is read strictly: a misspelled purge would cancel a running job.
func (s *Server) remove(c *call) error {
	asked, err := web.ParseQuery(c.R.URL.RawQuery, "purge")
	if err != nil {
		return err
	}
	switch asked["purge"] {
	case "":
		return s.cancel(c)
	case "1":
		return s.purge(c)
	}
	return web.InvalidRequest("The parameter purge must be 1; without it the job is canceled.")
}

func (s *Server) purge(c *call) error {
	line, look, err := s.ownJob(c)
	if err != nil {
		return err
	}
	if !done(look) {
		return notEnded()
	}
	if err := s.forgetAnswer(c, line, look.Job); err != nil {
		return err
	}
	outcome, err := line.Purge(c.Ctx, look.Job.ID)
	if err != nil {
		return c.ownLookError(look.Job.ID, err)
	}
	if outcome == leaky.NotEnded {
		return notEnded() // it was redriven in between
	}
	c.Head(http.StatusNoContent)
	return nil
}

func notEnded() *api.Problem {
	return web.Problem(http.StatusConflict, api.CodeNotFinished,
		"The job hasn't ended: cancel it first.")
}

// forgetAnswer removes the stored answer to the job's request, for its client alone if others share
// it. The answer is found by the payload, so it must be called before the job is removed. If it
// fails, repeating the purge does everything.
func (s *Server) forgetAnswer(c *call, line Line, job jobs.Job) error {
	o := s.Admission.Operation(job.Operation)
	if o == nil || !o.Overload.KeepsFor(job.Client) {
		return nil
	}
	payload, err := line.Payload(c.Ctx, job.Source())
	if errors.Is(err, leaky.ErrUnknownJob) {
		_, err = line.Look(c.Ctx, job.ID) // it was removed meanwhile: the error has its owner
	}
	if err != nil {
		return c.ownLookError(job.ID, err)
	}
	key := o.Overload.CacheKey(job.Operation, job.Client, job.Tier, payload)
	if err := s.Answers.Purge(c.Ctx, o.Overload, key, job.Client); err != nil {
		return web.StoreError(err)
	}
	return nil
}

// ownLookError is jobview.LookError, except that only a job's owner learns that the job ended and
// has no record any more.
func (c *call) ownLookError(id string, err error) error {
	var gone *leaky.GoneError
	if errors.As(err, &gone) && (gone.OwnedBy(c.caller.ID) || c.bears(id) && gone.Anonymous()) {
		return web.Problem(http.StatusGone, api.CodeJobGone,
			"The job ended, and is kept no more: its time was over, or it was purged.")
	}
	return jobview.LookError(err)
}

package adminapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// anyJob is the job that the path names, of any client.
func (s *Server) anyJob(c *web.Call) (Line, leaky.Look, error) {
	id := c.Var("id")
	backend, ok := jobs.ParseID(id)
	line := s.Lines[backend]
	if !ok || line == nil {
		return nil, leaky.Look{}, jobview.UnknownJob()
	}
	look, err := line.Look(c.Ctx, id)
	if err != nil {
		return nil, leaky.Look{}, jobview.LookError(err)
	}
	return line, look, nil
}

// getAnyJob answers GET /admin/v1/jobs/{id}.
func (s *Server) getAnyJob(c *web.Call) error {
	line, look, err := s.anyJob(c)
	if err != nil {
		return err
	}
	v := jobview.ForOperator(look, time.Now())
	if err := showAnswer(c.Ctx, line, look, v.Answer); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, v)
}

// cancelAnyJob answers DELETE /admin/v1/jobs/{id}.
func (s *Server) cancelAnyJob(c *web.Call) error {
	line, look, err := s.anyJob(c)
	if err != nil {
		return err
	}
	outcome, err := line.Cancel(c.Ctx, look.Job.ID)
	changed := look.Standing.State != jobs.Canceled &&
		(outcome == leaky.Canceled || outcome == leaky.Aborting)
	if err != nil && !errors.Is(err, leaky.ErrUnknownJob) || changed {
		s.audit(c, "job canceled", err,
			jobDetails(look, slog.String("outcome", string(outcome)))...)
	}
	if err != nil {
		return jobview.LookError(err)
	}
	if look, err = line.Look(c.Ctx, look.Job.ID); err != nil {
		return jobview.LookError(err)
	}
	switch outcome {
	case leaky.Canceled:
		return c.JSON(http.StatusOK, jobview.ForOperator(look, time.Now()))
	case leaky.Aborting:
		c.W.Header()["Retry-After"] = []string{strconv.Itoa(jobview.MinPoll)}
		return c.JSON(http.StatusAccepted, jobview.ForOperator(look, time.Now()))
	}
	return web.Problem(http.StatusConflict, api.CodeFinished,
		"The job is "+look.Standing.State.Public()+" already.")
}

// jobDetails are the log's details of a change to one job: the job, and where it stood before. Its
// client may be an address, which is personal.
func jobDetails(look leaky.Look, more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{slog.String("job_id", look.Job.ID),
		slog.String("operation", look.Job.Operation),
		slog.String("was", string(look.Standing.State))}, more...)
}

// maxShown bounds the bytes of a backend's answer inside a job: enough for any error page. The
// job's client gets all of it.
const maxShown = 256 << 10

// showAnswer adds the bytes of the backend's answer, if they are still kept.
func showAnswer(ctx context.Context, line Reader, look leaky.Look, to *api.KeptAnswer) error {
	if to == nil || to.Size > maxShown {
		return nil
	}
	body, err := line.Result(ctx, look.Job.Source())
	switch {
	case errors.Is(err, leaky.ErrNoResult): // the status is still shown
	case err != nil:
		return web.StoreError(err)
	case utf8.Valid(body):
		to.Body = string(body)
	default:
		to.BodyBase64 = body
	}
	return nil
}

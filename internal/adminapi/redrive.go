package adminapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// Bounds of one redrive of many jobs. The rest is left to another call: the answer must come within
// the listener's write timeout, and while an operator is willing to wait.
const (
	defaultRedrive = 1000
	maxRedrive     = 10_000
	maxRedriveTime = 10 * time.Second
)

// redriveJob answers POST /admin/v1/jobs/{id}/redrive.
func (s *Server) redriveJob(c *web.Call) error {
	line, look, err := s.anyJob(c)
	if err != nil {
		return err
	}
	outcome, err := line.Redrive(c.Ctx, look.Job.ID)
	if err != nil && !errors.Is(err, leaky.ErrUnknownJob) || outcome == leaky.Redriven {
		s.audit(c, "job redriven", err,
			jobDetails(look, slog.String("code", look.Standing.Failure.Code))...)
	}
	if err != nil {
		return jobview.LookError(err)
	}
	if outcome == leaky.LineFull {
		return web.Problem(http.StatusConflict, api.CodeLineFull,
			"The line of the job's backend is full.")
	}
	if look, err = line.Look(c.Ctx, look.Job.ID); err != nil {
		return jobview.LookError(err)
	}
	if outcome == leaky.NotFailed {
		return web.Problem(http.StatusConflict, api.CodeNotFailed,
			"The job is "+look.Standing.State.Public()+": only a failed one can be redriven.")
	}
	return c.JSON(http.StatusOK, jobview.ForOperator(look, time.Now()))
}

// redriveMany answers POST /admin/v1/backends/{name}/redrive.
func (s *Server) redriveMany(c *web.Call) error {
	name, line, err := s.backend(c)
	if err != nil {
		return err
	}
	filter, most := leaky.FailedFilter{}, defaultRedrive
	// A request with a Content-Type is read, even if its body is empty.
	if c.R.ContentLength != 0 || len(c.R.Header["Content-Type"]) > 0 {
		body, err := web.ReadBody(c.W, c.R, maxTuneBody)
		if err != nil {
			return err
		}
		if filter, most, err = parseRedrive(body); err != nil {
			return err
		}
	}
	if !s.Store.Healthy() {
		return web.StoreError(web.ErrUnhealthy)
	}
	// The redrive stops when its operator disconnects.
	ctx, cancel := context.WithTimeout(c.R.Context(), s.redriveTime)
	defer cancel()
	done, err := line.RedriveAll(ctx, filter, most)
	details := []slog.Attr{slog.String("backend", name), slog.String("operation", filter.Operation),
		slog.String("client", loggable(filter.Client)), slog.String("code", filter.Code),
		slog.Int("max", most), slog.Int("redriven", done.Redriven)}
	answer := api.Redriven{Redriven: done.Redriven}
	switch {
	case err == nil:
		answer.Stopped = string(done.Stopped)
		if done.Stopped == "" {
			answer.Stopped = api.StoppedDone
		}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		answer.Stopped = api.StoppedTime
	default:
		s.audit(c, "jobs redriven", err, details...)
		if done.Redriven == 0 {
			return web.StoreError(err)
		}
		c.StoreFailed(err)
		answer.Stopped = api.StoppedStore
		return c.JSON(http.StatusOK, answer)
	}
	s.audit(c, "jobs redriven", nil, append(details, slog.String("stopped", answer.Stopped))...)
	return c.JSON(http.StatusOK, answer)
}

// loggable is a client as it may stand in the log: an address is personal.
func loggable(client string) string {
	if jobs.IsAnonymous(client) {
		return "anonymous"
	}
	return client
}

// parseRedrive reads which failed jobs to redrive, and how many at most.
func parseRedrive(body []byte) (filter leaky.FailedFilter, most int, err error) {
	fields, err := web.Members(body)
	if err != nil {
		return filter, 0, err
	}
	most = defaultRedrive
	var wrong web.FieldErrors
	for _, m := range fields {
		switch m.Name {
		case "operation":
			filter.Operation = wrong.Filled(m)
		case "client":
			filter.Client = wrong.Filled(m)
		case "code":
			filter.Code = wrong.Filled(m)
		case "max":
			if n := wrong.Count(m, maxRedrive); n != nil {
				most = *n
			}
		default:
			wrong.Unknown(m)
		}
	}
	return filter, most, wrong.Err()
}

package adminapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/units"
	"github.com/forebay/forebay/internal/web"
)

// Bounds of one redrive of many jobs. The rest is left to another call: the answer must come within
// the listener's write timeout, and while an operator is willing to wait.
const (
	defaultRedrive = 1000
	maxRedrive     = leaky.MaxPreview // so that each redrive can be previewed
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
	asked := redriveRequest{max: defaultRedrive}
	// A request with a Content-Type is read, even if its body is empty.
	if c.R.ContentLength != 0 || len(c.R.Header["Content-Type"]) > 0 {
		body, err := web.ReadBody(c.W, c.R, maxTuneBody)
		if err != nil {
			return err
		}
		if asked, err = parseRedrive(body); err != nil {
			return err
		}
	}
	if !s.Store.Healthy() {
		return web.StoreError(web.ErrUnhealthy)
	}
	// The redrive stops when its operator disconnects.
	ctx, cancel := context.WithTimeout(c.R.Context(), s.redriveTime)
	defer cancel()
	if asked.dryRun {
		return s.previewRedrive(ctx, c, name, line, asked)
	}
	var done leaky.RedriveResult
	details := []slog.Attr{slog.String("backend", name)}
	if asked.limitTo != "" {
		done, err = line.RedrivePreviewed(ctx, asked.limitTo)
		if errors.Is(err, leaky.ErrNoPreview) {
			return s.noPreview(c, asked.limitTo)
		}
		details = append(details, slog.String("limit_to", asked.limitTo),
			slog.Int("skipped", done.Skipped))
	} else {
		done, err = line.RedriveAll(ctx, asked.filter, asked.max)
		details = append(details, slog.String("operation", asked.filter.Operation),
			slog.String("client", loggable(asked.filter.Client)),
			slog.String("code", asked.filter.Code), slog.Int("max", asked.max))
	}
	details = append(details, slog.Int("redriven", done.Redriven))
	answer := api.Redriven{Redriven: done.Redriven, Skipped: done.Skipped}
	switch {
	case err == nil:
		answer.Stopped = cmp.Or(string(done.Stopped), api.StoppedDone)
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

// previewRedrive answers a redrive that is only asked what it would do.
func (s *Server) previewRedrive(
	ctx context.Context, c *web.Call, name string, line Changer, asked redriveRequest,
) error {
	p, err := line.PreviewRedrive(ctx, asked.filter, asked.max)
	if err != nil {
		return web.StoreError(err)
	}
	v := api.RedrivePreview{Backend: name, At: api.Time{Time: p.At}, Jobs: p.Jobs, Token: p.Token,
		Stopped:  cmp.Or(string(p.Stopped), api.StoppedDone),
		OldestAt: web.Time(p.Oldest), ByClient: p.ByClient, ByOperation: p.ByOperation,
		ByCode: p.ByCode, Ahead: p.Ahead, Room: p.Room, Paused: p.Paused}
	if p.Jobs > 0 {
		v.ValidTo = web.Time(p.At.Add(leaky.PreviewTTL))
		if !p.Paused {
			v.LeftAt = web.Time(p.At.Add(p.Wait))
		}
	}
	return c.JSON(http.StatusOK, v)
}

// noPreview returns the problem of a token that is of no preview of the backend.
func (s *Server) noPreview(c *web.Call, token string) error {
	for _, name := range slices.Sorted(maps.Keys(s.Lines)) {
		found, err := s.Lines[name].HasPreview(c.Ctx, token)
		if err != nil {
			return web.StoreError(err)
		}
		if found {
			var wrong web.FieldErrors
			wrong.Add("limit_to", "Is of a preview of another backend: "+name+".")
			return wrong.Err()
		}
	}
	return web.Problem(http.StatusNotFound, api.CodeUnknownPreview, fmt.Sprintf(
		"There is no such preview: it is over after %s. Make another one with dry_run.",
		units.FormatDuration(leaky.PreviewTTL)))
}

// loggable is a client as it may stand in the log: an address is personal.
func loggable(client string) string {
	if jobs.IsAnonymous(client) {
		return "anonymous"
	}
	return client
}

// redriveRequest is the body of a redrive of many jobs.
type redriveRequest struct {
	filter  leaky.FailedFilter
	max     int
	dryRun  bool
	limitTo string // token of a preview; "": the filter selects
}

// parseRedrive reads which failed jobs to redrive, and how many at most.
func parseRedrive(body []byte) (asked redriveRequest, err error) {
	fields, err := web.Members(body)
	if err != nil {
		return asked, err
	}
	asked.max = defaultRedrive
	var wrong web.FieldErrors
	for _, m := range fields {
		switch m.Name {
		case "operation":
			asked.filter.Operation = wrong.Filled(m)
		case "client":
			asked.filter.Client = wrong.Filled(m)
		case "code":
			asked.filter.Code = wrong.Filled(m)
		case "max":
			if n := wrong.Count(m, maxRedrive); n != nil {
				asked.max = *n
			}
		case "dry_run":
			if dry := wrong.Flag(m); dry != nil {
				asked.dryRun = *dry
			}
		case "limit_to":
			asked.limitTo = wrong.Filled(m)
		default:
			wrong.Unknown(m)
		}
	}
	if asked.limitTo != "" && len(fields) > 1 {
		wrong.Add("limit_to", "Must stand alone: it names the jobs of a preview already.")
	}
	return asked, wrong.Err()
}

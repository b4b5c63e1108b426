package httpapi

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// result answers GET /v1/jobs/{id}/result with the backend's own answer, or the reason why there is
// none.
func (s *Server) result(c *call) error {
	line, look, err := s.ownJob(c)
	if err != nil {
		return err
	}
	st := look.Standing
	switch st.State {
	case jobs.Succeeded:
		if err := c.sendResult(st.Result.Status, line, look); err != nil {
			return err
		}
		s.warm(line, look.Job, nil)
		return nil
	case jobs.Failed, jobs.Expired:
		return c.failedResult(line, look)
	case jobs.Canceled:
		return web.Problem(http.StatusGone, api.CodeCanceled,
			"The job was canceled: it has no result.")
	}
	p := web.Problem(http.StatusConflict, api.CodeNotFinished,
		"The job is "+st.State.Public()+": there is no result yet.")
	p.RetryAfter = jobview.PollAfter(look, time.Now())
	return p
}

// warm loads the stored answer of a job that is being served into this process's memory, so that it
// can be served stale while the store is unavailable. It runs in the background. The answer is
// found by the job's payload, which is read from the store if payload is nil.
func (s *Server) warm(line Line, job jobs.Job, payload []byte) {
	o := s.Admission.Operation(job.Operation)
	if o == nil || !o.Overload.KeepsFor(job.Client) || s.Admission.RejectOnFailure ||
		!s.warmed.first(job.ID) {
		return
	}
	select {
	case s.warming <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-s.warming }()
		ctx, cancel := context.WithTimeout(context.Background(), web.StoreTime)
		defer cancel()
		if payload == nil {
			var err error
			if payload, err = line.Payload(ctx, job.Source()); err != nil {
				return
			}
		}
		s.Answers.Warm(ctx, o.Overload.CacheKey(job.Operation, job.Client, job.Tier, payload))
	}()
}

// recently remembers the jobs that it was asked about. The zero value knows none. Safe for
// concurrent use.
type recently struct {
	mu   sync.Mutex
	jobs map[string]bool // guarded by mu
}

// maxRecent bounds the jobs that are remembered, some 100 bytes each.
const maxRecent = 10_000

// first reports whether the job is not remembered, and remembers it.
func (r *recently) first(job string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.jobs[job] {
		return false
	}
	if r.jobs == nil || len(r.jobs) >= maxRecent {
		r.jobs = make(map[string]bool)
	}
	r.jobs[job] = true
	return true
}

func resultGone() *api.Problem {
	return web.Problem(http.StatusGone, api.CodeResultGone,
		"The job succeeded, and its result has been removed since.")
}

// failedResult returns a failed job's problem, with the backend's answer.
func (c *call) failedResult(line Line, look leaky.Look) error {
	p := jobview.FailureProblem(look.Standing.Failure)
	meta := look.Standing.Result
	if meta.Status == 0 {
		return p
	}
	// For the bytes, their text, and the document with that text.
	if err := c.reserve(nil, 3*int(meta.Size)); err != nil {
		return err
	}
	p.BackendAnswer = jobview.BackendAnswer(meta)
	body, err := line.Result(c.Ctx, look.Job.Source())
	switch {
	case errors.Is(err, leaky.ErrNoResult): // the problem still has its status
	case err != nil:
		return web.StoreError(err)
	case utf8.Valid(body):
		p.BackendAnswer.Body = string(body)
	default:
		p.BackendAnswer.BodyBase64 = body
	}
	return p
}

package httpapi

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"forebay/api"
	"forebay/internal/jobs"
	"forebay/internal/leaky"
)

// result answers GET /v1/jobs/{id}/result: with the backend's own answer, or with why there is none.
func (s *Server) result(c *call) error {
	line, look, err := s.ownJob(c)
	if err != nil {
		return err
	}
	st := look.Standing
	switch st.State {
	case jobs.Succeeded:
		body, err := line.Result(c.ctx, look.Job.Source())
		if errors.Is(err, leaky.ErrNoResult) {
			return resultGone()
		}
		if err != nil {
			return storeError{err}
		}
		c.w.Header()["X-Content-Type-Options"] = noSniff
		c.bytes(st.Result.Status, st.Result.ContentType, body)
		s.remember(line, look, body)
		return nil
	case jobs.Failed, jobs.Expired:
		return failedResult(c.ctx, line, look)
	case jobs.Canceled:
		return problem(http.StatusGone, api.CodeCanceled, "The job was canceled: it has no result.")
	}
	p := problem(http.StatusConflict, api.CodeNotFinished, "The job is "+st.State.Public()+": there is no result yet.")
	p.RetryAfter = pollAfter(look, time.Now())
	return p
}

// remember keeps an answer that passed through this process, so that it can be served stale when the store is lost. It is done behind
// the client's back: the job's payload, by which the answer will be found, has to be read for it.
func (s *Server) remember(line Line, look leaky.Look, body []byte) {
	o := s.operations[look.Job.Operation]
	if o == nil || o.Overload.StaleFor == 0 || s.OnFailure == OnFailureReject || !s.remembered.first(look.Job.ID) {
		return
	}
	select {
	case s.remembering <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-s.remembering }()
		ctx, cancel := context.WithTimeout(context.Background(), storeTime)
		defer cancel()
		job := look.Job
		var err error
		if job.Payload, err = line.Payload(ctx, job.Source()); err == nil {
			s.Degrader.Remember(o.Overload, job, look.Standing.Result, body, max(look.Now.Sub(look.Standing.FinishedAt), 0))
		}
	}()
}

// recently tells of the jobs that it was asked about lately. The zero value knows none. Safe for concurrent use.
type recently struct {
	mu   sync.Mutex
	jobs map[string]bool // guarded by mu
}

// maxRecent bounds the jobs that are known, some 100 bytes each.
const maxRecent = 10_000

// first reports whether it wasn't asked about the job before, or so long ago that it has forgotten.
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
	return problem(http.StatusGone, api.CodeResultGone, "The job succeeded, and its result has been removed since.")
}

// failedResult is a failed job's problem, with what the backend had answered.
func failedResult(ctx context.Context, line Line, look leaky.Look) error {
	p := failureProblem(look.Standing.Failure)
	meta := look.Standing.Result
	if meta.Status == 0 {
		return p
	}
	p.BackendAnswer = &api.BackendAnswer{Status: meta.Status, ContentType: meta.ContentType}
	body, err := line.Result(ctx, look.Job.Source())
	switch {
	case errors.Is(err, leaky.ErrNoResult): // its status is told all the same
	case err != nil:
		return storeError{err}
	case utf8.Valid(body):
		p.BackendAnswer.Body = string(body)
	default:
		p.BackendAnswer.BodyBase64 = body
	}
	return p
}

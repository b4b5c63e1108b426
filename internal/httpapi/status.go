package httpapi

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gorilla/mux"

	"forebay/api"
	"forebay/internal/jobs"
	"forebay/internal/leaky"
)

// ownJob is the job that the path names, for its owner. Whatever keeps it from somebody has one answer, after the
// same work, as far as the id is one of ours. A job for many, and a refresh, is nobody's: the backend is told its id and may show it, and
// whoever could cancel it would for all.
func (s *Server) ownJob(c *call) (Line, leaky.Look, error) {
	id := mux.Vars(c.r)["id"]
	backend, ok := jobs.ParseID(id)
	line := s.Lines[backend]
	if !ok || line == nil {
		return nil, leaky.Look{}, unknownJob()
	}
	look, err := line.Look(c.ctx, id)
	if err != nil {
		return nil, leaky.Look{}, c.ownLookError(err)
	}
	if look.Job.Shared || look.Job.Client != c.client.ID {
		return nil, leaky.Look{}, unknownJob()
	}
	return line, look, nil
}

// status answers GET /v1/jobs/{id}.
func (s *Server) status(c *call) error {
	if wantsStream(c.r.Header["Accept"]) {
		return s.stream(c)
	}
	return s.oneStatus(c)
}

// oneStatus answers with where the job stands. Held back, it waits for the job's end; where the client says what it knows of the job, for its
// next move.
func (s *Server) oneStatus(c *call) error {
	line, look, err := s.ownJob(c)
	if err != nil {
		return err
	}
	known := c.r.Header["If-None-Match"]
	if look, err = s.hold(c, line, look, func(l leaky.Look) bool { return done(l) || len(known) > 0 && !stands(known, l) }); err != nil {
		return err
	}
	now := time.Now()
	h := c.w.Header()
	h["Cache-Control"] = privateNoCache
	h["Vary"] = varyByCaller
	etag := tag(look)
	h["ETag"] = []string{etag}
	if !done(look) {
		h["Retry-After"] = []string{strconv.Itoa(pollAfter(look, now))}
	}
	if matches(known, etag) {
		c.head(http.StatusNotModified)
		return nil
	}
	return c.json(http.StatusOK, jobView(look, now))
}

var (
	privateNoCache = []string{"private, no-cache"}
	varyByCaller   = []string{"Authorization, X-API-Key, Accept, Prefer"}
	noSniff        = []string{"nosniff"}
)

// cancel answers DELETE /v1/jobs/{id} without a query.
func (s *Server) cancel(c *call) error {
	line, look, err := s.ownJob(c)
	if err != nil {
		return err
	}
	outcome, err := line.Cancel(c.ctx, look.Job.ID)
	if err != nil {
		return c.ownLookError(err)
	}
	s.heard.forget(c.client.ID) // a place in a limit on jobs at one time may be free
	if look, err = line.Look(c.ctx, look.Job.ID); err != nil {
		return c.ownLookError(err)
	}
	switch outcome {
	case leaky.Canceled:
		return c.json(http.StatusOK, jobView(look, time.Now()))
	case leaky.Aborting:
		c.w.Header()["Retry-After"] = []string{strconv.Itoa(minPoll)}
		return c.json(http.StatusAccepted, jobView(look, time.Now()))
	}
	return problem(http.StatusConflict, api.CodeFinished, "The job is "+look.Standing.State.Public()+" already.")
}

// lookError tells a job that was forgotten in between from a store that fails.
func lookError(err error) error {
	if errors.Is(err, leaky.ErrUnknownJob) {
		return unknownJob()
	}
	return storeError{err}
}

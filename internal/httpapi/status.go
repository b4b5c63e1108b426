package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// ownJob returns the job that the path names, for its owner (see owns). All other callers get the
// same answer after the same work, if the id names a backend of the config. A job that several
// requests share is unowned: the backend gets its id and may reveal it, and a caller that could
// cancel it would cancel it for all.
func (s *Server) ownJob(c *call) (Line, leaky.Look, error) {
	id := c.Var("id")
	backend, ok := jobs.ParseID(id)
	line := s.Lines[backend]
	if !ok || line == nil {
		return nil, leaky.Look{}, jobview.UnknownJob()
	}
	look, err := line.Look(c.Ctx, id)
	if err := c.mustOwn(id, look, err); err != nil {
		return nil, leaky.Look{}, err
	}
	return line, look, nil
}

// mustOwn returns the problem to answer with if a look failed, or its job isn't the caller's.
func (c *call) mustOwn(id string, look leaky.Look, err error) error {
	if err != nil {
		return c.ownLookError(id, err)
	}
	if look.Job.Shared || !c.owns(look.Job.Client, id) {
		return jobview.UnknownJob()
	}
	return nil
}

// owns reports whether a job is the caller's. The job of a caller without a key belongs to the
// bearer of its id, which is random, since strangers may share an address. Ids of earlier releases
// aren't all random, so for those the address must match too.
func (c *call) owns(client, id string) bool {
	if c.bears(id) {
		return jobs.IsAnonymous(client)
	}
	return client == c.caller.ID
}

// bears reports whether the id proves that a job is this caller's, if the job is of a caller
// without a key.
func (c *call) bears(id string) bool { return c.caller.Anonymous && jobs.Random(id) }

// status answers GET /v1/jobs/{id}.
func (s *Server) status(c *call) error {
	if c.R.URL.Query().Has("explain") {
		return s.explain(c)
	}
	if web.WantsStream(c.R.Header["Accept"]) {
		return s.stream(c)
	}
	return s.oneStatus(c)
}

// oneStatus answers with where the job stands. If the client prefers to wait, the answer is held
// until the job's end, or until its next move if the client names the state that it knows.
func (s *Server) oneStatus(c *call) error {
	line, look, err := s.ownJob(c)
	if err != nil {
		return err
	}
	known := c.R.Header["If-None-Match"]
	look, err = s.hold(c, line, look, func(l leaky.Look) bool {
		return done(l) || len(known) > 0 && !jobview.Stands(known, l)
	})
	if err != nil {
		return err
	}
	now := time.Now()
	h := c.W.Header()
	h["Cache-Control"] = privateNoCache
	h["Vary"] = varyByCaller
	etag := jobview.Tag(look)
	h["ETag"] = []string{etag}
	if !done(look) {
		h["Retry-After"] = []string{strconv.Itoa(jobview.PollAfter(look, now))}
	}
	if web.Matches(known, etag) {
		c.Head(http.StatusNotModified)
		return nil
	}
	return c.JSON(http.StatusOK, jobview.ForClient(look, now))
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
	outcome, err := line.Cancel(c.Ctx, look.Job.ID)
	if err != nil {
		return c.ownLookError(look.Job.ID, err)
	}
	s.Admission.Forget(look.Job.Client) // a permit may be free
	id := look.Job.ID
	if look, err = line.Look(c.Ctx, id); err != nil {
		return c.ownLookError(id, err)
	}
	switch outcome {
	case leaky.Canceled:
		return c.JSON(http.StatusOK, jobview.ForClient(look, time.Now()))
	case leaky.Aborting:
		c.W.Header()["Retry-After"] = []string{strconv.Itoa(jobview.MinPoll)}
		return c.JSON(http.StatusAccepted, jobview.ForClient(look, time.Now()))
	}
	return web.Problem(http.StatusConflict, api.CodeFinished,
		"The job is "+look.Standing.State.Public()+" already.")
}

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

// pollFinal is how often a held-back answer looks at its job although nobody said that it ended: such word may get lost.
const pollFinal = 2 * time.Second

// ownJob is the job that the path names, for its owner. Whatever keeps it from somebody has one answer, after the
// same work, as far as the id is one of ours.
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
	if look.Job.Client != c.client.ID {
		return nil, leaky.Look{}, unknownJob()
	}
	return line, look, nil
}

// status answers GET /v1/jobs/{id}.
func (s *Server) status(c *call) error {
	line, look, err := s.ownJob(c)
	if err != nil {
		return err
	}
	if look, err = s.await(c, line, look); err != nil {
		return err
	}
	now := time.Now()
	h := c.w.Header()
	h["Cache-Control"] = privateNoCache
	h["Vary"] = varyByCaller
	etag := tag(look)
	h["ETag"] = []string{etag}
	if !look.Standing.State.Final() {
		h["Retry-After"] = []string{strconv.Itoa(pollAfter(look, now))}
	}
	if matches(c.r.Header["If-None-Match"], etag) {
		c.head(http.StatusNotModified)
		return nil
	}
	return c.json(http.StatusOK, jobView(look, now))
}

var (
	privateNoCache = []string{"private, no-cache"}
	varyByCaller   = []string{"Authorization, X-API-Key, Prefer"}
	noSniff        = []string{"nosniff"}
)

// await holds the answer back until the job is done, as long as the client prefers, and returns where the job stands then. It is cut
// short when the client is gone and when the server drains.
func (s *Server) await(c *call, line Line, look leaky.Look) (leaky.Look, error) {
	wait := preferredWait(c.r.Header[api.HeaderPrefer])
	if wait == 0 {
		return look, nil
	}
	select {
	case s.waiters <- struct{}{}:
		defer func() { <-s.waiters }()
	default:
		return look, nil // too many wait already; the preference isn't applied
	}
	c.w.Header()[api.HeaderPreferenceApplied] = []string{"wait=" + strconv.Itoa(int(wait/time.Second))}

	began := time.Now()
	defer func() {
		c.held = time.Since(began)
		c.verdict, c.peeked = nil, nil // what the limits held before is old news
	}()
	done, forget := s.Finals.Done(look.Job.ID)
	defer forget()
	over := time.NewTimer(wait)
	defer over.Stop()
	poll := time.NewTicker(pollFinal)
	defer poll.Stop()
	for last := false; !look.Standing.State.Final(); {
		// Looked at after Done, so that no end is missed.
		c.renew()
		fresh, err := line.Look(c.ctx, look.Job.ID)
		if err != nil {
			return look, lookError(err)
		}
		look = fresh
		if last || look.Standing.State.Final() {
			return look, nil
		}
		select {
		case <-done:
			done = nil
		case <-poll.C:
		case <-over.C:
			last = true
		case <-s.draining:
			return look, nil
		case <-c.r.Context().Done():
			return look, nil
		}
	}
	return look, nil
}

// cancel answers DELETE /v1/jobs/{id} without a query.
func (s *Server) cancel(c *call) error {
	line, look, err := s.ownJob(c)
	if err != nil {
		return err
	}
	outcome, err := line.Cancel(c.ctx, look.Job.ID)
	if err != nil {
		return lookError(err)
	}
	s.heard.forget(c.client.ID) // a place in a limit on jobs at one time may be free
	if look, err = line.Look(c.ctx, look.Job.ID); err != nil {
		return lookError(err)
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

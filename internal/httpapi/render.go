package httpapi

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// render answers with an outcome of admission. Only this file knows each outcome's status, fields
// and body.
func (c *call) render(o admission.Outcome) error {
	t := o.About()
	c.plan, c.verdict = t.Plan, t.Verdict
	c.decision, c.reason = api.Accepted, t.Reason
	if t.Missed {
		c.s.cached[c.operation].misses.Add(1)
	}
	if t.StoreError != nil {
		_ = c.StoreFailed(t.StoreError) // it is logged
	}
	switch o := o.(type) {
	case *admission.Accepted:
		return c.renderJob(o.Job)
	case *admission.Joined:
		c.W.Header()[api.HeaderCacheStatus] = []string{"forebay; fwd=miss; collapsed"}
		return c.renderJob(o.Job)
	case *admission.Replayed:
		c.W.Header()[api.HeaderIdempotentReplay] = []string{"true"}
		return c.renderJob(o.Job)
	case *admission.Stored:
		return c.renderStored(o)
	case *admission.Fixed:
		c.decision = api.Degraded
		c.W.Header()["Cache-Control"] = web.NoStore
		c.Bytes(http.StatusOK, "application/json", o.Body)
	case *admission.Passed:
		c.W.Header()["Cache-Control"] = web.NoStore
		c.Bytes(http.StatusOK, "", nil)
	case *admission.Refused:
		return c.refused(o)
	}
	return nil
}

// renderJob answers 202 for a job that isn't done and 200 for one that is, after the wait that the
// client prefers. A client that waited gets the result itself, and Content-Location names it.
func (c *call) renderJob(j admission.Job) error {
	c.jobID = j.Look.Job.ID
	if j.Fallback {
		c.decision = api.Degraded
	}
	line := c.s.lineOf(c.jobID)
	payload := c.payload
	if preferredWait(c.R.Header[api.HeaderPrefer]) > 0 && !done(j.Look) {
		j.Look.Job.Payload, payload = nil, nil
		c.drop() // thousands of requests wait
	}
	look, err := c.s.await(c, line, j.Look)
	p, ok := errors.AsType[*api.Problem](err)
	if err != nil && !(ok && p.Code == api.CodeTooManyStreams) {
		c.StoreLost = true
	}
	// The job is accepted even if the wait failed or was refused: answer with its state before the
	// wait.
	view := jobview.ForClient(look, time.Now())
	view.Degraded = j.Fallback
	h := c.W.Header()
	h["Cache-Control"] = web.NoStore
	h["Location"], h["Content-Location"] = []string{view.StatusURL}, []string{view.StatusURL}
	if view.Done {
		if h[api.HeaderPreferenceApplied] != nil && view.Status == api.Succeeded {
			h["Content-Location"] = []string{view.Links.Result}
			if c.sendResult(http.StatusOK, line, look) == nil {
				c.s.warm(line, look.Job, payload)
				return nil
			}
			h["Content-Location"] = []string{view.StatusURL}
		}
		return c.JSON(http.StatusOK, view)
	}
	h["Retry-After"] = []string{strconv.Itoa(jobview.PollAfter(look, time.Now()))}
	// Without this field, some clients take any 200 at Location for the job's end.
	h[api.HeaderOperationLocation] = []string{view.StatusURL}
	return c.JSON(http.StatusAccepted, view)
}

// renderStored answers with a stored answer. If there is no room to hold it until it is read, the
// answer is a problem: a job instead would cost the backend the call that the stored answer saves.
func (c *call) renderStored(o *admission.Stored) error {
	found := o.Answer
	counts := c.s.cached[c.operation]
	if err := c.reserve(found.Body, len(found.Body)); err != nil {
		counts.misses.Add(1)
		return err
	}
	// Age and ttl add up to how old a fresh answer may be. The ttl of a stale one is negative.
	ttl := int64(o.FreshFor/time.Second) - int64(found.Age/time.Second)
	status := ""
	if o.Fresh {
		counts.hit(len(found.Body))
		status = "forebay; hit; ttl=" + strconv.FormatInt(ttl, 10)
	} else {
		c.decision = api.Degraded
		counts.old(len(found.Body), found.Age, time.Now())
		status = "forebay; hit; ttl=" + strconv.FormatInt(min(ttl, -1), 10) + "; detail=degraded"
	}
	h := c.W.Header()
	h["Age"] = []string{strconv.FormatInt(int64(found.Age/time.Second), 10)}
	h[api.HeaderCacheStatus] = []string{status}
	h["Cache-Control"] = web.NoStore
	c.describe(found.ContentType, found.Fields)
	c.Bytes(http.StatusOK, found.ContentType, found.Body)
	return nil
}

// refused returns the problem for a request that was refused.
func (c *call) refused(o *admission.Refused) error {
	switch o.By {
	case admission.ByLine:
		return lineRefused(c.operation, o)
	case admission.BySpentKey:
		return web.Problem(http.StatusGone, api.CodeJobGone,
			"The job of this Idempotency-Key was purged. "+
				"The key can't be used again before the job's record would have gone: use another.")
	case admission.ByOtherRequest:
		return web.Problem(http.StatusUnprocessableEntity, api.CodeKeyReuse,
			"This Idempotency-Key came with another request before. "+
				"Requests are the same when their bodies are, byte for byte.")
	case admission.ByNoAnswer:
		return web.Problem(http.StatusGatewayTimeout, api.CodeNotCached,
			"There is no stored answer to this request that may be served, "+
				"and it asks for no other.")
	case admission.ByStore:
		return web.StoreUnavailable()
	}
	return overLimit(o, c.bodyBytes)
}

// lineRefused returns the answer to a request whose job got no place in the line.
func lineRefused(operation string, o *admission.Refused) *api.Problem {
	p := &api.Problem{Type: api.TypeReducedCapacity, Title: "Temporary Reduced Capacity",
		Status: http.StatusTooManyRequests, Reason: string(o.Line),
		ViolatedPolicies: []string{"line"}}
	switch o.Line {
	case leaky.LineFull:
		p.Code, p.Detail = api.CodeLineFull, "The line for "+operation+" is full."
	case leaky.ClientShare:
		p.Type, p.Title = api.TypeQuotaExceeded, "Quota Exceeded"
		p.Code, p.Detail = api.CodeClientShare, "You hold your share of the line for "+operation+"."
	case leaky.StoredFull:
		p.Type, p.Title = api.TypeQuotaExceeded, "Quota Exceeded"
		p.Code, p.ViolatedPolicies = api.CodeStoredFull, []string{"stored"}
		p.Detail = "Your jobs and their results take as much storage for " + operation +
			" as they may. Purge jobs that have ended, or wait until they expire."
	default:
		p.Code, p.Detail = api.CodeWaitTooLong, "The predicted wait for "+operation+" is too long."
	}
	// The wait is a prediction, and clients that were refused together shouldn't return together.
	jitter := time.Duration(rand.Float64() * 0.1 * float64(o.RetryAfter))
	p.RetryAfter = web.WholeSeconds(o.RetryAfter + jitter)
	return p
}

package httpapi

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// onBackoff is what a job waits on between two attempts.
const onBackoff = "backoff"

// jobView is a job as its client sees it.
func jobView(look leaky.Look, now time.Time) *api.Job {
	st := look.Standing
	self := "/v1/jobs/" + look.Job.ID
	v := &api.Job{
		ID: look.Job.ID, StatusURL: self, Operation: look.Job.Operation,
		Status: st.State.Public(), Done: st.State.Final(), Attempts: st.Attempts,
		CreatedAt: api.Time{Time: look.Job.CreatedAt}, StartedAt: when(st.StartedAt),
		Links:       api.Links{Self: self, Result: self + "/result", Cancel: self},
		CallbackURL: look.Job.Callback,
	}
	if v.Done {
		v.FinishedAt, v.ExpiresAt, v.Links.Cancel = when(st.FinishedAt), when(st.ExpiresAt), ""
	}
	switch st.State {
	case jobs.Waiting, jobs.Delayed, jobs.Released:
		v.Queue = queueView(look, now)
	case jobs.Failed, jobs.Expired:
		v.Error = failureProblem(st.Failure)
	case jobs.Canceled:
		v.Links.Result = ""
	}
	return v
}

func queueView(look leaky.Look, now time.Time) *api.Queue {
	q := &api.Queue{Position: look.Position, WaitingOn: look.WaitingOn}
	switch look.Standing.State {
	case jobs.Delayed:
		q.WaitingOn, q.NextAttemptAt = onBackoff, when(look.Standing.NextAt)
	case jobs.Released:
		q.WaitingOn = leaky.OnRate // it has its slot, a moment ahead
	}
	if q.WaitingOn != leaky.OnPaused && q.WaitingOn != leaky.OnQueuePaused {
		eta := math.Round(untilStart(look, now).Seconds()*10) / 10
		q.ETASeconds = &eta
	}
	return q
}

// untilStart is how long a queued job is predicted to wait.
func untilStart(look leaky.Look, now time.Time) time.Duration {
	if look.Standing.State == jobs.Delayed {
		return max(look.Standing.NextAt.Sub(now), 0)
	}
	return max(look.Wait, 0)
}

func when(t time.Time) *api.Time {
	if t.IsZero() {
		return nil
	}
	return &api.Time{Time: t}
}

// Bounds of what a client is told to wait before it asks for a job's status again, in seconds. Predictions of over half a minute change
// on the way.
const (
	minPoll = 1
	maxPoll = 30
)

// pollAfter is when asking for an unfinished job is worth it, in seconds.
func pollAfter(look leaky.Look, now time.Time) int {
	if look.Standing.State == jobs.Running {
		return minPoll
	}
	if look.WaitingOn == leaky.OnPaused || look.WaitingOn == leaky.OnQueuePaused {
		return maxPoll
	}
	return min(web.WholeSeconds(untilStart(look, now)), maxPoll)
}

// tag is a job's ETag. It names all that makes two answers different but the clock: the standing's version, which every move
// changes, and the place in the line. It is weak, as eta_seconds goes down by itself.
func tag(look leaky.Look) string {
	return fmt.Sprintf(`W/"%s%d-%s"`, standingTag(look), look.Position, look.WaitingOn)
}

// standingTag is how a tag begins while the job makes no move.
func standingTag(look leaky.Look) string {
	return fmt.Sprintf("%d-%s-", look.Standing.Version, look.Standing.State)
}

// stands reports whether an If-None-Match field names the job before its next move, wherever its place in the line was.
func stands(lines []string, look leaky.Look) bool {
	begin := `"` + standingTag(look)
	return web.AnyTag(lines, func(tag string) bool { return strings.HasPrefix(tag, begin) })
}

// unknownJob is the one answer to a job that isn't there, an id that is none, and another client's job.
func unknownJob() *api.Problem {
	return web.Problem(http.StatusNotFound, api.CodeUnknownJob,
		"There is no such job. It may have been forgotten: see expires_at.")
}

// failureProblem is why a job failed, as the error member of its status and as the answer to the
// question for its result. It is a 424 since the call itself went well: a 5xx would have proxies and
// clients retry what is final.
func failureProblem(f jobs.Failure) *api.Problem {
	return web.Problem(http.StatusFailedDependency, f.Code, f.Detail)
}

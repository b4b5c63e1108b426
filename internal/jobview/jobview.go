// Package jobview describes a job to clients and operators, and the problems of asking for one. All
// functions are pure.
package jobview

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// onBackoff is what a job waits on between two attempts.
const onBackoff = "backoff"

// ForClient returns a job as its client sees it at a moment.
func ForClient(look leaky.Look, now time.Time) *api.Job {
	st := look.Standing
	self := "/v1/jobs/" + look.Job.ID
	v := &api.Job{
		ID: look.Job.ID, StatusURL: self, Operation: look.Job.Operation,
		Status: st.State.Public(), Done: st.State.Final(), Attempts: st.Attempts,
		CreatedAt: api.Time{Time: look.Job.CreatedAt}, StartedAt: web.Time(st.StartedAt),
		Links:       api.Links{Self: self, Result: self + "/result", Cancel: self},
		CallbackURL: look.Job.Callback,
	}
	if v.Done {
		v.FinishedAt, v.ExpiresAt = web.Time(st.FinishedAt), web.Time(st.ExpiresAt)
		v.Links.Cancel = ""
	}
	switch st.State {
	case jobs.Waiting, jobs.Delayed, jobs.Released:
		v.Queue = queue(look, now)
	case jobs.Failed, jobs.Expired:
		v.Error = FailureProblem(st.Failure)
	case jobs.Canceled:
		v.Links.Result = ""
	}
	return v
}

// ForOperator returns a job as an operator sees it at a moment, without the bytes of its backend's
// answer.
func ForOperator(look leaky.Look, now time.Time) api.AdminJob {
	st, id := look.Standing, look.Job.ID
	backend, _ := jobs.ParseID(id)
	self := "/admin/v1/jobs/" + id
	v := api.AdminJob{
		ID: id, Backend: backend, Operation: look.Job.Operation,
		Client: look.Job.Client, Tier: look.Job.Tier, Priority: string(look.Job.Priority),
		Status: st.State.Public(), State: string(st.State), Done: st.State.Final(),
		Canceling: st.Canceling, Attempts: st.Attempts,
		CreatedAt: api.Time{Time: look.Job.CreatedAt}, StartedAt: web.Time(st.StartedAt),
		Links: api.AdminLinks{Self: self, Cancel: self},
	}
	switch st.State {
	case jobs.Waiting, jobs.Delayed, jobs.Released:
		v.Queue = queue(look, now)
	case jobs.Failed:
		v.Links.Redrive = self + "/redrive"
	}
	if v.Done {
		v.FinishedAt, v.ExpiresAt = web.Time(st.FinishedAt), web.Time(st.ExpiresAt)
		v.Links.Cancel = ""
	}
	if st.Failure.Code != "" && st.State != jobs.Succeeded && st.State != jobs.Canceled {
		v.Failure = &api.JobFailure{Code: st.Failure.Code, Detail: st.Failure.Detail}
	}
	if v.Done && st.Result.Status != 0 {
		v.Answer = &api.KeptAnswer{Size: st.Result.Size, BackendAnswer: *BackendAnswer(st.Result)}
	}
	return v
}

func queue(look leaky.Look, now time.Time) *api.Queue {
	q := &api.Queue{Position: look.Position, WaitingOn: look.WaitingOn}
	switch look.Standing.State {
	case jobs.Delayed:
		q.WaitingOn, q.NextAttemptAt = onBackoff, web.Time(look.Standing.NextAt)
	case jobs.Released:
		q.WaitingOn = leaky.OnRate // it has its slot, a moment ahead
	}
	if q.WaitingOn != leaky.OnPaused && q.WaitingOn != leaky.OnQueuePaused {
		eta := math.Round(untilStart(look, now).Seconds()*10) / 10
		q.ETASeconds = &eta
	}
	return q
}

// untilStart returns how long a queued job is predicted to wait.
func untilStart(look leaky.Look, now time.Time) time.Duration {
	if look.Standing.State == jobs.Delayed {
		return max(look.Standing.NextAt.Sub(now), 0)
	}
	return max(look.Wait, 0)
}

// Bounds of the wait after which a client should ask for a job's status again, in seconds.
// Predictions of over half a minute change in the meantime.
const (
	MinPoll = 1
	maxPoll = 30
)

// PollAfter returns after how many seconds it is worth asking for an unfinished job again, from 1
// to 30.
func PollAfter(look leaky.Look, now time.Time) int {
	if look.Standing.State == jobs.Running {
		return MinPoll
	}
	if look.WaitingOn == leaky.OnPaused || look.WaitingOn == leaky.OnQueuePaused {
		return maxPoll
	}
	return min(web.WholeSeconds(untilStart(look, now)), maxPoll)
}

// Tag returns the ETag of a job's status. It has what makes two answers differ: the standing's
// version, which every move changes, and the place in the line. It is weak, since eta_seconds
// changes with the clock alone.
func Tag(look leaky.Look) string {
	return fmt.Sprintf(`W/"%s%d-%s"`, standingTag(look), look.Position, look.WaitingOn)
}

// standingTag returns how a tag begins until the job's next move.
func standingTag(look leaky.Look) string {
	return fmt.Sprintf("%d-%s-", look.Standing.Version, look.Standing.State)
}

// Stands reports whether the lines of an If-None-Match field name the job's present standing, at
// any place in the line.
func Stands(lines []string, look leaky.Look) bool {
	begin := `"` + standingTag(look)
	return web.AnyTag(lines, func(tag string) bool { return strings.HasPrefix(tag, begin) })
}

// BackendAnswer describes a backend's answer without its bytes.
func BackendAnswer(meta jobs.Meta) *api.BackendAnswer {
	return &api.BackendAnswer{Status: meta.Status, ContentType: meta.ContentType,
		Fields: meta.Fields.Map()}
}

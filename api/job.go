// Package api defines the bodies, header names and problem codes of both of Forebay's listeners,
// and holds the OpenAPI document that describes them. It has no logic and needs only the standard
// library, so that clients may import it.
package api

import (
	"encoding/json"
	"time"
)

// JobRequest is the body of POST /v1/jobs.
type JobRequest struct {
	Operation string `json:"operation"`
	// Payload is any JSON value, null included. It reaches the backend byte for byte.
	Payload json.RawMessage `json:"payload"`
	// Priority is High, Normal or Low; "" means Normal.
	Priority string `json:"priority,omitempty"`
	// StartWithin is how long the job may wait for its first start, such as "90s"; "" means no
	// limit. A job predicted to wait longer is refused. A job that does wait longer is not run
	// (Expired).
	StartWithin string `json:"start_within,omitempty"`
	// CallbackURL receives the Event of the job's end. "" means the client's own URL, if the config
	// has one.
	CallbackURL string `json:"callback_url,omitempty"`
}

// Priorities of a JobRequest.
const (
	High   = "high"
	Normal = "normal"
	Low    = "low"
)

// Job is the state of a job.
type Job struct {
	ID         string   `json:"job_id"`
	StatusURL  string   `json:"status_url"`
	Operation  string   `json:"operation"`
	Status     string   `json:"status"`
	Done       bool     `json:"done"`     // Status is final, unless an operator redrives the job
	Attempts   int      `json:"attempts"` // calls of the backend begun, except those it throttled
	Queue      *Queue   `json:"queue,omitempty"`
	CreatedAt  Time     `json:"created_at"`
	StartedAt  *Time    `json:"started_at,omitempty"`  // of the newest attempt
	FinishedAt *Time    `json:"finished_at,omitempty"` // once Done
	ExpiresAt  *Time    `json:"expires_at"`            // when it is removed; null until Done
	Error      *Problem `json:"error,omitempty"`       // of Failed and Expired
	Links      Links    `json:"links"`

	CallbackURL string `json:"callback_url,omitempty"` // receives the Event of its end

	// Degraded is set in the answer to a request: this job is one of a fallback operation.
	Degraded bool `json:"degraded,omitempty"`
}

// JobList is a page of the caller's jobs, newest first. NextCursor is absent on the last page.
// Other pages may be short or empty.
type JobList struct {
	Jobs       []Job  `json:"jobs"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// Event is the body of a webhook: the end of a job.
type Event struct {
	Type      string `json:"type"` // the EventType of the job's status
	Timestamp Time   `json:"timestamp"`
	Data      Job    `json:"data"`
}

// EventType returns the type of the Event of a final status, such as "job.succeeded".
func EventType(status string) string { return "job." + status }

// Values of Job.Status.
const (
	Queued    = "queued"
	Running   = "running"
	Succeeded = "succeeded"
	Failed    = "failed"
	Canceled  = "canceled"
	Expired   = "expired" // a deadline passed before it could run
)

// Queue is the place of a queued job.
type Queue struct {
	// Position is 1 for the next job of the line. It is 0 for a job that has left the line: it has
	// its slot, or waits for a retry.
	Position int64 `json:"position"`
	// ETASeconds is the predicted time to the start; null while the backend is paused, since the
	// end of a pause isn't known.
	ETASeconds *float64 `json:"eta_seconds"`
	// WaitingOn is "rate", "concurrency", "paused", "cooldown" (the backend asked for a pause) or
	// "backoff" (a retry is due).
	WaitingOn string `json:"waiting_on"`
	// NextAttemptAt is when the backoff of a retry ends.
	NextAttemptAt *Time `json:"next_attempt_at,omitempty"`
}

// Links are the links of a Job, as paths.
type Links struct {
	Self   string `json:"self"`
	Result string `json:"result,omitempty"` // absent if there will be none
	Cancel string `json:"cancel,omitempty"` // absent once the job is done; use DELETE
}

// Time marshals in UTC with exactly three digits of milliseconds, so that times sort as text.
type Time struct{ time.Time }

// MarshalJSON writes the time in the form "2026-11-30T07:34:49.120Z".
func (t Time) MarshalJSON() ([]byte, error) {
	return t.UTC().AppendFormat(make([]byte, 0, 26), `"2006-01-02T15:04:05.000Z"`), nil
}

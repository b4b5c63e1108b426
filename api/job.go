// Package api holds what goes over the wire: the bodies, the header names and the problem codes of both of
// Forebay's listeners, and the OpenAPI document that describes them. It has no logic and needs the standard library alone,
// so that clients may import it.
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
	// Priority is High, Normal or Low; "" stands for Normal.
	Priority string `json:"priority,omitempty"`
	// StartWithin is how long the job may wait for its first start, such as "90s"; "" stands for no such limit. A job
	// that is predicted to wait longer is refused, and one that does is not run (Expired).
	StartWithin string `json:"start_within,omitempty"`
	// CallbackURL is where the end of the job is told (an Event); "" stands for the client's own, where the config gives it one.
	CallbackURL string `json:"callback_url,omitempty"`
}

// Priorities of a JobRequest.
const (
	High   = "high"
	Normal = "normal"
	Low    = "low"
)

// Job is where a job stands.
type Job struct {
	ID         string   `json:"job_id"`
	StatusURL  string   `json:"status_url"`
	Operation  string   `json:"operation"`
	Status     string   `json:"status"`
	Done       bool     `json:"done"`     // Status is final: it doesn't change by itself (an operator may have a failed job run again)
	Attempts   int      `json:"attempts"` // calls of the backend begun, without those that it throttled
	Queue      *Queue   `json:"queue,omitempty"`
	CreatedAt  Time     `json:"created_at"`
	StartedAt  *Time    `json:"started_at,omitempty"`  // of the newest attempt
	FinishedAt *Time    `json:"finished_at,omitempty"` // Done
	ExpiresAt  *Time    `json:"expires_at"`            // Done: when the job and its result are forgotten; else null
	Error      *Problem `json:"error,omitempty"`       // Failed and Expired
	Links      Links    `json:"links"`

	CallbackURL string `json:"callback_url,omitempty"` // where its end will be, or was, told
	Degraded    bool   `json:"degraded,omitempty"`     // in the answer to a request: this job of another operation stands for what was asked
}

// JobList is a page of the caller's jobs, newest first.
type JobList struct {
	Jobs       []Job  `json:"jobs"`
	NextCursor string `json:"next_cursor,omitempty"` // absent after the last page; a page may be short, or empty, and not be the last
}

// Event is the body of a webhook: the end of a job.
type Event struct {
	Type      string `json:"type"` // EventType of the job's status
	Timestamp Time   `json:"timestamp"`
	Data      Job    `json:"data"`
}

// EventType is the type of the Event that tells of a final status, such as "job.succeeded".
func EventType(status string) string { return "job." + status }

// Words of Job.Status.
const (
	Queued    = "queued"
	Running   = "running"
	Succeeded = "succeeded"
	Failed    = "failed"
	Canceled  = "canceled"
	Expired   = "expired" // a deadline passed before it could run
)

// Queue is where a queued job waits.
type Queue struct {
	// Position is 1 for the next job of the line; 0 for a job that has left it, with its slot or to wait for a retry.
	Position int64 `json:"position"`
	// ETASeconds is the predicted time to the start; null while the backend is paused, which has no predicted end.
	ETASeconds *float64 `json:"eta_seconds"`
	// WaitingOn is "rate", "concurrency", "paused", "cooldown" (the backend asked for rest) or "backoff" (a retry is due).
	WaitingOn string `json:"waiting_on"`
	// NextAttemptAt is when the backoff of a retry ends.
	NextAttemptAt *Time `json:"next_attempt_at,omitempty"`
}

// Links of a Job, as paths.
type Links struct {
	Self   string `json:"self"`
	Result string `json:"result,omitempty"` // absent where there will be none
	Cancel string `json:"cancel,omitempty"` // absent once the job is done; use DELETE
}

// Time is written in UTC with exactly three digits of milliseconds, so that times sort as text.
type Time struct{ time.Time }

// MarshalJSON writes the time as in "2026-11-30T07:34:49.120Z".
func (t Time) MarshalJSON() ([]byte, error) {
	return t.UTC().AppendFormat(make([]byte, 0, 26), `"2006-01-02T15:04:05.000Z"`), nil
}

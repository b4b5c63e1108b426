package text

import (
	"strconv"
	"strings"
	"time"

	"github.com/forebay/forebay/api"
)

// Standing says where a job is, in a few words: its place in the line, when it starts and what it
// waits on, or its status.
func Standing(job *api.Job) string {
	q := job.Queue
	if q == nil {
		return Clean(job.Status)
	}
	var parts []string
	if q.Position > 0 {
		parts = append(parts, ordinal(q.Position)+" in line")
	}
	switch {
	case q.ETASeconds == nil:
		return strings.Join(append(parts, "the backend is paused"), ", ")
	case *q.ETASeconds < 1:
		parts = append(parts, "starts at once")
	default:
		parts = append(parts, "starts in about "+Span(*q.ETASeconds))
	}
	return strings.Join(append(parts, "waits on "+Clean(q.WaitingOn)), ", ")
}

// Job writes a client's job. Times are in UTC.
func Job(job *api.Job, now time.Time) string {
	rows := [][]string{{"job", Clean(job.ID)}, {"operation", Clean(job.Operation)},
		{"status", Clean(job.Status)}, {"attempts", strconv.Itoa(job.Attempts)}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	if job.Queue != nil {
		add("stands", Standing(job))
	}
	at := api.Time{Time: now}
	add("created", sinceText(&job.CreatedAt, at, ""))
	add("started", sinceText(job.StartedAt, at, ""))
	add("finished", sinceText(job.FinishedAt, at, ""))
	add("expires", sinceText(job.ExpiresAt, at, ""))
	if job.Error != nil {
		add("error", Clean(job.Error.Error()))
	}
	return Columns("", rows)
}

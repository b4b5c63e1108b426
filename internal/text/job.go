package text

import (
	"strings"

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

package client

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/forebay/forebay/api"
)

// Error is why a call came to nothing. Find it with errors.As; errors.Is finds ErrTooLate, ErrTooOften, and what broke the connection or ended
// the context, as far as there was such a cause.
type Error struct {
	Call       string        // the method and the path, below the base URL
	Status     int           // of the last answer; 0: none came
	Code       string        // of its problem, such as api.CodeRateLimit; "": it had none
	Reason     string        // of its problem: the limit's name, or "line_full" and the like
	RetryAfter time.Duration // the wait that the last answer asked for; 0: none
	Problem    *api.Problem  // the whole of it; nil: the answer was no problem, as those of proxies are
	Attempts   int           // tries that were made
	GaveUp     error         // ErrTooLate or ErrTooOften: it would have been tried again; nil: another try couldn't help
	Err        error         // what broke where no answer came, or ended the wait for the next try; nil otherwise
}

// Reasons of Error.GaveUp.
var (
	ErrTooLate  = errors.New("the next try would come after the context's deadline or MaxElapsed")
	ErrTooOften = errors.New("MaxAttempts tries were made")
)

// Error says what was asked, what came, and why it wasn't tried again. It holds no key.
func (e *Error) Error() string {
	text := "forebay: " + e.Call + ": "
	switch {
	case e.Problem != nil:
		text += fmt.Sprintf("%d %s", e.Status, e.Problem.Error())
	case e.Status != 0:
		text += fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status))
	}
	if e.Err != nil {
		if e.Status != 0 {
			text += "; "
		}
		text += e.Err.Error()
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf("; it asked for a wait of %s", e.RetryAfter)
	}
	if e.GaveUp != nil {
		text += "; given up: " + e.GaveUp.Error()
	}
	return text
}

// Unwrap returns the causes that there are.
func (e *Error) Unwrap() []error {
	var causes []error
	if e.Problem != nil {
		causes = append(causes, e.Problem)
	}
	for _, err := range []error{e.GaveUp, e.Err} {
		if err != nil {
			causes = append(causes, err)
		}
	}
	return causes
}

package client

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/forebay/forebay/api"
)

// Error is the error of a call that failed. Find it with errors.As. errors.Is finds ErrTooLate,
// ErrTooOften, and the cause of a broken connection or an ended context, if there was one.
type Error struct {
	Call       string        // the method and the path, below the base URL
	Status     int           // of the last answer; 0: none came
	Code       string        // of its problem, such as api.CodeRateLimit; "": it had none
	Reason     string        // of its problem: the limit's name, or a word such as "line_full"
	RetryAfter time.Duration // the wait that the last answer asked for; 0: none
	Problem    *api.Problem  // of the last answer; nil: it had none, as answers of proxies do
	Attempts   int           // tries that were made
	GaveUp     error         // ErrTooLate or ErrTooOften; nil: another try couldn't help
	Err        error         // why no answer came, or the wait ended; nil otherwise
}

// Values of Error.GaveUp.
var (
	ErrTooLate  = errors.New("the next try would come after the context's deadline or MaxElapsed")
	ErrTooOften = errors.New("MaxAttempts tries were made")
)

// Error describes the call, its answer, and why it wasn't tried again. It doesn't show the key.
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

// Unwrap returns the causes of the error.
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

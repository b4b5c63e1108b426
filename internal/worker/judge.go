package worker

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// Reasons for ending a call, as causes of its context.
var (
	errTimeout  = errors.New("the backend took longer than its timeout")
	errDeadline = errors.New("the job has reached its max_age")
	errCanceled = errors.New("the client canceled the job")
	errStopping = errors.New("this worker stops")
	errLost     = errors.New("the lease has expired")
)

// Outcomes of an attempt, in metrics and logs. The others are the codes of jobs.Failure.
const (
	wordSucceeded = "succeeded"
	wordThrottled = "throttled"
	wordCanceled  = "canceled"
	wordGivenBack = "given_back" // the worker stopped: the job waits for another worker
	wordLost      = "lost"       // the lease has expired: the attempt doesn't count
)

// attemptWords has all outcomes of an attempt.
var attemptWords = []string{
	wordSucceeded, wordThrottled, wordCanceled, wordGivenBack, wordLost,
	jobs.CodeBackendStatus, jobs.CodeBackendTimeout, jobs.CodeBackendDown,
	jobs.CodeResultTooLarge, jobs.CodeUnknownOperation, jobs.CodeDeadline,
}

// policy has the settings of a backend that judge needs.
type policy struct {
	retryOn  []int
	rest     []int
	base     time.Duration
	cap      time.Duration
	attempts int
}

// retries reports whether a status is worth another attempt. A status of 500 or more that is in no
// standard (520 to 524 of a CDN, 598) is treated like 500 (RFC 9110, section 15), unless it is
// listed itself.
func (p policy) retries(status int) bool {
	return slices.Contains(p.retryOn, status) ||
		status >= 500 && http.StatusText(status) == "" &&
			slices.Contains(p.retryOn, http.StatusInternalServerError)
}

// outcome is the outcome of an attempt: one word, and the settlement for the line.
type outcome struct {
	word string
	leaky.Settlement
	said jobs.Meta // status and Storing of the answer, even if it isn't kept; zero: no answer
}

// judge returns the outcome of attempt n at a job from the backend's answer, or from the error in
// place of an answer. random is in [0, 1) and spreads the backoff.
func judge(a answer, err error, n int, p policy, random float64) outcome {
	switch {
	case errors.Is(err, errCanceled):
		return outcome{word: wordCanceled, Settlement: leaky.Settlement{To: jobs.Canceled}}
	case errors.Is(err, errStopping):
		return outcome{word: wordGivenBack, Settlement: leaky.Settlement{To: jobs.Waiting}}
	case errors.Is(err, errDeadline):
		return failed(leaky.NoSign, jobs.CodeDeadline,
			"The job reached its maximum age during the call.")
	case errors.Is(err, errTimeout):
		return retry(leaky.Timeout, jobs.CodeBackendTimeout, "The backend did not answer in time",
			a, n, p, random)
	case err != nil:
		return retry(leaky.Unreachable, jobs.CodeBackendDown,
			"The backend could not be reached, or the connection broke", a, n, p, random)
	case slices.Contains(p.rest, a.Status) && !slices.Contains(p.retryOn, a.Status):
		return outcome{word: wordThrottled, Settlement: leaky.Settlement{
			To: jobs.Waiting, Sign: leaky.Throttled, Gate: a.RetryAfter,
			Failure: jobs.Failure{Code: jobs.CodeBackendStatus, Detail: said(a) + "."},
		}}
	case p.retries(a.Status):
		return retry(leaky.Answered, jobs.CodeBackendStatus, said(a), a, n, p, random)
	case !good(a.Status):
		return withAnswer(failed(leaky.Answered, jobs.CodeBackendStatus, said(a)+"."), a)
	case a.TooLarge:
		return failed(leaky.Answered, jobs.CodeResultTooLarge,
			"The backend's answer is larger than the operation's max_result.")
	}
	return withAnswer(outcome{word: wordSucceeded,
		Settlement: leaky.Settlement{To: jobs.Succeeded, Sign: leaky.Answered}}, a)
}

// retry returns the outcome of an attempt whose failure may be temporary: the job is delayed, or
// has failed if this was its last attempt.
func retry(
	sign leaky.Sign, code, detail string, a answer, n int, p policy, random float64,
) outcome {
	if n >= p.attempts {
		return withAnswer(failed(sign, code,
			fmt.Sprintf("%s, in attempt %d of %d.", detail, n, p.attempts)), a)
	}
	return outcome{word: code, Settlement: leaky.Settlement{
		To: jobs.Delayed, Delay: max(backoff(n, p.base, p.cap, random), a.RetryAfter), Sign: sign,
		Failure: jobs.Failure{Code: code, Detail: detail + "."},
	}}
}

func failed(sign leaky.Sign, code, detail string) outcome {
	return outcome{word: code, Settlement: leaky.Settlement{To: jobs.Failed, Sign: sign,
		Failure: jobs.Failure{Code: code, Detail: detail}}}
}

// withAnswer adds the backend's answer, if it is complete.
func withAnswer(v outcome, a answer) outcome {
	switch {
	case a.Status == 0:
	case a.Whole:
		v.Result = jobs.Meta{Status: a.Status, ContentType: a.ContentType, Fields: a.Fields,
			Size: int64(len(a.Body)), Storing: a.Storing}
		v.Body = a.Body
	case a.TooLarge:
		v.Failure.Detail += " Its answer is larger than the operation's max_result and was not " +
			"kept."
	default:
		v.Failure.Detail += " Its answer broke off and was not kept."
	}
	return v
}

func said(a answer) string {
	if text := http.StatusText(a.Status); text != "" {
		return fmt.Sprintf("The backend answered %d %s", a.Status, text)
	}
	return fmt.Sprintf("The backend answered %d", a.Status)
}

// backoff returns an exponential backoff with full jitter: up to base after the first attempt,
// doubling with each, never over longest and never 0. Full jitter keeps jobs that failed together
// from being repeated together.
func backoff(n int, base, longest time.Duration, random float64) time.Duration {
	ceiling := longest
	n = max(n, 1)
	if n-1 < 63 && base <= longest>>(n-1) { // shifting the cap down can't overflow
		ceiling = base << (n - 1)
	}
	return max(ceiling-time.Duration(random*float64(ceiling)), time.Microsecond)
}

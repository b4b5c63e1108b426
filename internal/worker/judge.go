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

// Why a call was ended by us; the cause of its context.
var (
	errTimeout  = errors.New("the backend took longer than its timeout")
	errDeadline = errors.New("the job has reached its max_age")
	errCanceled = errors.New("the client canceled the job")
	errStopping = errors.New("this worker stops")
	errLost     = errors.New("the lease was lost")
)

// Words for how an attempt ended, in metrics and logs. The others are the codes of jobs.Failure.
const (
	wordSucceeded = "succeeded"
	wordThrottled = "throttled"
	wordCanceled  = "canceled"
	wordGivenBack = "given_back" // the worker stopped: the job waits for another
	wordLost      = "lost"       // the lease was lost: the attempt counts for nothing
)

// attemptWords are all of them.
var attemptWords = []string{
	wordSucceeded, wordThrottled, wordCanceled, wordGivenBack, wordLost,
	jobs.CodeBackendStatus, jobs.CodeBackendTimeout, jobs.CodeBackendDown,
	jobs.CodeResultTooLarge, jobs.CodeUnknownOperation, jobs.CodeDeadline,
}

// policy is what judge has to know of a backend.
type policy struct {
	retryOn  []int
	rest     []int
	base     time.Duration
	cap      time.Duration
	attempts int
}

// retries reports whether a status is worth another attempt. One of 500 and more that no standard knows (520 to 524 of a CDN, 598) is taken
// for a 500 (RFC 9110, section 15), unless it is listed itself.
func (p policy) retries(status int) bool {
	return slices.Contains(p.retryOn, status) ||
		status >= 500 && http.StatusText(status) == "" && slices.Contains(p.retryOn, http.StatusInternalServerError)
}

// verdict is how an attempt ended: one word, and what the line is told.
type verdict struct {
	word string
	leaky.Settlement
	said jobs.Meta // status and Storing of the backend's answer, kept with the job or not; zero where there was none
}

// judge says what an answer, or the error in its stead, means for the job whose attempt number n it was. random is
// in [0, 1) and spreads the backoff.
func judge(a answer, err error, n int, p policy, random float64) verdict {
	switch {
	case errors.Is(err, errCanceled):
		return verdict{word: wordCanceled, Settlement: leaky.Settlement{To: jobs.Canceled}}
	case errors.Is(err, errStopping):
		return verdict{word: wordGivenBack, Settlement: leaky.Settlement{To: jobs.Waiting}}
	case errors.Is(err, errDeadline):
		return failed(leaky.NoSign, jobs.CodeDeadline, "The job reached its maximum age during the call.")
	case errors.Is(err, errTimeout):
		return retry(leaky.Timeout, jobs.CodeBackendTimeout, "The backend did not answer in time", a, n, p, random)
	case err != nil:
		return retry(leaky.Unreachable, jobs.CodeBackendDown, "The backend could not be reached, or the connection broke", a, n, p, random)
	case slices.Contains(p.rest, a.Status) && !slices.Contains(p.retryOn, a.Status):
		return verdict{word: wordThrottled, Settlement: leaky.Settlement{
			To: jobs.Waiting, Sign: leaky.Throttled, Gate: a.RetryAfter,
			Failure: jobs.Failure{Code: jobs.CodeBackendStatus, Detail: said(a) + "."},
		}}
	case p.retries(a.Status):
		return retry(leaky.Answered, jobs.CodeBackendStatus, said(a), a, n, p, random)
	case !good(a.Status):
		return withAnswer(failed(leaky.Answered, jobs.CodeBackendStatus, said(a)+"."), a)
	case a.TooLarge:
		return failed(leaky.Answered, jobs.CodeResultTooLarge, "The backend's answer is larger than the operation's max_result.")
	}
	return withAnswer(verdict{word: wordSucceeded, Settlement: leaky.Settlement{To: jobs.Succeeded, Sign: leaky.Answered}}, a)
}

// retry is an attempt that failed in a way that may pass: the job is delayed, or failed where it was the last one.
func retry(sign leaky.Sign, code, detail string, a answer, n int, p policy, random float64) verdict {
	if n >= p.attempts {
		return withAnswer(failed(sign, code, fmt.Sprintf("%s, in attempt %d of %d.", detail, n, p.attempts)), a)
	}
	return verdict{word: code, Settlement: leaky.Settlement{
		To: jobs.Delayed, Delay: max(backoff(n, p.base, p.cap, random), a.RetryAfter), Sign: sign,
		Failure: jobs.Failure{Code: code, Detail: detail + "."},
	}}
}

func failed(sign leaky.Sign, code, detail string) verdict {
	return verdict{word: code, Settlement: leaky.Settlement{To: jobs.Failed, Sign: sign, Failure: jobs.Failure{Code: code, Detail: detail}}}
}

// withAnswer keeps the backend's answer with the job, where there is a whole one.
func withAnswer(v verdict, a answer) verdict {
	switch {
	case a.Status == 0:
	case a.Whole:
		v.Result = jobs.Meta{Status: a.Status, ContentType: a.ContentType, Fields: a.Fields, Size: int64(len(a.Body)), Storing: a.Storing}
		v.Body = a.Body
	case a.TooLarge:
		v.Failure.Detail += " Its answer is larger than the operation's max_result and was not kept."
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

// backoff is exponential with full jitter: up to base after the first attempt, doubling with each, never over longest
// and never 0. Jitter over the whole range keeps jobs that failed together from coming back together.
func backoff(n int, base, longest time.Duration, random float64) time.Duration {
	ceiling := longest
	n = max(n, 1)
	if n-1 < 63 && base <= longest>>(n-1) { // by shifting the cap down, nothing can overflow
		ceiling = base << (n - 1)
	}
	return max(ceiling-time.Duration(random*float64(ceiling)), time.Microsecond)
}

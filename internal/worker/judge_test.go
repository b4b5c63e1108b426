package worker

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// The defaults of the config.
var defaultRetryOn, defaultRest = []int{408, 425, 500, 502, 504, 507}, []int{429, 503, 529}

var testPolicy = policy{retryOn: defaultRetryOn, rest: defaultRest, base: time.Second, cap: time.Minute, attempts: 4}

func whole(status int) answer {
	return answer{Status: status, ContentType: "text/plain", Body: []byte("so"), Whole: true}
}

// Permanent failures end the job, passing ones are tried again, and asking for rest is no failure.
func TestOutcomesOfAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		word   string
		to     jobs.State
	}{
		{200, wordSucceeded, jobs.Succeeded},
		{201, wordSucceeded, jobs.Succeeded},
		{204, wordSucceeded, jobs.Succeeded},
		{301, jobs.CodeBackendStatus, jobs.Failed},
		{307, jobs.CodeBackendStatus, jobs.Failed},
		{400, jobs.CodeBackendStatus, jobs.Failed},
		{401, jobs.CodeBackendStatus, jobs.Failed},
		{404, jobs.CodeBackendStatus, jobs.Failed},
		{408, jobs.CodeBackendStatus, jobs.Delayed},
		{409, jobs.CodeBackendStatus, jobs.Failed},
		{422, jobs.CodeBackendStatus, jobs.Failed},
		{425, jobs.CodeBackendStatus, jobs.Delayed},
		{429, wordThrottled, jobs.Waiting},
		{500, jobs.CodeBackendStatus, jobs.Delayed},
		{501, jobs.CodeBackendStatus, jobs.Failed},
		{502, jobs.CodeBackendStatus, jobs.Delayed},
		{503, wordThrottled, jobs.Waiting},
		{504, jobs.CodeBackendStatus, jobs.Delayed},
		{507, jobs.CodeBackendStatus, jobs.Delayed},
		{520, jobs.CodeBackendStatus, jobs.Delayed},
		{529, wordThrottled, jobs.Waiting},
		{599, jobs.CodeBackendStatus, jobs.Delayed},
	} {
		v := judge(whole(c.status), nil, 1, testPolicy, 0.5)
		if v.word != c.word || v.To != c.to {
			t.Errorf("%d: %s, job %s; want %s, %s", c.status, v.word, v.To, c.word, c.to)
		}
		if want := map[bool]leaky.Sign{true: leaky.Throttled,
			false: leaky.Answered}[c.word == wordThrottled]; v.Sign != want {
			t.Errorf("%d: sign %q, want %q", c.status, v.Sign, want)
		}
		if kept := v.To.Final(); kept != (string(v.Body) == "so") ||
			kept != (v.Result == jobs.Meta{Status: c.status, ContentType: "text/plain", Size: 2}) {
			t.Errorf("%d: job %s keeps %+v and %q", c.status, v.To, v.Result, v.Body)
		}
		if bad := c.word != wordSucceeded; bad != (v.Failure.Code == jobs.CodeBackendStatus) ||
			bad != strings.Contains(v.Failure.Detail, "The backend answered ") {
			t.Errorf("%d: failure %+v", c.status, v.Failure)
		}
	}
}

// Case N26.
//
// Every status has a meaning. A status that is in no standard doesn't end the job if its class
// means "try again".
func TestEveryStatusMeansSomething(t *testing.T) {
	t.Parallel()
	meaning := func(status int) (to jobs.State, word string) {
		switch status {
		case 429, 503, 529: // rest
			return jobs.Waiting, wordThrottled
		case 408, 425:
			return jobs.Delayed, jobs.CodeBackendStatus
		case 501, 505, 506, 508, 510, 511: // another call would get the same
			return jobs.Failed, jobs.CodeBackendStatus
		}
		switch {
		case status >= 500:
			return jobs.Delayed, jobs.CodeBackendStatus
		case status >= 300:
			return jobs.Failed, jobs.CodeBackendStatus
		}
		return jobs.Succeeded, wordSucceeded
	}
	for status := 200; status <= 999; status++ {
		v := judge(whole(status), nil, 1, testPolicy, 0.5)
		if to, word := meaning(status); v.To != to || v.word != word {
			t.Errorf("%d: %s, job %s; want %s, job %s", status, v.word, v.To, word, to)
		}
		if v = judge(whole(status), nil, 4, testPolicy, 0.5); v.To == jobs.Delayed {
			t.Errorf("%d: another attempt after the last", status)
		}
	}
	for status := range 200 { // no answer at all
		text := fmt.Sprintf("%03d", status)
		a, err := raw(t, "HTTP/1.1 "+text+" So\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		if v := judge(a, err, 1, testPolicy, 0.5); v.word != jobs.CodeBackendDown ||
			v.To != jobs.Delayed {
			t.Errorf("%s: %s, job %s", text, v.word, v.To)
		}
	}
}

// Case C59: The statuses that are tried again are configured per backend.
func TestTheStatusesWorthAnotherAttemptAreConfigured(t *testing.T) {
	t.Parallel()
	p := testPolicy
	p.retryOn = []int{404}
	if v := judge(whole(404), nil, 1, p, 0); v.To != jobs.Delayed {
		t.Errorf("a listed 404: %s", v.To)
	}
	for _, status := range []int{500, 520} {
		if v := judge(whole(status), nil, 1, p, 0); v.To != jobs.Failed {
			t.Errorf("a %d where 500 isn't listed: %s", status, v.To)
		}
	}
	// So are the statuses that ask for rest.
	p.rest = []int{520}
	for status, want := range map[int]string{520: wordThrottled, 429: jobs.CodeBackendStatus,
		503: jobs.CodeBackendStatus} {
		if v := judge(whole(status), nil, 1, p, 0); v.word != want {
			t.Errorf("%d where 520 asks for rest: %s", status, v.word)
		}
	}
}

func TestTheReasonForEndingACallDecidesTheJob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		word string
		to   jobs.State
		code string
		sign leaky.Sign
	}{
		{errCanceled, wordCanceled, jobs.Canceled, "", leaky.NoSign},
		{errStopping, wordGivenBack, jobs.Waiting, "", leaky.NoSign},
		{errDeadline, jobs.CodeDeadline, jobs.Failed, jobs.CodeDeadline, leaky.NoSign},
		{errTimeout, jobs.CodeBackendTimeout, jobs.Delayed, jobs.CodeBackendTimeout, leaky.Timeout},
		{errors.New("connection refused"), jobs.CodeBackendDown, jobs.Delayed, jobs.CodeBackendDown,
			leaky.Unreachable},
	} {
		v := judge(answer{}, c.err, 1, testPolicy, 0)
		if v.word != c.word || v.To != c.to || v.Failure.Code != c.code || v.Sign != c.sign ||
			v.Result.Status != 0 {
			t.Errorf("%v: %+v", c.err, v)
		}
		if strings.Contains(v.Failure.Detail, c.err.Error()) {
			t.Errorf("%v: the client sees %q", c.err, v.Failure.Detail)
		}
	}
}

func TestTheLastAttemptFailsTheJobAndKeepsTheAnswer(t *testing.T) {
	t.Parallel()
	for _, n := range []int{4, 5} { // 5: the number of attempts was lowered meanwhile
		v := judge(whole(500), nil, n, testPolicy, 0)
		if v.To != jobs.Failed || v.Failure.Code != jobs.CodeBackendStatus ||
			string(v.Body) != "so" {
			t.Errorf("attempt %d: %+v", n, v)
		}
		if v := judge(answer{}, errTimeout, n, testPolicy, 0); v.To != jobs.Failed ||
			v.Failure.Code != jobs.CodeBackendTimeout || v.Sign != leaky.Timeout {
			t.Errorf("timeout in attempt %d: %+v", n, v)
		}
	}
}

func TestAnAnswerOverItsBoundFailsTheJob(t *testing.T) {
	t.Parallel()
	v := judge(answer{Status: 200, TooLarge: true}, nil, 1, testPolicy, 0)
	if v.To != jobs.Failed || v.Failure.Code != jobs.CodeResultTooLarge || v.Result.Status != 0 ||
		v.Sign != leaky.Answered {
		t.Errorf("%+v", v)
	}
}

// Half an answer is never kept. The failure mentions it.
func TestAFailuresAnswerIsKeptWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a    answer
		says string
	}{
		{answer{Status: 404, TooLarge: true}, "larger than the operation's max_result"},
		{answer{Status: 404}, "broke off"},
	} {
		v := judge(c.a, nil, 1, testPolicy, 0)
		if v.To != jobs.Failed || v.Failure.Code != jobs.CodeBackendStatus ||
			v.Result != (jobs.Meta{}) || v.Body != nil ||
			!strings.Contains(v.Failure.Detail, c.says) {
			t.Errorf("%+v: %+v", c.a, v)
		}
	}
}

func TestRetryAfterClosesTheGateOrDelaysTheRetry(t *testing.T) {
	t.Parallel()
	a := whole(503)
	a.RetryAfter = 7 * time.Second
	if v := judge(a, nil, 1, testPolicy, 0.5); v.Gate != 7*time.Second || v.Delay != 0 {
		t.Errorf("503: gate %v, delay %v", v.Gate, v.Delay)
	}
	a = whole(502)
	a.RetryAfter = 7 * time.Second
	if v := judge(a, nil, 1, testPolicy, 0.5); v.Delay != 7*time.Second || v.Gate != 0 {
		t.Errorf("502: delay %v, gate %v; the backoff alone would be 500 ms", v.Delay, v.Gate)
	}
	if v := judge(a, nil, 3, policy{retryOn: defaultRetryOn, base: time.Minute, cap: time.Hour,
		attempts: 4}, 0.5); v.Delay != 2*time.Minute {
		t.Errorf("502: delay %v, want the longer backoff", v.Delay)
	}
}

// Case C60.
//
// The delay after any attempt is in its jitter range, for any number of attempts, and is always
// positive.
func TestBackoffStaysInItsRangeForEver(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(t, "base"))
		longest := time.Duration(rapid.Int64Range(int64(base), math.MaxInt64).Draw(t, "cap"))
		n := rapid.OneOf(rapid.IntRange(1, 100), rapid.IntRange(0, math.MaxInt)).Draw(t, "attempt")
		random := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "random")
		ceiling := float64(base) * math.Pow(2, float64(max(n, 1)-1))
		ceiling = max(min(ceiling, float64(longest)), float64(time.Microsecond))
		got := backoff(n, base, longest, random)
		if got <= 0 || float64(got) > ceiling*(1+1e-9) {
			t.Fatalf("backoff %v, want in (0, %v]", got, time.Duration(ceiling))
		}
		want := (1 - random) * ceiling
		if math.Abs(float64(got)-want) > want*1e-9+float64(time.Microsecond) {
			t.Fatalf("backoff %v, want %v: jitter over the whole range", got, time.Duration(want))
		}
	})
	for n := 10; n <= 100; n++ {
		if got := backoff(n, time.Millisecond, 5*time.Millisecond, 0); got != 5*time.Millisecond {
			t.Errorf("attempt %d: ceiling %v, want the cap of 5 ms", n, got)
		}
	}
}

func TestRetryAfterIsReadInEveryForm(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	at := now.Add(3 * time.Second)
	backendsClock := now.Add(-time.Hour)
	for _, c := range []struct {
		text, date string
		want       time.Duration
	}{
		{"", "", 0},
		{"3", "", 3 * time.Second},
		{" 3 ", "", 3 * time.Second},
		{"0", "", 0},
		{"-1", "", 0},
		{"1.5", "", 0},
		{"soon", "", 0},
		{"301", "", maxRetryAfter},
		{"99999999999999999999999", "", maxRetryAfter},
		{at.Format(http.TimeFormat), "", 3 * time.Second},
		{at.Format("Monday, 02-Jan-06 15:04:05 GMT"), "", 3 * time.Second},
		{at.Format(time.ANSIC), "", 3 * time.Second},
		{now.Add(-time.Minute).Format(http.TimeFormat), "", 0},
		{now.Add(24 * time.Hour).Format(http.TimeFormat), "", maxRetryAfter},
		// The backend's clock is an hour slow; its Date shows that.
		{backendsClock.Add(9 * time.Second).Format(http.TimeFormat),
			backendsClock.Format(http.TimeFormat), 9 * time.Second},
		{at.Format(http.TimeFormat), "never", 3 * time.Second},
	} {
		h := http.Header{}
		if c.text != "" {
			h.Set("Retry-After", c.text)
		}
		if c.date != "" {
			h.Set("Date", c.date)
		}
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("Retry-After %q, Date %q: %v, want %v", c.text, c.date, got, c.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("3", "Mon, 30 Nov 2026 12:00:00 GMT")
	f.Fuzz(func(t *testing.T, text, date string) {
		got := retryAfter(http.Header{"Retry-After": {text}, "Date": {date}}, time.Now())
		if got < 0 || got > maxRetryAfter {
			t.Fatalf("%v", got)
		}
	})
}

func TestATraceGoesOnAndAMalformedOneIsDropped(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	got := childOf(parent)
	if len(got) != len(parent) || !strings.HasPrefix(got, parent[:36]) ||
		!strings.HasSuffix(got, "-01") || got == parent {
		t.Errorf("child of %s: %s", parent, got)
	}
	if again := childOf(parent); again == got {
		t.Errorf("two calls have one parent id: %s", got)
	}
	if got := childOf("cc" + parent[2:] + "-what-comes-later"); !strings.HasPrefix(got,
		parent[:36]) {
		t.Errorf("a later version: %q", got)
	}
	for _, bad := range []string{
		"", "x", "00", parent[1:], parent + "-00", "ff" + parent[2:], strings.ToUpper(parent),
		"00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c-" + strings.Repeat("0", 16) + "-01",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333z-01",
	} {
		if got := childOf(bad); got != "" {
			t.Errorf("child of %q: %q", bad, got)
		}
	}
}

func TestABottleneckIsNewsOnceAChange(t *testing.T) {
	t.Parallel()
	var b bottleneck
	now := time.Now()
	var got []change
	for _, step := range []struct {
		seconds int
		reason  string
	}{
		{15, "rate"}, {9, "concurrency"}, {1, "rate"}, {30, "concurrency"}, {9, "rate"},
		{5, "concurrency"}, {30, "rate"},
	} {
		for range step.seconds {
			now = now.Add(time.Second)
			if c := b.observe(now, step.reason); c != noChange {
				got = append(got, c)
			}
		}
	}
	if len(got) != 2 || got[0] != nowHeld || got[1] != nowFree {
		t.Errorf("changes %v, want one to held and one to free", got)
	}
}

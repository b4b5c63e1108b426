package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forebay/forebay/api"
)

// Request is a request for one job.
type Request struct {
	Operation string
	Payload   json.RawMessage // any JSON value; nil means null; reaches the backend byte for byte

	Priority string // api.High, api.Normal or api.Low; "" means api.Normal
	// StartWithin makes the server refuse the job, or let it expire, rather than start it later; at
	// least 1 ms. 0: no limit.
	StartWithin time.Duration

	// IdempotencyKey names the job. All tries of this Submit make one job, and so do later Submits
	// of the same Request: keep the key if the caller itself may be restarted. It has 1 to 255
	// visible ASCII characters and spaces. If it is "", a key is generated for this Submit.
	IdempotencyKey string

	// Wait makes the server hold its answer back until there is a result, for so many whole
	// seconds, at most 30 s. 0: answer at once.
	Wait time.Duration

	// NoStale accepts no stored answer, neither a stale nor a fresh one.
	NoStale bool
	// MaxStale accepts a stale answer only if it has been stale for no longer than this, in whole
	// seconds. 0: any that the operation allows.
	MaxStale time.Duration
	// OnlyIfCached accepts only a stored answer: without one, the error has api.CodeNotCached. It
	// makes no job and spends no limit.
	OnlyIfCached bool

	// CallbackURL receives the notification of the job's end (a webhook). "" means the client's
	// own, if the server's config has one. At most 512 bytes.
	CallbackURL string
}

// Submission is the outcome of a Request that wasn't refused: a job, its result, or an answer
// without a job.
type Submission struct {
	JobID string   // "": there is no job, and Result is a stored answer
	Job   *api.Job // the job's state; nil if there is a Result

	// Result is set if the job succeeded within Request.Wait, and if there is no job. Its Status is
	// 200: the backend's own isn't sent here.
	Result *Result

	// Degraded reports that the answer isn't new work of the requested operation. Without a job,
	// Result is the last good answer to the same request, or a fixed one. With a job, it is a job
	// of a fallback operation (Job.Operation).
	Degraded bool
	Reason   string // why Degraded, such as "line_full" or a limit's name

	Fresh bool          // Result is a stored answer to the same request, still fresh
	Age   time.Duration // of a stored Result; 0 for a fixed one

	Replayed   bool          // the IdempotencyKey's job existed before
	RetryAfter time.Duration // how long to wait before requesting the job's status
}

// Submit requests a job. It returns an error without sending anything if the Request is invalid,
// and an *Error if the request was refused, after as many tries as Config allows.
func (c *Client) Submit(ctx context.Context, request Request) (*Submission, error) {
	call, err := c.submission(request)
	if err != nil {
		return nil, err
	}
	a, err := c.do(ctx, call)
	if err != nil {
		return nil, err
	}
	decision, reason := decision(a.header.Get(api.HeaderDecision))
	s := &Submission{Replayed: a.header.Get(api.HeaderIdempotentReplay) == "true",
		RetryAfter: retryAfter(a.header, time.Now())}
	if decision == api.Degraded {
		s.Degraded, s.Reason = true, reason
	}
	location := a.header.Get("Content-Location")
	switch {
	case strings.HasSuffix(location, "/result"):
		job := a.header.Get("Location")
		s.JobID, s.Result = job[strings.LastIndexByte(job, '/')+1:], a.result()
		return s, nil
	case a.status == http.StatusOK && location == "" &&
		(s.Degraded || hit(a.header.Values(api.HeaderCacheStatus))):
		s.Fresh, s.Result = !s.Degraded, a.result()
		s.Age = seconds(digits(a.header.Get("Age")))
		return s, nil
	}
	if s.Job, err = a.job(call); err != nil {
		return nil, err
	}
	s.JobID = s.Job.ID
	return s, nil
}

// submission returns the call of a Request.
func (c *Client) submission(r Request) (call, error) {
	body, err := r.body()
	if err != nil {
		return call{}, err
	}
	if r.OnlyIfCached && r.NoStale {
		return call{}, errors.New("forebay: OnlyIfCached and NoStale leave no answer")
	}
	if r.IdempotencyKey == "" {
		r.IdempotencyKey = rand.Text()
	}
	unfit := func(r rune) bool { return r < ' ' || r > '~' }
	if len(r.IdempotencyKey) > 255 || strings.ContainsFunc(r.IdempotencyKey, unfit) {
		return call{}, errors.New("forebay: an IdempotencyKey is 1 to 255 visible ASCII " +
			"characters and spaces")
	}
	quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(r.IdempotencyKey) + `"`
	out := call{method: "POST", path: jobsPath, body: body, wait: c.hold(r.Wait),
		fields: [][2]string{
			{"Content-Type", "application/json"}, {api.HeaderIdempotencyKey, quoted},
		}}
	var directives []string
	if r.NoStale {
		directives = append(directives, "no-cache")
	}
	if r.MaxStale > 0 && !r.NoStale {
		seconds := strconv.FormatInt(int64(r.MaxStale/time.Second), 10)
		directives = append(directives, "max-stale="+seconds)
	}
	if r.OnlyIfCached {
		directives = append(directives, "only-if-cached")
	}
	if directives != nil {
		out.fields = append(out.fields, [2]string{"Cache-Control", strings.Join(directives, ", ")})
	}
	return out, nil
}

// body writes the payload byte for byte. encoding/json would not: it removes white space and
// rewrites < > &.
func (r Request) body() ([]byte, error) {
	payload := []byte(r.Payload)
	if payload == nil {
		payload = []byte("null")
	}
	if !json.Valid(payload) {
		return nil, errors.New("forebay: the payload isn't JSON")
	}
	if r.StartWithin < 0 || r.StartWithin > 0 && r.StartWithin < time.Millisecond {
		return nil, errors.New("forebay: StartWithin is 0 or at least 1ms")
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"operation":%s,"payload":`, quote(r.Operation))
	b.Write(payload)
	if r.Priority != "" {
		fmt.Fprintf(&b, `,"priority":%s`, quote(r.Priority))
	}
	if r.StartWithin > 0 {
		fmt.Fprintf(&b, `,"start_within":%s`, quote(r.StartWithin.String()))
	}
	if r.CallbackURL != "" {
		fmt.Fprintf(&b, `,"callback_url":%s`, quote(r.CallbackURL))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func quote(text string) []byte {
	out, _ := json.Marshal(text) // a string never fails
	return out
}

// decision parses a Forebay-Decision field into its word and its reason, if it has one.
func decision(field string) (word, reason string) {
	word, parameters, _ := strings.Cut(field, ";")
	for _, p := range strings.Split(parameters, ";") {
		if value, found := strings.CutPrefix(strings.Trim(p, " \t"), "reason="); found {
			reason = strings.Trim(value, `"`)
		}
	}
	return strings.Trim(word, " \t"), reason
}

// hit reports whether the Cache-Status lines show that Forebay had the answer. Other caches add
// members of their own.
func hit(lines []string) bool {
	for member := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		name, parameters, _ := strings.Cut(member, ";")
		if strings.Trim(name, " \t\"") != "forebay" {
			continue
		}
		for p := range strings.SplitSeq(parameters, ";") {
			if p = strings.Trim(p, " \t"); p == "hit" || p == "hit=?1" {
				return true
			}
		}
	}
	return false
}

// digits returns text if it is a whole number, and "" otherwise.
func digits(text string) string {
	if strings.Trim(text, "0123456789") != "" {
		return ""
	}
	return text
}

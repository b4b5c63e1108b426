package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"forebay/api"
)

// Request asks for one job.
type Request struct {
	Operation string
	Payload   json.RawMessage // any JSON value; nil stands for null. It reaches the backend byte for byte

	Priority    string        // api.High, api.Normal or api.Low; "" stands for api.Normal
	StartWithin time.Duration // refuse the job rather than start it later; 0: no such limit, else at least 1 ms

	// IdempotencyKey names the job, so that all tries of this Submit make one, and later Submits of the same Request too: keep it where
	// the caller itself may be restarted. 1 to 255 visible ASCII characters and spaces; "" has one made that counts for this Submit.
	IdempotencyKey string

	// Wait has the server hold its answer back for the result, in whole seconds; it allows at most 30. 0: answer at once.
	Wait time.Duration

	NoStale  bool          // rather be refused than get a stale answer
	MaxStale time.Duration // no stale answer that is older, in whole seconds; 0: any that the operation allows
}

// Submission is what became of a Request that wasn't refused: a job, its result, or a stale answer.
type Submission struct {
	JobID string   // "": Degraded, there is no job
	Job   *api.Job // where it stands; nil where there is a Result instead

	// Result is there when the job succeeded within Request.Wait, and when Degraded. Its Status isn't told then: it is 200.
	Result *Result

	Degraded bool          // Result is the last good answer to the same request, instead of new work
	Reason   string        // Degraded: why there was no new work, such as "line_full" or a limit's name
	Age      time.Duration // Degraded: how old Result is

	Replayed   bool          // the IdempotencyKey's job was there before
	RetryAfter time.Duration // when asking for the job's status is worth it
}

// Submit asks for a job. It fails without asking where the Request can't be sent, and with an *Error where it was refused, as Config allows
// after several tries.
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
	s := &Submission{Replayed: a.header.Get(api.HeaderIdempotentReplay) == "true", RetryAfter: retryAfter(a.header, time.Now())}
	switch {
	case decision == api.Degraded:
		s.Degraded, s.Reason, s.Result = true, reason, a.result()
		s.Age = seconds(digits(a.header.Get("Age")))
		return s, nil
	case decision == api.Accepted && strings.HasSuffix(a.header.Get("Content-Location"), "/result"):
		location := a.header.Get("Location")
		s.JobID, s.Result = location[strings.LastIndexByte(location, '/')+1:], a.result()
		return s, nil
	}
	if s.Job, err = a.job(call); err != nil {
		return nil, err
	}
	s.JobID = s.Job.ID
	return s, nil
}

// submission is the call of a Request.
func (c *Client) submission(r Request) (call, error) {
	body, err := r.body()
	if err != nil {
		return call{}, err
	}
	if r.IdempotencyKey == "" {
		r.IdempotencyKey = rand.Text()
	}
	if len(r.IdempotencyKey) > 255 || strings.ContainsFunc(r.IdempotencyKey, func(b rune) bool { return b < ' ' || b > '~' }) {
		return call{}, errors.New("forebay: an IdempotencyKey is 1 to 255 visible ASCII characters and spaces")
	}
	quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(r.IdempotencyKey) + `"`
	out := call{method: "POST", path: jobsPath, body: body, wait: c.hold(r.Wait),
		fields: [][2]string{{"Content-Type", "application/json"}, {api.HeaderIdempotencyKey, quoted}}}
	switch {
	case r.NoStale:
		out.fields = append(out.fields, [2]string{"Cache-Control", "no-cache"})
	case r.MaxStale > 0:
		out.fields = append(out.fields, [2]string{"Cache-Control", "max-stale=" + strconv.FormatInt(int64(r.MaxStale/time.Second), 10)})
	}
	return out, nil
}

// body writes the payload as it is, which encoding/json would not: it takes white space out and writes < > & in another way.
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
	b.WriteByte('}')
	return b.Bytes(), nil
}

func quote(text string) []byte {
	out, _ := json.Marshal(text) // of a string: it can't fail
	return out
}

// decision reads a Forebay-Decision field: its word, and its reason where it has one.
func decision(field string) (word, reason string) {
	word, parameters, _ := strings.Cut(field, ";")
	for _, p := range strings.Split(parameters, ";") {
		if value, found := strings.CutPrefix(strings.Trim(p, " \t"), "reason="); found {
			reason = strings.Trim(value, `"`)
		}
	}
	return strings.Trim(word, " \t"), reason
}

// digits returns text where it is a whole number, else "".
func digits(text string) string {
	if strings.Trim(text, "0123456789") != "" {
		return ""
	}
	return text
}

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

	NoStale      bool          // no answer that was there before, neither a stale one nor a fresh one
	MaxStale     time.Duration // no stale answer that has been so for longer, in whole seconds; 0: any that the operation allows
	OnlyIfCached bool          // an answer that was there before or none: an *Error with api.CodeNotCached. It makes no job and spends no limit

	// CallbackURL is where the job's end is told (a webhook); "": the client's own, where the server's config has one. At most 512 bytes.
	CallbackURL string
}

// Submission is what became of a Request that wasn't refused: a job, its result, or an answer without a job.
type Submission struct {
	JobID string   // "": there is no job, Result was there before
	Job   *api.Job // where it stands; nil where there is a Result instead

	// Result is there when the job succeeded within Request.Wait, and where there is no job. Its Status isn't told then: it is 200.
	Result *Result

	// Degraded: something else than new work of what was asked for. Without a job, Result is the last good answer to the same request, or a fixed one. With a
	// job, that is another operation's (Job.Operation).
	Degraded bool
	Reason   string // Degraded: why, such as "line_full" or a limit's name

	Fresh bool          // Result is a former answer to the same request, as good as new
	Age   time.Duration // of a Result that was there before; 0 for a fixed one

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
	if decision == api.Degraded {
		s.Degraded, s.Reason = true, reason
	}
	location := a.header.Get("Content-Location")
	switch {
	case strings.HasSuffix(location, "/result"):
		job := a.header.Get("Location")
		s.JobID, s.Result = job[strings.LastIndexByte(job, '/')+1:], a.result()
		return s, nil
	case a.status == http.StatusOK && location == "" && (s.Degraded || hit(a.header.Values(api.HeaderCacheStatus))):
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

// submission is the call of a Request.
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
	if len(r.IdempotencyKey) > 255 || strings.ContainsFunc(r.IdempotencyKey, func(b rune) bool { return b < ' ' || b > '~' }) {
		return call{}, errors.New("forebay: an IdempotencyKey is 1 to 255 visible ASCII characters and spaces")
	}
	quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(r.IdempotencyKey) + `"`
	out := call{method: "POST", path: jobsPath, body: body, wait: c.hold(r.Wait),
		fields: [][2]string{{"Content-Type", "application/json"}, {api.HeaderIdempotencyKey, quoted}}}
	var directives []string
	if r.NoStale {
		directives = append(directives, "no-cache")
	}
	if r.MaxStale > 0 && !r.NoStale {
		directives = append(directives, "max-stale="+strconv.FormatInt(int64(r.MaxStale/time.Second), 10))
	}
	if r.OnlyIfCached {
		directives = append(directives, "only-if-cached")
	}
	if directives != nil {
		out.fields = append(out.fields, [2]string{"Cache-Control", strings.Join(directives, ", ")})
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
	if r.CallbackURL != "" {
		fmt.Fprintf(&b, `,"callback_url":%s`, quote(r.CallbackURL))
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

// hit reports whether the Cache-Status lines say that Forebay had the answer. Caches on the way add members of their own.
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

// digits returns text where it is a whole number, else "".
func digits(text string) string {
	if strings.Trim(text, "0123456789") != "" {
		return ""
	}
	return text
}

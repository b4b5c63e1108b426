package httpapi

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"

	"forebay/api"
)

// contract holds every answer that a test gets against openapi.yaml.
type contract struct {
	t    testing.TB
	next http.RoundTripper
}

var spec = sync.OnceValues(func() (validator.Validator, error) {
	doc, err := libopenapi.NewDocument(api.OpenAPI)
	if err != nil {
		return nil, err
	}
	v, errs := validator.NewValidator(doc, config.WithFormatAssertions(), config.WithStrictMode(),
		config.WithStrictIgnoredHeadersExtra("Date", "Content-Length", "Connection", "Allow", "Forebay-Decision"))
	if errs != nil {
		return nil, errs[0]
	}
	return v, nil
})

// The contract describes the calls that there are; what it leaves to every other path and method is a problem.
var described = regexp.MustCompile(`^(POST /v1/jobs|(GET|DELETE) /v1/jobs/[^/]+|GET /v1/jobs/[^/]+/result|GET /v1/rate-limits|GET /openapi.yaml|GET /livez|GET /readyz|` +
	`GET /admin/v1/backends|(GET|PATCH) /admin/v1/backends/[^/]+|DELETE /admin/v1/backends/[^/]+/override|GET /metrics)$`)

func (c contract) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil {
		return nil, err
	}
	c.check(r, answer, body)
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

func (c contract) check(r *http.Request, answer *http.Response, body []byte) {
	c.t.Helper()
	if r.Method == http.MethodHead {
		return // as its GET, without the body
	}
	call := r.Method + " " + r.URL.Path
	if answer.StatusCode >= 400 {
		c.checkProblem(call, answer, body)
	}
	if answer.StatusCode == http.StatusOK && answer.Header.Get(api.HeaderDecision) == api.Accepted {
		strictly(c.t, call, body, new(api.Job))
	}
	if !described.MatchString(call) {
		if answer.StatusCode < 400 {
			c.t.Errorf("%s: %s, which the contract doesn't describe", call, answer.Status)
		}
		return
	}
	v, err := spec()
	if err != nil {
		c.t.Fatalf("openapi.yaml: %v", err)
	}
	r = r.Clone(r.Context())
	r.URL.RawPath = "" // paths are matched as they are decoded
	shown := *answer
	shown.Body = io.NopCloser(bytes.NewReader(body))
	if answer.StatusCode < 300 && (strings.HasSuffix(r.URL.Path, "/result") || call == "POST /v1/jobs" && answer.StatusCode == http.StatusOK) {
		shown.Body = io.NopCloser(strings.NewReader("null")) // the backend's own bytes: the contract promises nothing of them
	}
	if ok, faults := v.ValidateHttpResponse(r, &shown); !ok {
		var all []string
		for _, f := range faults {
			all = append(all, f.Message+": "+f.Reason)
			for _, s := range f.SchemaValidationErrors {
				all = append(all, s.Reason)
			}
		}
		c.t.Errorf("%s → %d isn't as openapi.yaml says:\n%s\n%.300s", call, answer.StatusCode, strings.Join(all, "\n"), body)
	}
}

func (c contract) checkProblem(call string, answer *http.Response, body []byte) {
	c.t.Helper()
	var p api.Problem
	strictly(c.t, call, body, &p)
	if got := answer.Header.Get("Content-Type"); got != "application/problem+json" {
		c.t.Errorf("%s → %d: Content-Type %q, want a problem", call, answer.StatusCode, got)
	}
	if p.Status != answer.StatusCode || p.RequestID != answer.Header.Get(api.HeaderRequestID) || p.Code == "" || p.Title == "" {
		c.t.Errorf("%s → %d with request id %s: problem disagrees: %s", call, answer.StatusCode, answer.Header.Get(api.HeaderRequestID), body)
	}
	if strings.ContainsAny(p.Detail, "\n") || strings.Contains(p.Detail, "redis") || strings.Contains(p.Detail, ".go") {
		c.t.Errorf("%s → %d tells what is internal: %s", call, answer.StatusCode, body)
	}
}

// strictly decodes a body that may have no fields but those of into.
func strictly(t testing.TB, call string, body []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Errorf("%s: %v in %s", call, err, body)
	}
}

func TestTheContractIsAValidOpenAPIDocument(t *testing.T) {
	t.Parallel()
	v, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	if ok, faults := v.ValidateDocument(); !ok {
		for _, f := range faults {
			t.Errorf("%s: %s %+v", f.Message, f.Reason, f.SchemaValidationErrors)
		}
	}
}

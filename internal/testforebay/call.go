package testforebay

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/forebay/forebay/api"
)

// Answer is a whole answer.
type Answer struct {
	*http.Response
	Text []byte // the body
}

// Field is a field of a request's header. Host stands for the request's host.
func Field(name, value string) [2]string { return [2]string{name, value} }

// Key is the field with a caller's API key.
func Key(k string) [2]string { return Field("Authorization", "Bearer "+k) }

// From is the field with a caller's address, which the servers believe.
func From(ip string) [2]string { return Field("X-Forwarded-For", ip) }

// Idempotent is the field with an Idempotency-Key.
func Idempotent(k string) [2]string { return Field("Idempotency-Key", k) }

// Call makes one request. A body is sent as JSON. Of fields with one name the last counts, but for
// Idempotency-Key.
func (w *World) Call(method, url, body string, fields ...[2]string) Answer {
	w.Helper()
	a, err := w.Try(method, url, body, fields...)
	if err != nil {
		w.Fatal(err)
	}
	return a
}

// Try is Call for requests that may fail on their way.
func (w *World) Try(method, url, body string, fields ...[2]string) (Answer, error) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, f := range fields {
		if f[0] == "Host" {
			r.Host = f[1]
			continue
		}
		if r.Header.Get(f[0]) != "" && f[0] != "Idempotency-Key" {
			r.Header.Del(f[0])
		}
		r.Header.Add(f[0], f[1])
	}
	res, err := w.Client.Do(r)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return Answer{res, text}, err
}

// Submit posts a job with a payload.
func (w *World) Submit(operation, payload string, fields ...[2]string) Answer {
	w.Helper()
	body := `{"operation":"` + operation + `","payload":` + payload + `}`
	return w.Call("POST", w.URL+"/v1/jobs", body, fields...)
}

// Get gets what is at a path of the public listener.
func (w *World) Get(path string, fields ...[2]string) Answer {
	w.Helper()
	return w.Call("GET", w.URL+path, "", fields...)
}

// Want checks an answer's status.
func (w *World) Want(a Answer, status int) Answer {
	w.Helper()
	if a.StatusCode != status {
		w.Fatalf("%s %s: %s, want %d\n%v\n%s", a.Request.Method, a.Request.URL, a.Status, status,
			a.Header, a.Text)
	}
	return a
}

// Problem checks the status and the code of a problem.
func (w *World) Problem(a Answer, status int, code string) api.Problem {
	w.Helper()
	w.Want(a, status)
	var p api.Problem
	if err := json.Unmarshal(a.Text, &p); err != nil || p.Code != code {
		w.Fatalf("%s %s: code %q, want %q\n%s", a.Request.Method, a.Request.URL, p.Code, code,
			a.Text)
	}
	return p
}

// Job is the job that an answer describes.
func (w *World) Job(a Answer) api.Job {
	w.Helper()
	var j api.Job
	if err := json.Unmarshal(a.Text, &j); err != nil || j.ID == "" {
		w.Fatalf("no job: %v\n%s", err, a.Text)
	}
	return j
}

// AdminCall makes one request without a body to the admin listener. path is under /admin/v1/.
func (w *World) AdminCall(method, path string, fields ...[2]string) Answer {
	w.Helper()
	return w.Call(method, w.Admin+"/admin/v1/"+path, "", fields...)
}

// AdminJob is the job that an answer of the admin listener describes.
func (w *World) AdminJob(a Answer) api.AdminJob {
	w.Helper()
	var j api.AdminJob
	Strictly(w, "job", w.Want(a, 200).Text, &j)
	return j
}

// Metrics is the metrics page.
func (w *World) Metrics() []byte {
	w.Helper()
	return w.Want(w.Call("GET", w.Admin+"/metrics", ""), 200).Text
}

// Series is how many series the metrics page has.
func (w *World) Series() (n int) {
	w.Helper()
	for line := range strings.Lines(string(w.Metrics())) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

// Metric is the value of one series on the metrics page; "": it isn't there.
func (w *World) Metric(name string) string {
	w.Helper()
	for line := range strings.Lines(string(w.Metrics())) {
		if value, is := strings.CutPrefix(line, name+" "); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Persist is Try again and again, for 20 s at most, while the answer is a 503: on a busy machine
// the store may be late for some of a crowd.
func (w *World) Persist(method, url, body string, fields ...[2]string) (Answer, error) {
	for end := time.Now().Add(20 * time.Second); ; {
		a, err := w.Try(method, url, body, fields...)
		if err != nil || a.StatusCode != http.StatusServiceUnavailable || time.Now().After(end) {
			return a, err
		}
	}
}

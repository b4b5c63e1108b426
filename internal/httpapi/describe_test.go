package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/testforebay"
)

// succeedWith runs the job: the backend answers with these.
func (w *world) succeedWith(id, contentType string, fields jobs.Fields, body string) {
	w.Helper()
	w.Settle(leaky.Settlement{Ticket: w.Start(id), To: jobs.Succeeded, Took: time.Millisecond,
		Body: []byte(body),
		Result: jobs.Meta{Status: 200, ContentType: contentType, Fields: fields,
			Size: int64(len(body))}})
}

// N27, N25: what the backend says of the bytes goes with them: with the result, with a stored
// answer, and with one that was waited for.
func TestAResultKeepsItsFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operation(w.Shared).Overload.FreshFor = time.Hour
		}
	})
	const fields = "Content-Encoding: br\nContent-Disposition: attachment; filename=\"a.bin\"\n" +
		"Content-Language: de\nEtag: \"7\"\n" +
		"Location: /status/7\nLink: </a>; rel=next\nLink: </b>; rel=prev\n"
	check := func(a answer, location string) {
		t.Helper()
		w.says(a, map[string]string{"Content-Encoding": "br",
			"Content-Disposition": `attachment; filename="a.bin"`, "Content-Language": "de",
			"ETag": `"7"`, "Location": location,
			"Content-Security-Policy": "sandbox; default-src 'none'",
			"X-Content-Type-Options":  "nosniff"})
		if links := a.Header["Link"]; len(links) != 2 {
			t.Errorf("Link: %q", links)
		}
	}
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	w.succeedWith(id, "application/octet-stream", fields, "bytes")
	check(w.Want(w.Get("/v1/jobs/"+id+"/result", key(keyA)), 200), "/status/7")
	check(w.Want(w.Call("HEAD", w.URL+"/v1/jobs/"+id+"/result", "", key(keyA)), 200), "/status/7")

	w.Remember(w.Shared, "", `1`,
		cache.Answer{Status: 200, ContentType: "application/octet-stream", Fields: fields,
			Body: []byte("x")})
	// Location is the job's own where the answer is to a POST
	check(w.Want(w.Submit(w.Shared, `1`, key(keyA)), 200), "")
	w.Want(w.Submit(w.Plain, `2`, key(keyA), idempotent("k")), 202)
	waited := w.Job(w.Submit(w.Plain, `2`, key(keyA), idempotent("k"))).ID
	w.succeedWith(waited, "application/octet-stream", fields, "bytes")
	check(w.Want(w.Submit(w.Plain, `2`, key(keyA), idempotent("k"), field("Prefer", "wait=5")),
		200), "/v1/jobs/"+waited)

	failed := w.Job(w.Submit(w.Plain, `3`, key(keyA))).ID
	w.Settle(leaky.Settlement{Ticket: w.Start(failed), To: jobs.Failed,
		Failure: jobs.Failure{Code: jobs.CodeBackendStatus, Detail: "No."},
		Result: jobs.Meta{Status: 302, Fields: "Content-Encoding: br\nLocation: /elsewhere\n",
			Size: 1}, Body: []byte("\xff")})
	p := w.Problem(w.Get("/v1/jobs/"+failed+"/result", key(keyA)), http.StatusFailedDependency,
		jobs.CodeBackendStatus)
	if got := p.BackendAnswer.Fields; len(got) != 2 || got["Content-Encoding"] != "br" ||
		got["Location"] != "/elsewhere" {
		t.Errorf("a failed job's: %v", got)
	}
	if got := w.AdminJob(w.AdminCall("GET", "jobs/"+failed)).Answer.Fields; len(got) != 2 {
		t.Errorf("as operators see it: %v", got)
	}
}

// A browser saves a result that it would run.
func TestAResultThatABrowserWouldRunIsSaved(t *testing.T) {
	t.Parallel()
	const named = `inline; filename="r;1.html"; filename*=UTF-8''r%3B1.html`
	w := newWorld(t, nil)
	for _, c := range []struct{ contentType, fields, want string }{
		{"text/html", "", "attachment"},
		{"text/html", "Content-Disposition: " + named + "\n",
			`attachment; filename="r;1.html"; filename*=UTF-8''r%3B1.html`},
		{"text/plain", "Content-Disposition: " + named + "\n", named},
		{"text/plain", "", ""},
	} {
		id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
		w.succeedWith(id, c.contentType, jobs.Fields(c.fields), "<script>alert(1)</script>")
		w.says(w.Want(w.Get("/v1/jobs/"+id+"/result", key(keyA)), 200),
			map[string]string{"Content-Disposition": c.want,
				"Content-Type":            c.contentType,
				"Content-Security-Policy": "sandbox; default-src 'none'",
				"X-Content-Type-Options":  "nosniff"})
	}
}

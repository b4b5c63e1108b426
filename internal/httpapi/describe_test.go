package httpapi

import (
	"net/http"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// succeedWith runs the job: the backend answers with these.
func (w *world) succeedWith(id, contentType string, fields jobs.Fields, body string) {
	w.Helper()
	w.settle(leaky.Settlement{Ticket: w.start(id), To: jobs.Succeeded, Took: time.Millisecond, Body: []byte(body),
		Result: jobs.Meta{Status: 200, ContentType: contentType, Fields: fields, Size: int64(len(body))}})
}

// N27, N25: what the backend says of the bytes goes with them: with the result, with a stored answer, and with one that was waited for.
func TestAResultKeepsItsFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.adjust = func(w *world, c *worldConfig) { c.operation(w.shared).Overload.FreshFor = time.Hour }
	})
	const fields = "Content-Encoding: br\nContent-Disposition: attachment; filename=\"a.bin\"\nContent-Language: de\nEtag: \"7\"\n" +
		"Location: /status/7\nLink: </a>; rel=next\nLink: </b>; rel=prev\n"
	check := func(a answer, location string) {
		t.Helper()
		w.says(a, map[string]string{"Content-Encoding": "br", "Content-Disposition": `attachment; filename="a.bin"`, "Content-Language": "de",
			"ETag": `"7"`, "Location": location, "Content-Security-Policy": "sandbox; default-src 'none'", "X-Content-Type-Options": "nosniff"})
		if links := a.Header["Link"]; len(links) != 2 {
			t.Errorf("Link: %q", links)
		}
	}
	id := w.job(w.submit(w.plain, `1`, key(keyA))).ID
	w.succeedWith(id, "application/octet-stream", fields, "bytes")
	check(w.want(w.get("/v1/jobs/"+id+"/result", key(keyA)), 200), "/status/7")
	check(w.want(w.call("HEAD", w.url+"/v1/jobs/"+id+"/result", "", key(keyA)), 200), "/status/7")

	w.remember(w.shared, "", `1`, cache.Answer{Status: 200, ContentType: "application/octet-stream", Fields: fields, Body: []byte("x")})
	check(w.want(w.submit(w.shared, `1`, key(keyA)), 200), "") // Location is the job's own where the answer is to a POST
	w.want(w.submit(w.plain, `2`, key(keyA), idempotent("k")), 202)
	waited := w.job(w.submit(w.plain, `2`, key(keyA), idempotent("k"))).ID
	w.succeedWith(waited, "application/octet-stream", fields, "bytes")
	check(w.want(w.submit(w.plain, `2`, key(keyA), idempotent("k"), field("Prefer", "wait=5")), 200), "/v1/jobs/"+waited)

	failed := w.job(w.submit(w.plain, `3`, key(keyA))).ID
	w.settle(leaky.Settlement{Ticket: w.start(failed), To: jobs.Failed, Failure: jobs.Failure{Code: jobs.CodeBackendStatus, Detail: "No."},
		Result: jobs.Meta{Status: 302, Fields: "Content-Encoding: br\nLocation: /elsewhere\n", Size: 1}, Body: []byte("\xff")})
	p := w.problem(w.get("/v1/jobs/"+failed+"/result", key(keyA)), http.StatusFailedDependency, jobs.CodeBackendStatus)
	if got := p.BackendAnswer.Fields; len(got) != 2 || got["Content-Encoding"] != "br" || got["Location"] != "/elsewhere" {
		t.Errorf("a failed job's: %v", got)
	}
	if got := w.adminJob(w.adminCall("GET", "jobs/"+failed)).Answer.Fields; len(got) != 2 {
		t.Errorf("as operators see it: %v", got)
	}
}

// A result is somebody else's page on this origin: browsers save what they would run, and run nothing of what they show.
func TestABrowserRunsNoResult(t *testing.T) {
	t.Parallel()
	const named = `inline; filename="r;1.html"; filename*=UTF-8''r%3B1.html`
	for contentType, run := range map[string]bool{
		"": false, "application/json": false, "application/problem+json; charset=utf-8": false, "text/plain;charset=utf-8": false, "text/csv": false,
		"image/png": false, "IMAGE/JPEG": false, "video/mp4": false, "audio/ogg": false, "application/octet-stream": false, "application/ld+json": false,
		"text/html": true, "Text/HTML; charset=utf-8": true, " text/html": true, "application/xhtml+xml": true, "image/svg+xml": true, "text/xml": true,
		"application/xml": true, "application/rss+xml": true, "application/pdf": true, "text/javascript": true, "application/javascript": true,
		"multipart/x-mixed-replace; boundary=x": true, "message/rfc822": true, "application/wasm": true, "text/css": true,
		// What Go's reader and a browser's may read in different ways.
		"text/plain, text/html": true, "text/plain; a=b,text/html": true, "text/html;": true, "text": true, "text/html;;charset=x": true,
		`text/plain; a="`: true,
	} {
		if got := runs(contentType); got != run {
			t.Errorf("%q: %v", contentType, got)
		}
	}
	for before, after := range map[string]string{
		"":                            "attachment",
		"inline":                      "attachment",
		"attachment":                  "attachment",
		"Attachment; filename=a.html": "attachment; filename=a.html",
		named:                         `attachment; filename="r;1.html"; filename*=UTF-8''r%3B1.html`,
		"filename=a.html":             "attachment; filename=a.html",
		"form-data; name=x":           "attachment; name=x",
		"inline; ":                    "attachment",
	} {
		if got := attachment(before); got != after {
			t.Errorf("%q becomes %q, want %q", before, got, after)
		}
	}

	w := newWorld(t, nil)
	for _, c := range []struct{ contentType, fields, want string }{
		{"text/html", "", "attachment"},
		{"text/html", "Content-Disposition: " + named + "\n", `attachment; filename="r;1.html"; filename*=UTF-8''r%3B1.html`},
		{"text/plain", "Content-Disposition: " + named + "\n", named},
		{"text/plain", "", ""},
	} {
		id := w.job(w.submit(w.plain, `1`, key(keyA))).ID
		w.succeedWith(id, c.contentType, jobs.Fields(c.fields), "<script>alert(1)</script>")
		w.says(w.want(w.get("/v1/jobs/"+id+"/result", key(keyA)), 200), map[string]string{"Content-Disposition": c.want,
			"Content-Type": c.contentType, "Content-Security-Policy": "sandbox; default-src 'none'", "X-Content-Type-Options": "nosniff"})
	}
}

package httpapi

import (
	"strings"
	"testing"
)

// A result is another party's page on this origin: browsers save a result that they would run, and
// run no part of one that they show.
func TestABrowserRunsNoResult(t *testing.T) {
	t.Parallel()
	const named = `inline; filename="r;1.html"; filename*=UTF-8''r%3B1.html`
	for contentType, run := range map[string]bool{
		"": false, "application/json": false, "application/problem+json; charset=utf-8": false,
		"text/plain;charset=utf-8": false, "text/csv": false,
		"image/png": false, "IMAGE/JPEG": false, "video/mp4": false, "audio/ogg": false,
		"application/octet-stream": false, "application/ld+json": false,
		"text/html": true, "Text/HTML; charset=utf-8": true, " text/html": true,
		"application/xhtml+xml": true, "image/svg+xml": true, "text/xml": true,
		"application/xml": true, "application/rss+xml": true, "application/pdf": true,
		"text/javascript": true, "application/javascript": true,
		"multipart/x-mixed-replace; boundary=x": true, "message/rfc822": true,
		"application/wasm": true, "text/css": true,
		// What Go's reader and a browser's may read in different ways.
		"text/plain, text/html": true, "text/plain; a=b,text/html": true, "text/html;": true,
		"text": true, "text/html;;charset=x": true,
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
		named:                         strings.Replace(named, "inline", "attachment", 1),
		"filename=a.html":             "attachment; filename=a.html",
		"form-data; name=x":           "attachment; name=x",
		"inline; ":                    "attachment",
	} {
		if got := attachment(before); got != after {
			t.Errorf("%q becomes %q, want %q", before, got, after)
		}
	}
}

package httpapi

import (
	"mime"
	"slices"
	"strings"

	"github.com/forebay/forebay/internal/jobs"
)

// sandbox prevents a browser from running a backend's answer as a page of this origin.
var sandbox = []string{"sandbox; default-src 'none'"}

// describe writes the fields of a backend's answer that c is about to send: those that were kept
// with it, and those that prevent a browser from running it. The Location of a POST's answer stays
// that of its job.
func (c *call) describe(contentType string, kept jobs.Fields) {
	h := c.W.Header()
	for name, value := range kept.All() {
		if name != "Location" || !c.admission {
			h[name] = append(h[name], value)
		}
	}
	h["X-Content-Type-Options"], h["Content-Security-Policy"] = noSniff, sandbox
	if runs(contentType) {
		h["Content-Disposition"] = []string{attachment(h.Get("Content-Disposition"))}
	}
}

// inert are the types, beside images, audio and video, that no browser runs.
var inert = []string{"application/json", "application/octet-stream", "application/x-ndjson",
	"application/zip", "text/plain", "text/csv"}

// runs reports whether a browser may run content of this type, or show it in a program (PDF) that a
// sandbox stops. It is true for every type that isn't known to be harmless. A malformed type may be
// any type, since browsers parse types in different ways.
func runs(contentType string) bool {
	if contentType == "" {
		return false // nosniff: it stays unknown
	}
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return true
	}
	if slices.Contains(inert, kind) {
		return false
	}
	class, sub, _ := strings.Cut(kind, "/")
	xml := strings.HasSuffix(sub, "+xml")
	return xml || class != "image" && class != "audio" && class != "video" &&
		!strings.HasSuffix(sub, "+json")
}

// attachment returns a Content-Disposition that makes browsers save the answer, with the file name
// of the given one.
func attachment(disposition string) string {
	kind, parameters, named := strings.Cut(disposition, ";")
	switch {
	case strings.Contains(kind, "="): // parameters alone
		return "attachment; " + disposition
	case named && strings.TrimSpace(parameters) != "":
		return "attachment;" + parameters
	}
	return "attachment"
}

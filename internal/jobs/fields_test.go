package jobs_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/forebay/forebay/internal/jobs"
)

// Case N27.
//
// Fields that describe an answer's bytes are kept. Those that belong to the connection, to caches
// or to a session are not.
func TestFieldsOfAnAnswerAreKept(t *testing.T) {
	t.Parallel()
	h := http.Header{
		"Content-Disposition": {`attachment; filename="r:e.pdf"`, "inline"},
		"Content-Language":    {"de, en"}, "Content-Encoding": {"br"},
		"Etag": {`"1"`}, "Last-Modified": {"Mon, 30 Nov 2026 07:28:00 GMT"},
		"Location": {"/status/7"}, "Link": {`</a>; rel="next"`, `</b>; rel="prev"`},
		"Set-Cookie": {"s=1"}, "Connection": {"close"}, "Cache-Control": {"max-age=1"},
		"X-Inner": {"10.0.0.7"},
	}
	kept, left := jobs.FieldsOf(h)
	want := map[string]string{
		"Content-Disposition": `attachment; filename="r:e.pdf"`, "Content-Language": "de, en",
		"Content-Encoding": "br", "Etag": `"1"`,
		"Last-Modified": "Mon, 30 Nov 2026 07:28:00 GMT", "Location": "/status/7",
		"Link": `</a>; rel="next", </b>; rel="prev"`,
	}
	if got := kept.Map(); !maps.Equal(got, want) || left != nil {
		t.Errorf("kept %v, left %v", got, left)
	}
	if kept, left = jobs.FieldsOf(http.Header{"Etag": {""},
		"Accept-Ranges": {"bytes"}}); kept != "" || left != nil || kept.Map() != nil {
		t.Errorf("of nothing: %q, %v", kept, left)
	}
}

func TestFieldsAreBounded(t *testing.T) {
	t.Parallel()
	h := http.Header{"Content-Language": {"de"}, "Location": {"/" + strings.Repeat("x", 900)},
		"Link":                {strings.Repeat("y", 200), "</z>"},
		"Content-Disposition": {"attachment; filename=\"a\x00b\""}}
	kept, left := jobs.FieldsOf(h)
	if len(kept) > jobs.MaxFields || !slices.Equal(left, []string{"Content-Disposition", "Link"}) ||
		kept.Map()["Link"] != "</z>" || len(kept.Map()["Location"]) != 901 {
		t.Errorf("%d bytes kept, left %v", len(kept), left)
	}
}
